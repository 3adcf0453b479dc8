#include "ir/printer.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "ir/fields.h"
#include "ir/tables.h"
#include "ir/text.h"

namespace glowplug::ir {
namespace {

// Longer texts are referred to by number.
constexpr size_t kInlineLimit = 48;

std::string siteText(const Site& site) {
  return fmt::format("{}:{} {}", quoted(site.file, Word::File), site.line,
                     quoted(site.function, Word::Any));
}

// The texts of one table, as they stand where they are used.
class Names {
 public:
  Names(char sigil, std::vector<std::string> texts) : sigil_(sigil), texts_(std::move(texts)) {
    for (const std::string& text : texts_) ++uses_[text];
  }

  std::string reference(uint32_t id) const {
    if (id < texts_.size() && texts_[id].size() <= kInlineLimit && uses_.at(texts_[id]) == 1) {
      return texts_[id];
    }
    return fmt::format("{}{}", sigil_, id);
  }

  void printTable(std::string& out, std::string_view heading) const {
    if (!texts_.empty()) out += fmt::format("{}\n", heading);
    for (size_t i = 0; i < texts_.size(); ++i)
      out += fmt::format("  {}{} {}\n", sigil_, i, texts_[i]);
  }

 private:
  char sigil_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, int> uses_;
};

std::vector<std::string> quotedAll(const std::vector<std::string>& texts, Word word) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(quoted(text, word));
  return out;
}

std::vector<std::string> siteTexts(const std::vector<Site>& sites) {
  std::vector<std::string> out;
  for (const Site& site : sites) out.push_back(siteText(site));
  return out;
}

class Printer {
 public:
  explicit Printer(const Trace& trace)
      : trace_(trace),
        objects_('#', quotedAll(trace.objectTexts, Word::Any)),
        constants_('^', quotedAll(trace.ivalueTexts, Word::Any)),
        metas_('&', quotedAll(trace.metaTexts, Word::Any)),
        operators_('~', quotedAll(trace.operatorNames, Word::Operator)),
        sites_('@', siteTexts(trace.sites)) {}

  std::string print();
  std::string listing();

 private:
  std::string put(SourceId id) const { return number('$', id); }
  std::string put(ValueId id) const { return number('%', id); }
  std::string put(RecipeId id) const { return number('!', id); }
  std::string put(ObjectId id) const { return id.valid() ? objects_.reference(id.value) : "-"; }
  std::string put(IValueId id) const { return id.valid() ? constants_.reference(id.value) : "-"; }
  std::string put(MetaId id) const { return id.valid() ? metas_.reference(id.value) : "-"; }
  std::string put(OperatorId id) const { return id.valid() ? operators_.reference(id.value) : "-"; }
  std::string put(SiteId id) const;
  std::string put(int64_t value) const { return fmt::format("{}", value); }
  std::string put(EffectKind kind) const { return std::string(nameOf(kind)); }
  std::string put(const StateChange& state) const {
    return fmt::format("{} {}", nameOf(state.kind), state.number);
  }
  std::string put(const std::vector<RecipeId>& recipes) const;
  std::string put(const std::vector<Operand>& operands) const {
    return '(' + joined(operands) + ')';
  }
  template <class Integer>
  std::string put(const std::vector<Integer>& values) const {
    return fmt::format("[{}]", fmt::join(values, ", "));
  }
  std::string put(const Operand& operand) const;
  std::string joined(const std::vector<Operand>& operands) const;

  template <class Tag>
  static std::string number(char sigil, common::Id<Tag> id) {
    return id.valid() ? fmt::format("{}{}", sigil, id.value) : "-";
  }

  template <class Struct>
  void putFields(const Struct& value);
  void putEvent(const Event& event);
  std::string resultsOf(const Event& event);
  std::string declaration(ValueId id) const;
  void putUndefinedValues();
  std::string writtenOut(RecipeId id, int depth) const;
  std::string listingLine(const Event& event) const;

  const Trace& trace_;
  Names objects_, constants_, metas_, operators_, sites_;
  std::unordered_set<ValueId> declared_;
  std::string out_;
};

std::string Printer::put(SiteId id) const {
  if (!id.valid()) return "";
  const std::string text = sites_.reference(id.value);
  return text[0] == '@' ? text : "@" + text;
}

std::string Printer::put(const std::vector<RecipeId>& recipes) const {
  std::string out;
  for (const RecipeId id : recipes) out += (out.empty() ? "" : " ") + put(id);
  return out;
}

std::string Printer::joined(const std::vector<Operand>& operands) const {
  std::string out;
  for (const Operand& operand : operands) out += (out.empty() ? "" : ", ") + put(operand);
  return out;
}

std::string Printer::put(const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::None:
      return "_";
    case Operand::Kind::Value:
      return operand.value.valid() ? put(operand.value) : "%-";
    case Operand::Kind::Const:
      return operand.constant.valid() ? put(operand.constant) : "^-";
    case Operand::Kind::List:
      return '{' + joined(operand.items) + '}';
  }
  return "_";
}

// The positional members, then what else is set, then the site.
template <class Struct>
void Printer::putFields(const Struct& value) {
  const Positional order = positional(value);
  for (const std::string_view name : order) {
    forEachField<Struct>([&](const auto& field) {
      if (field.name != name) return;
      if constexpr (!std::is_same_v<std::decay_t<decltype(value.*field.member)>, bool>) {
        const std::string text = put(value.*field.member);
        if (!text.empty() && name != "operands") out_ += ' ';
        out_ += text;
      }
    });
  }
  forEachField<Struct>([&](const auto& field) {
    if (field.name == order[0] || field.name == order[1]) return;
    if (value.*field.member == Struct{}.*field.member) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(value.*field.member)>, bool>) {
      out_ += fmt::format(" {}", field.name);
    } else if (field.name == "site") {
      out_ += ' ' + put(value.*field.member);
    } else {
      out_ += fmt::format(" {}={}", field.name, put(value.*field.member));
    }
  });
}

