// Printer and parser: golden texts, what they refuse, and random traces there and back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/tables.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace glowplug::ir {
namespace {

std::vector<std::filesystem::path> goldenFiles() {
  std::vector<std::filesystem::path> out;
  for (const auto& file : std::filesystem::directory_iterator(GLOWPLUG_GOLDEN "/trace")) {
    if (file.path().extension() == ".txt") out.push_back(file.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string contents(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

Trace parsed(std::string_view text) {
  Parsed result = parse(text);
  EXPECT_FALSE(result.error) << result.error->text();
  return std::move(result.trace);
}

TEST(TraceText, GoldenTextsPrintAsTheyAre) {
  ASSERT_GE(goldenFiles().size(), 3u);
  for (const auto& path : goldenFiles()) {
    SCOPED_TRACE(path.filename());
    const std::string text = contents(path);
    const Trace trace = parsed(text);
    EXPECT_EQ(print(trace), text);
    EXPECT_EQ(fmt::format("{}", fmt::join(verify(trace), "\n")), "");
  }
}

TEST(TraceText, GoldenTextsShowEveryKind) {
  std::set<StepKind> steps;
  std::set<PredicateKind> predicates;
  std::set<RecipeKind> recipes;
  std::set<EventKind> events;
  std::set<EffectKind> effects;
  for (const auto& path : goldenFiles()) {
    const Trace trace = parsed(contents(path));
    for (const Source& source : trace.sources) steps.insert(source.step);
    for (const Guard& guard : trace.guards) predicates.insert(guard.kind);
    for (const Recipe& recipe : trace.recipes) recipes.insert(recipe.kind);
    for (const Event& event : trace.events) {
      events.insert(event.kind);
      if (event.kind == EventKind::Effect) effects.insert(event.effect);
    }
  }
  EXPECT_EQ(steps.size(), kindCount<StepKind>());
  EXPECT_EQ(predicates.size(), kindCount<PredicateKind>());
  EXPECT_EQ(recipes.size(), kindCount<RecipeKind>());
  EXPECT_EQ(events.size(), kindCount<EventKind>());
  EXPECT_EQ(effects.size(), kindCount<EffectKind>());
}

TEST(TraceText, ParsedStructure) {
  const Trace trace = parsed(contents(GLOWPLUG_GOLDEN "/trace/linear.txt"));
  ASSERT_EQ(trace.sources.size(), 8u);
  EXPECT_EQ(trace.sources[5].step, StepKind::DictItem);
  EXPECT_EQ(trace.sources[5].parent, SourceId(4));
  EXPECT_EQ(trace.objectTexts[trace.sources[5].object.index()], "'weight'");
  ASSERT_EQ(trace.events.size(), 5u);
  const Event& linear = trace.events[2];
  EXPECT_EQ(trace.operatorNames[linear.op.index()], "aten::linear");
  ASSERT_EQ(linear.operands.size(), 3u);
  EXPECT_EQ(linear.operands[1].kind, Operand::Kind::Value);
  EXPECT_EQ(linear.operands[1].value, ValueId(1));
  EXPECT_EQ(linear.operands[2].kind, Operand::Kind::Const);
  EXPECT_EQ(linear.resultLengths, std::vector<int32_t>{-1});
  EXPECT_EQ(trace.sites[linear.site.index()].line, 14);
  EXPECT_EQ(trace.values[0].source, SourceId(1));
}

TEST(TraceText, Listing) {
  const Trace trace = parsed(contents(GLOWPLUG_GOLDEN "/trace/linear.txt"));
  EXPECT_EQ(listing(trace),
            "%0 = input $1  @model.py:14 forward\n"
            "%1 = input $5  @model.py:14 forward\n"
            "%2 = aten::linear(%0, %1, None)  @model.py:14 forward\n"
            "%3 = aten::mul.Scalar(%2, 2.0)  @model.py:14 forward\n"
            "return %3  @model.py:15 forward\n");
  // Recipes that contain themselves end.
  const Trace objects = parsed(contents(GLOWPLUG_GOLDEN "/trace/objects.txt"));
  EXPECT_NE(listing(objects).find("effect setattr $2 'k' tuple(named_tuple Point('k', 'k'), "),
            std::string::npos)
      << listing(objects);
}

TEST(TraceText, CommentsAndEmptyLinesAreSkipped) {
  const Trace trace = parsed("; a trace\n\ntrace t\n\nsources\n  ; one\n  $0 = callee\n");
  EXPECT_EQ(print(trace), "trace t\nsources\n  $0 = callee\n");
}

struct Bad {
  const char* text;
  const char* error;
};

TEST(TraceText, ErrorsNameThePlace) {
  const Bad kBad[] = {
      {"", "1:1: expected 'trace NAME'"},
      {"tracing x\n", "1:1: expected 'trace NAME'"},
      {"trace x\n  $0 = callee\n", "2:1: a row before any section"},
      {"trace x\nsauces\n", "2:1: unknown section 'sauces'"},
      {"trace x\nsources\n  $0 = calee\n", "3:13: unknown source step 'calee'"},
      {"trace x\nsources\n  $1 = callee\n", "3:5: expected row $0"},
      {"trace x\nsources\n  $0 = arg\n", "3:11: expected a number"},
      {"trace x\nsources\n  $0 = callee 3\n", "3:16: unknown attribute '3'"},
      {"trace x\nsources\n  $0 = kwarg 'a'\n",
       "3:14: no table, or more than one row of it, has ''a''"},
      {"trace x\nguards\n  len 0 3\n", "3:7: expected '$'"},
      {"trace x\nguards\n  len $0 3 @a.py:3 f\n",
       "3:21: no row, or more than one, of 'sites' is this site"},
      {"trace x\nevents\n  %0: tensor\n", "3:13: expected '='"},
      {"trace x\nevents\n  %0 = input\n", nullptr},
      {"trace x\nevents\n  %1: tensor = input\n", "3:1: value %0 is described nowhere"},
      {"trace x\nevents\n  %0: tensor, %0: tensor = input\n",
       "3:26: this value is described twice"},
      {"trace x\nevents\n  op ~0(%0\n", "3:11: expected ')'"},
      {"trace x\nevents\n  return !0 @0 more\n", "3:16: expected ':'"},
      {"trace x\nevents\n  return !0 @1\n", nullptr},
      {"trace x\nevents\n  return !99999999999\n", "3:11: expected an index"},
      {"trace x\nevents\n  return !4294967295\n", "3:11: expected an index"},
      {"trace x\nobjects\n  #0 `open\n", "3:6: expected a text, bare or between backquotes"},
      {"trace x\nobjects\n  #0 `bad \\q`\n", "3:6: expected a text, bare or between backquotes"},
      {"trace x\nobjects\n  #0 a b\n", "3:8: unexpected 'b'"},
  };
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.text);
    const Parsed result = parse(bad.text);
    const std::string wanted = bad.error ? bad.error : "";
    EXPECT_EQ(result.error ? result.error->text() : "", wanted);
  }
}

TEST(TraceText, EveryPrefixAndEveryChangedByteParsesOrFailsCleanly) {
  const std::string text = contents(GLOWPLUG_GOLDEN "/trace/control.txt");
  for (size_t i = 0; i < text.size(); ++i) parse(std::string_view(text).substr(0, i));
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'`', '\n', '(', '9', '-', ' '}) {
      std::string changed = text;
      changed[i] = c;
      const Parsed result = parse(changed);
      if (!result.error) verify(result.trace);
      if (!result.error) EXPECT_EQ(parsed(print(result.trace)), result.trace);
    }
  }
}

