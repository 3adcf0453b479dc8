#include "ir/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/fields.h"
#include "ir/tables.h"

namespace glowplug::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Trace& trace) : trace_(trace), made_(trace.values.size(), false) {}

  std::vector<std::string> run();

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    messages_.push_back(where_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void checkSource(const Source& source, size_t index);
  void checkGuard(const Guard& guard);
  void checkRecipe(const Recipe& recipe);
  void checkChildren(const Recipe& recipe);
  void checkChild(const Recipe& recipe, size_t child, char letter);
  void checkValue(const Value& value);
  void checkEvent(const Event& event, bool last);
  void checkResults(const Event& event);
  void checkKind(const Event& event);
  void checkOperands(const std::vector<Operand>& operands, bool nested);
  void checkOperand(const Operand& operand, bool nested);
  void checkRecipesOf(const Event& event);

  // Members besides those of the kind must be as default-made.
  template <class Struct>
  void checkUnused(const Struct& value, std::string_view optional);
  // Positional members that are ids must be valid.
  template <class Struct>
  void checkNeeded(const Struct& value, std::string_view except = {});
  template <class Struct>
  void checkRanges(const Struct& value);

  void checkMade(ValueId id, std::string_view what);
  void checkMade(SourceId id);
  void checkReachable(RecipeId id, std::unordered_set<RecipeId>& seen);

  size_t limit(SourceId) const { return trace_.sources.size(); }
  size_t limit(ValueId) const { return trace_.values.size(); }
  size_t limit(RecipeId) const { return trace_.recipes.size(); }
  size_t limit(SiteId) const { return trace_.sites.size(); }
  size_t limit(ObjectId) const { return trace_.objectTexts.size(); }
  size_t limit(IValueId) const { return trace_.ivalueTexts.size(); }
  size_t limit(MetaId) const { return trace_.metaTexts.size(); }
  size_t limit(OperatorId) const { return trace_.operatorNames.size(); }

  template <class Tag>
  bool inRange(common::Id<Tag> id) const {
    return id.valid() && id.index() < limit(id);
  }
  // Reports an id that is neither absent nor in its table.
  template <class Tag>
  void checkRange(common::Id<Tag> id, std::string_view what) {
    if (id.valid() && !inRange(id)) report("{} {} is out of range", what, id.value);
  }
  void checkRange(const std::vector<RecipeId>& ids, std::string_view what) {
    for (const RecipeId id : ids) checkRange(id, what);
  }
  template <class Other>
  void checkRange(const Other&, std::string_view) {}

  const Trace& trace_;
  std::vector<bool> made_;
  std::string where_;
  std::vector<std::string> messages_;
};

bool hasWord(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t stop = std::min(words.find(' '), words.size());
    if (words.substr(0, stop) == word) return true;
    words.remove_prefix(std::min(stop + 1, words.size()));
  }
  return false;
}

template <class Type>
constexpr bool kIsId = false;
template <class Tag>
constexpr bool kIsId<common::Id<Tag>> = true;

template <class Struct>
void Verifier::checkUnused(const Struct& value, std::string_view optional) {
  const Positional order = positional(value);
  forEachField<Struct>([&](const auto& field) {
    if (field.name == order[0] || field.name == order[1]) return;
    if (field.name == "site" || field.name == "dead" || field.name == "since") return;
    if (hasWord(optional, field.name) || value.*field.member == Struct{}.*field.member) return;
    report("has '{}', which its kind does not use", field.name);
  });
}

template <class Struct>
void Verifier::checkNeeded(const Struct& value, std::string_view except) {
  const Positional order = positional(value);
  forEachField<Struct>([&](const auto& field) {
    if (field.name != order[0] && field.name != order[1]) return;
    if constexpr (kIsId<std::decay_t<decltype(value.*field.member)>>) {
      if (field.name != except && !(value.*field.member).valid()) report("needs '{}'", field.name);
    }
  });
}

template <class Struct>
void Verifier::checkRanges(const Struct& value) {
  forEachField<Struct>([&](const auto& field) { checkRange(value.*field.member, field.name); });
}

void Verifier::checkSource(const Source& source, size_t index) {
  checkNeeded(source);
  checkUnused(source, "");
  checkRanges(source);
  if (source.parent.valid() && source.parent.index() >= index) {
    report("parent ${} does not come before", source.parent.value);
  }
  if (source.index < 0) report("index {} is negative", source.index);
  const auto place = static_cast<uint64_t>(source.index);
  if (source.step == StepKind::Result && place >= trace_.values.size())
    report("value {} is out of range", source.index);
  if (source.step == StepKind::Built && place >= trace_.recipes.size())
    report("recipe {} is out of range", source.index);
}