std::string Printer::declaration(ValueId id) const {
  std::string out = put(id);
  if (!id.valid() || id.index() >= trace_.values.size()) return out;
  const Value& value = trace_.values[id.index()];
  out += ':';
  if (value.kind != ValueKind::Tensor || !value.meta.valid()) {
    out += fmt::format(" {}", nameOf(value.kind));
  }
  if (value.meta.valid()) out += ' ' + put(value.meta);
  if (value.source.valid()) out += " from " + put(value.source);
  if (value.dataDependent) out += " dynamic";
  return out;
}

// A value is described where it is first a result.
std::string Printer::resultsOf(const Event& event) {
  std::string out;
  for (const ValueId id : event.results) {
    if (!out.empty()) out += ", ";
    out += declared_.insert(id).second ? declaration(id) : put(id);
  }
  return out;
}

void Printer::putEvent(const Event& event) {
  const std::string results = resultsOf(event);
  out_ += "  " + results + (results.empty() ? "" : " = ") + std::string(nameOf(event.kind));
  // Lengths come before the site, which ends the line.
  const std::vector<int32_t>& lengths = event.resultLengths;
  const bool plain = lengths == impliedLengths(event);
  Event rest = event;
  rest.site = SiteId();
  putFields(rest);
  if (!plain) out_ += " lengths=" + put(lengths);
  if (event.site.valid()) out_ += ' ' + put(event.site);
  out_ += '\n';
}

void Printer::putUndefinedValues() {
  bool headed = false;
  for (size_t i = 0; i < trace_.values.size(); ++i) {
    if (declared_.count(ValueId(i))) continue;
    if (!headed) out_ += "values\n";
    headed = true;
    out_ += "  " + declaration(ValueId(i)) + '\n';
  }
}

std::string Printer::print() {
  out_ = fmt::format("trace {}\n", quoted(trace_.name, Word::Any));
  const auto section = [&](std::string_view heading, const auto& rows, auto&& putRow) {
    if (!rows.empty()) out_ += fmt::format("{}\n", heading);
    for (size_t i = 0; i < rows.size(); ++i) putRow(i, rows[i]);
  };
  section("sources", trace_.sources, [&](size_t i, const Source& source) {
    out_ += fmt::format("  ${} = {}", i, nameOf(source.step));
    putFields(source);
    out_ += '\n';
  });
  section("guards", trace_.guards, [&](size_t, const Guard& guard) {
    out_ += fmt::format("  {}", nameOf(guard.kind));
    putFields(guard);
    out_ += '\n';
  });
  section("recipes", trace_.recipes, [&](size_t i, const Recipe& recipe) {
    out_ += fmt::format("  !{} = {}", i, nameOf(recipe.kind));
    putFields(recipe);
    out_ += '\n';
  });
  section("events", trace_.events, [&](size_t, const Event& event) { putEvent(event); });
  putUndefinedValues();
  objects_.printTable(out_, "objects");
  constants_.printTable(out_, "constants");
  metas_.printTable(out_, "metas");
  operators_.printTable(out_, "operators");
  sites_.printTable(out_, "sites");
  return std::move(out_);
}

std::string Printer::writtenOut(RecipeId id, int depth) const {
  if (!id.valid() || id.index() >= trace_.recipes.size()) return put(id);
  const Recipe& recipe = trace_.recipes[id.index()];
  switch (recipe.kind) {
    case RecipeKind::Const:
      return put(recipe.object);
    case RecipeKind::Source:
      return put(recipe.source);
    case RecipeKind::Value:
      return put(recipe.value);
    default:
      break;
  }
  if (depth == 0) return put(id);
  std::string out(nameOf(recipe.kind));
  if (recipe.object.valid()) out += ' ' + put(recipe.object);
  out += '(';
  for (size_t i = 0; i < recipe.children.size(); ++i) {
    if (i) out += ", ";
    out += writtenOut(recipe.children[i], depth - 1);
  }
  return out + ')';
}

std::string Printer::listingLine(const Event& event) const {
  std::string out;
  for (const ValueId id : event.results) out += (out.empty() ? "" : ", ") + put(id);
  if (!out.empty()) out += " = ";
  out += event.kind == EventKind::Op ? put(event.op) : std::string(nameOf(event.kind));
  switch (event.kind) {
    case EventKind::Input:
      for (const ValueId id : event.results) {
        if (id.index() < trace_.values.size()) out += ' ' + put(trace_.values[id.index()].source);
      }
      break;
    case EventKind::Op:
      out += put(event.operands);
      break;
    case EventKind::State:
      out += ' ' + put(event.state);
      break;
    case EventKind::Effect:
      out += ' ' + put(event.effect);
      break;
    case EventKind::Sizes:
      out += ' ' + put(event.value) + ' ' + put(event.sizes);
      break;
    case EventKind::Fork:
      out += ' ' + put(event.value) + " is " + put(event.expected);
      break;
    default:
      break;
  }
  for (const RecipeId id : event.recipes) out += ' ' + writtenOut(id, 3);
  if (event.site.valid()) out += "  " + put(event.site);
  return out;
}

std::string Printer::listing() {
  for (const Event& event : trace_.events) out_ += listingLine(event) + '\n';
  return std::move(out_);
}

}  // namespace

std::string print(const Trace& trace) { return Printer(trace).print(); }

std::string listing(const Trace& trace) { return Printer(trace).listing(); }

}  // namespace glowplug::ir