// Random traces: any ids, any members set, any bytes in texts. Mostly malformed: those print too.
class RandomTrace {
 public:
  explicit RandomTrace(uint64_t seed) : random_(seed) {}

  Trace make() {
    Trace trace;
    trace.name = text();
    fill(trace.objectTexts, [&] { return text(); });
    fill(trace.ivalueTexts, [&] { return text(); });
    fill(trace.metaTexts, [&] { return text(); });
    fill(trace.operatorNames, [&] { return text(); });
    fill(trace.sites, [&] { return Site{text(), text(), static_cast<int>(number())}; });
    fill(trace.sources, [&] {
      return Source{kind<StepKind>(), id<SourceId>(), id<ObjectId>(), number(), number()};
    });
    fill(trace.guards, [&] {
      return Guard{kind<PredicateKind>(), id<SourceId>(), id<ObjectId>(), id<SourceId>(),
                   id<MetaId>(),          number(),       number(),       id<SiteId>()};
    });
    fill(trace.values,
         [&] { return Value{kind<ValueKind>(), id<SourceId>(), id<MetaId>(), flag()}; });
    fill(trace.recipes, [&] {
      return Recipe{kind<RecipeKind>(), id<ObjectId>(), id<SourceId>(), id<ValueId>(),
                    list<RecipeId>([&] { return id<RecipeId>(); })};
    });
    fill(trace.events, [&] { return event(); });
    return trace;
  }