void Verifier::checkGuard(const Guard& guard) {
  // Of a cell there is no slot to name.
  checkNeeded(guard, guard.kind == PredicateKind::Unset ? "object" : "");
  checkUnused(guard, "");
  checkRanges(guard);
  if (guard.number < 0) report("number {} is negative", guard.number);
}

void Verifier::checkRecipe(const Recipe& recipe) {
  checkNeeded(recipe);
  checkUnused(recipe, "");
  checkRanges(recipe);
  checkChildren(recipe);
}

void Verifier::checkChildren(const Recipe& recipe) {
  std::string_view pattern = info(recipe.kind).children;
  const size_t open = std::min(pattern.find('('), pattern.size());
  const std::string_view fixed = pattern.substr(0, open);
  pattern.remove_prefix(open);
  const std::string_view repeated =
      pattern.empty() ? pattern : pattern.substr(1, pattern.size() - 2);
  const size_t least =
      fixed.size() - static_cast<size_t>(std::count(fixed.begin(), fixed.end(), '-'));
  const size_t count = recipe.children.size();
  const bool fits = count <= fixed.size()
                        ? count >= least
                        : !repeated.empty() && (count - fixed.size()) % repeated.size() == 0;
  if (!fits) {
    report("has {} children, against '{}'", count, info(recipe.kind).children);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    checkChild(recipe, i,
               i < fixed.size() ? fixed[i] : repeated[(i - fixed.size()) % repeated.size()]);
  }
}

void Verifier::checkChild(const Recipe& recipe, size_t child, char letter) {
  const RecipeId id = recipe.children[child];
  if (!id.valid()) {
    if (letter != 'o' && letter != '-') report("child {} is absent", child);
  } else if (letter == 'k' && inRange(id) && trace_.recipes[id.index()].kind != RecipeKind::Const) {
    report("child {} is not a const", child);
  }
}

void Verifier::checkValue(const Value& value) {
  checkRange(value.source, "source");
  checkRange(value.meta, "meta");
  if (value.kind != ValueKind::Tensor && value.meta.valid())
    report("has metadata but is no tensor");
  if (value.kind != ValueKind::Tensor && value.dataDependent)
    report("has no sizes to depend on data");
}

void Verifier::checkMade(ValueId id, std::string_view what) {
  if (!id.valid()) {
    report("{} is absent", what);
  } else if (!inRange(id)) {
    report("{} %{} is out of range", what, id.value);
  } else if (!made_[id.index()]) {
    report("{} %{} is not made before", what, id.value);
  }
}

// A path that starts at an opaque call's result needs that call to come before.
void Verifier::checkMade(SourceId id) {
  while (inRange(id)) {
    const Source& source = trace_.sources[id.index()];
    if (source.step == StepKind::Result) {
      checkMade(ValueId(static_cast<size_t>(source.index)), "result");
    }
    if (source.parent.valid() && source.parent.index() >= id.index()) return;  // reported there
    id = source.parent;
  }
}

void Verifier::checkReachable(RecipeId id, std::unordered_set<RecipeId>& seen) {
  std::vector<RecipeId> open{id};
  while (!open.empty()) {
    const RecipeId next = open.back();
    open.pop_back();
    if (!inRange(next) || !seen.insert(next).second) continue;
    const Recipe& recipe = trace_.recipes[next.index()];
    if (recipe.kind == RecipeKind::Value) checkMade(recipe.value, "value");
    if (recipe.kind == RecipeKind::Source) checkMade(recipe.source);
    open.insert(open.end(), recipe.children.begin(), recipe.children.end());
  }
}

void Verifier::checkRecipesOf(const Event& event) {
  std::unordered_set<RecipeId> seen;
  for (const RecipeId id : event.recipes) {
    if (!id.valid()) report("a recipe is absent");
    checkReachable(id, seen);
  }
}

void Verifier::checkOperands(const std::vector<Operand>& operands, bool nested) {
  for (const Operand& operand : operands) checkOperand(operand, nested);
}

void Verifier::checkOperand(const Operand& operand, bool nested) {
  Operand plain;
  plain.kind = operand.kind;
  switch (operand.kind) {
    case Operand::Kind::None:
      break;
    case Operand::Kind::Value:
      checkMade(operand.value, "operand");
      plain.value = operand.value;
      break;
    case Operand::Kind::Const:
      if (!operand.constant.valid()) report("a constant operand is absent");
      checkRange(operand.constant, "constant");
      plain.constant = operand.constant;
      break;
    case Operand::Kind::List:
      if (nested) report("a list operand is inside a list operand");
      checkOperands(operand.items, true);
      plain.items = operand.items;
      break;
  }
  if (!(plain == operand)) report("an operand has members that its kind does not use");
}

void Verifier::checkResults(const Event& event) {
  size_t expected = 0;
  for (const int32_t length : event.resultLengths) {
    if (length < -1) report("a result length is {}", length);
    expected += length < 0 ? 1 : static_cast<size_t>(length);
  }
  const size_t count = event.results.size();
  if (event.kind == EventKind::Op) {
    if (count != expected) report("has {} results, but lengths for {}", count, expected);
  } else {
    if (!event.resultLengths.empty()) report("has result lengths");
    if (event.kind == EventKind::Input && count != 1) report("has {} results, not one", count);
    if (event.kind == EventKind::Opaque && !event.keeps && count > 1)
      report("has {} results", count);
    if (event.kind != EventKind::Input && event.kind != EventKind::Opaque && count > 0) {
      report("has results");
    }
  }
  for (const ValueId id : event.results) {
    if (!inRange(id)) {
      report("result {} is out of range", id.value);
    } else if (made_[id.index()]) {
      report("result %{} is made again", id.value);
    } else {
      made_[id.index()] = true;
    }
  }
}

void Verifier::checkKind(const Event& event) {
  const size_t recipes = event.recipes.size();
  switch (event.kind) {
    case EventKind::Input:
      for (const ValueId id : event.results) {
        if (!inRange(id)) continue;
        const Value& value = trace_.values[id.index()];
        if (value.kind != ValueKind::Tensor) report("%{} is not a tensor", id.value);
        if (!value.source.valid()) report("%{} has no source", id.value);
        checkMade(value.source);
      }
      break;
    case EventKind::Op:
      checkOperands(event.operands, false);
      break;
    case EventKind::State:
      if ((event.state.kind == StateChange::Kind::Call) != (recipes > 0)) {
        report("has {} recipes", recipes);
      }
      break;
    case EventKind::Opaque:
      if (recipes < 1) report("has no callable");
      break;
    case EventKind::Effect: {
      const EffectInfo& effect = info(event.effect);
      if (recipes < static_cast<size_t>(effect.least) ||
          (effect.most >= 0 && recipes > static_cast<size_t>(effect.most))) {
        report("{} has {} recipes ({})", effect.name, recipes, effect.operands);
      }
      if (event.keywords.valid() && event.effect != EffectKind::CallMethod) report("has keywords");
      break;
    }
    case EventKind::Sizes:
    case EventKind::Fork: {
      checkMade(event.value, "value");
      if (!inRange(event.value)) break;
      const ValueKind kind = trace_.values[event.value.index()].kind;
      if ((kind == ValueKind::Tensor) != (event.kind == EventKind::Sizes)) {
        report("%{} is of kind {}", event.value.value, nameOf(kind));
      }
      break;
    }
    case EventKind::Return:
      if (recipes != 1) report("has {} recipes, not one", recipes);
      break;
  }
}

void Verifier::checkEvent(const Event& event, bool last) {
  checkNeeded(event,
              event.kind == EventKind::Sizes || event.kind == EventKind::Fork ? "value" : "");
  checkUnused(event, info(event.kind).optional);
  checkRanges(event);
  checkKind(event);
  checkRecipesOf(event);
  for (const int64_t id : event.dead) checkMade(ValueId(static_cast<size_t>(id)), "dead value");
  checkResults(event);
  if ((event.kind == EventKind::Return) != last) {
    report("{}", last ? "the last event is not a return" : "a return before the last event");
  }
}

std::vector<std::string> Verifier::run() {
  const auto name = [&](std::string_view table, size_t i, std::string_view kind) {
    where_ = fmt::format("{} {}", table, i);
    if (!kind.empty()) where_ += fmt::format(" ({})", kind);
  };
  for (size_t i = 0; i < trace_.sources.size(); ++i) {
    name("source", i, nameOf(trace_.sources[i].step));
    checkSource(trace_.sources[i], i);
  }
  for (size_t i = 0; i < trace_.guards.size(); ++i) {
    name("guard", i, nameOf(trace_.guards[i].kind));
    checkGuard(trace_.guards[i]);
  }
  for (size_t i = 0; i < trace_.recipes.size(); ++i) {
    name("recipe", i, nameOf(trace_.recipes[i].kind));
    checkRecipe(trace_.recipes[i]);
  }
  for (size_t i = 0; i < trace_.values.size(); ++i) {
    name("value", i, nameOf(trace_.values[i].kind));
    checkValue(trace_.values[i]);
  }
  for (size_t i = 0; i < trace_.events.size(); ++i) {
    name("event", i, nameOf(trace_.events[i].kind));
    checkEvent(trace_.events[i], i + 1 == trace_.events.size());
  }
  where_ = "trace";
  if (trace_.events.empty()) report("has no return");
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!made_[i]) report("value %{} is made by no event", i);
  }
  return std::move(messages_);
}

}  // namespace

std::vector<std::string> verify(const Trace& trace) { return Verifier(trace).run(); }

}  // namespace glowplug::ir