 private:
  size_t below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }
  bool flag() { return below(3) == 0; }
  int64_t number() {
    if (below(2)) return 0;
    return below(2) ? static_cast<int64_t>(random_()) : static_cast<int64_t>(below(9)) - 4;
  }
  template <class Kind>
  Kind kind() {
    return static_cast<Kind>(below(kindCount<Kind>()));
  }
  template <class Id>
  Id id() {
    return below(3) ? Id(below(12)) : Id();
  }
  template <class Item, class Make>
  void fill(std::vector<Item>& out, Make make) {
    const size_t count = below(10);
    for (size_t i = 0; i < count; ++i) out.push_back(make());
  }
  template <class Item, class Make>
  std::vector<Item> list(Make make) {
    std::vector<Item> out;
    const size_t count = below(4);
    for (size_t i = 0; i < count; ++i) out.push_back(make());
    return out;
  }

  std::string text() {
    static const std::string kUsual[] = {"a",    "'x y'",    "aten::add.Tensor",
                                         "-1",   "(1, 'b')", "",
                                         "from", "scalar",   "_",
                                         "-",    "[1, 2]",   "{1}",
                                         "&0",   "@3",       "12",
                                         "%1",   "keywords", "f.py",
                                         "é",    "a(b",      "'a\\'b'",
                                         "b'x'", "a=b",      "object"};
    if (below(3)) return kUsual[below(std::size(kUsual))];
    std::string out(below(60), ' ');
    for (char& c : out) c = static_cast<char>(below(2) ? random_() : 32 + below(95));
    return out;
  }

  Operand operand(int depth) {
    Operand out;
    switch (below(depth ? 4 : 3)) {
      case 0:
        break;
      case 1:
        out.kind = Operand::Kind::Value, out.value = id<ValueId>();
        break;
      case 2:
        out.kind = Operand::Kind::Const, out.constant = id<IValueId>();
        break;
      default:
        out.kind = Operand::Kind::List;
        out.items = list<Operand>([&] { return operand(depth - 1); });
    }
    return out;
  }

  // Mostly members of its kind, now and then others.
  Event event() {
    Event out;
    out.kind = kind<EventKind>();
    out.site = id<SiteId>();
    out.op = id<OperatorId>();
    out.operands = list<Operand>([&] { return operand(2); });
    out.results = list<ValueId>([&] { return id<ValueId>(); });
    if (below(2)) {
      if (out.kind == EventKind::Op) out.resultLengths.assign(out.results.size(), -1);
    } else {
      out.resultLengths = list<int32_t>([&] { return static_cast<int32_t>(below(5)) - 1; });
    }
    out.writesInput = flag();
    out.random = flag();
    out.logOnly = flag();
    out.known = flag();
    out.pure = flag();
    out.dead = list<int64_t>([&] { return number(); });
    out.state = {kind<StateChange::Kind>(), number()};
    out.effect = kind<EffectKind>();
    out.recipes = list<RecipeId>([&] { return id<RecipeId>(); });
    out.keywords = id<ObjectId>();
    out.value = id<ValueId>();
    out.expected = id<ObjectId>();
    out.sizes = list<int64_t>([&] { return number(); });
    return out;
  }

  std::mt19937_64 random_;
};

TEST(TraceText, RandomTracesComeBackEqual) {
  const uint64_t first = std::random_device()();
  for (uint64_t seed = first; seed < first + 3000; ++seed) {
    const Trace trace = RandomTrace(seed).make();
    const std::string text = print(trace);
    const Parsed result = parse(text);
    ASSERT_FALSE(result.error) << "seed " << seed << ": " << result.error->text() << "\n" << text;
    ASSERT_TRUE(result.trace == trace) << "seed " << seed << "\n"
                                       << text << "\n"
                                       << print(result.trace);
    ASSERT_EQ(print(result.trace), text) << "seed " << seed;
    verify(trace);
    listing(trace);
  }
}

TEST(TraceText, BareTexts) {
  EXPECT_EQ(quoted("aten::add.Tensor", Word::Operator), "aten::add.Tensor");
  EXPECT_EQ(quoted("f(1, {2: [3]})", Word::Any), "f(1, {2: [3]})");
  EXPECT_EQ(quoted("a b", Word::Any), "`a b`");
  EXPECT_EQ(quoted("f(", Word::Any), "`f(`");
  EXPECT_EQ(quoted("-", Word::Any), "`-`");
  EXPECT_EQ(quoted("a\n`\\\x01", Word::Any), "`a\\n\\`\\\\\\x01`");
  EXPECT_EQ(quoted("'it\\'s'", Word::Any), "'it\\'s'");
}

}  // namespace
}  // namespace glowplug::ir
