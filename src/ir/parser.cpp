#include "ir/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/cursor.h"
#include "ir/fields.h"
#include "ir/tables.h"

namespace glowplug::ir {
namespace {

struct Line {
  std::string_view text;
  std::string_view section;
  int number;
};

// A table of texts, and which of them stand for themselves where they are used.
class TextTable {
 public:
  void add(const std::string& text) {
    const auto [place, isNew] = ids_.emplace(text, count_++);
    if (!isNew) place->second = std::nullopt;
  }
  // Nothing if no row, or more than one, has that text.
  std::optional<uint32_t> find(const std::string& text) const {
    const auto place = ids_.find(text);
    return place == ids_.end() ? std::nullopt : place->second;
  }

 private:
  uint32_t count_ = 0;
  std::unordered_map<std::string, std::optional<uint32_t>> ids_;
};

std::string siteKey(const Site& site) {
  return fmt::format("{}\n{}\n{}", site.file, site.line, site.function);
}

class Parser {
 public:
  Parsed run(std::string_view text);

 private:
  bool split(std::string_view text);
  bool tableRow(Cursor& at, std::string_view section);
  bool row(Cursor& at, std::string_view section);
  bool textRow(Cursor& at, char sigil, Word word, std::vector<std::string>& rows, TextTable& table);
  bool siteRow(Cursor& at);
  bool rowId(Cursor& at, char sigil, size_t expected);
  bool event(Cursor& at);
  bool result(Cursor& at, Event& event);
  bool declaration(Cursor& at, ValueId id);
  bool placeValues();
  bool failAt(const Line& line, std::string message);

  template <class Struct>
  bool fields(Cursor& at, Struct& value);
  template <class Struct>
  bool attribute(Cursor& at, Struct& value, const std::string& name);
  bool attribute(Cursor& at, Event& event, const std::string& name);
  template <class Kind>
  bool kind(Cursor& at, Kind& out, std::string_view what);

  template <class Tag>
  bool number(Cursor& at, char sigil, common::Id<Tag>& out);
  template <class Tag>
  bool reference(Cursor& at, char sigil, Word word, const TextTable& table, common::Id<Tag>& out);

  bool get(Cursor& at, SourceId& out) { return number(at, '$', out); }
  bool get(Cursor& at, ValueId& out) { return number(at, '%', out); }
  bool get(Cursor& at, RecipeId& out) { return number(at, '!', out); }
  bool get(Cursor& at, ObjectId& out) { return reference(at, '#', Word::Any, objects_, out); }
  bool get(Cursor& at, IValueId& out) { return reference(at, '^', Word::Any, constants_, out); }
  bool get(Cursor& at, MetaId& out) { return reference(at, '&', Word::Any, metas_, out); }
  bool get(Cursor& at, OperatorId& out) {
    return reference(at, '~', Word::Operator, operators_, out);
  }
  bool get(Cursor& at, SiteId& out);
  bool get(Cursor& at, Site& out);
  bool get(Cursor& at, int64_t& out) { return at.number(out); }
  bool get(Cursor& at, EffectKind& out) { return kind(at, out, "effect"); }
  bool get(Cursor& at, StateChange& out) {
    return kind(at, out.kind, "state") && at.number(out.number);
  }
  bool get(Cursor& at, std::vector<RecipeId>& out);
  bool get(Cursor& at, std::vector<Operand>& out) { return operands(at, '(', ')', out); }
  bool get(Cursor& at, Operand& out);
  template <class Integer>
  bool get(Cursor& at, std::vector<Integer>& out);
  bool operands(Cursor& at, char open, char close, std::vector<Operand>& out);

  Trace trace_;
  std::optional<ParseError> error_;
  std::vector<Line> lines_;
  TextTable objects_, constants_, metas_, operators_, sites_;
  std::map<uint32_t, Value> values_;
  bool lengthsGiven_ = false;
};

bool Parser::failAt(const Line& line, std::string message) {
  error_ = ParseError{line.number, 1, std::move(message)};
  return false;
}

// Cuts into lines, knows each line's section, and reads the name.
bool Parser::split(std::string_view text) {
  static constexpr std::string_view kSections[] = {"sources",   "guards",  "recipes",   "events",
                                                   "values",    "objects", "constants", "metas",
                                                   "operators", "sites"};
  int number = 0;
  bool named = false;
  std::string_view section;
  while (!text.empty()) {
    const size_t stop = std::min(text.find('\n'), text.size());
    const Line line{text.substr(0, stop), section, ++number};
    text.remove_prefix(std::min(stop + 1, text.size()));
    Cursor at(line.text, number);
    if (at.atEnd() || at.peek() == ';') continue;
    if (line.text.front() == ' ') {
      if (section.empty()) return failAt(line, "a row before any section");
      lines_.push_back(line);
    } else if (!named) {
      std::string word;
      if (!at.word(word) || word != "trace") return failAt(line, "expected 'trace NAME'");
      if (!at.text(trace_.name, Word::Any) || !at.end()) return error_ = at.error(), false;
      named = true;
    } else {
      const auto* found = std::find(std::begin(kSections), std::end(kSections), line.text);
      if (found == std::end(kSections)) {
        return failAt(line, fmt::format("unknown section '{}'", line.text));
      }
      section = *found;
    }
  }
  return named || failAt(Line{{}, {}, number + 1}, "expected 'trace NAME'");
}

bool Parser::rowId(Cursor& at, char sigil, size_t expected) {
  uint32_t id = 0;
  if (!at.expect(sigil) || !at.index(id)) return false;
  return id == expected || at.fail(fmt::format("expected row {}{}", sigil, expected));
}

bool Parser::textRow(Cursor& at, char sigil, Word word, std::vector<std::string>& rows,
                     TextTable& table) {
  std::string text;
  if (!rowId(at, sigil, rows.size()) || !at.text(text, word)) return false;
  table.add(text);
  rows.push_back(std::move(text));
  return true;
}

bool Parser::siteRow(Cursor& at) {
  Site site;
  if (!rowId(at, '@', trace_.sites.size()) || !get(at, site)) return false;
  sites_.add(siteKey(site));
  trace_.sites.push_back(std::move(site));
  return true;
}

// Rows that others refer to by their text; read first.
bool Parser::tableRow(Cursor& at, std::string_view section) {
  if (section == "objects") return textRow(at, '#', Word::Any, trace_.objectTexts, objects_);
  if (section == "constants") return textRow(at, '^', Word::Any, trace_.ivalueTexts, constants_);
  if (section == "metas") return textRow(at, '&', Word::Any, trace_.metaTexts, metas_);
  if (section == "operators") {
    return textRow(at, '~', Word::Operator, trace_.operatorNames, operators_);
  }
  return siteRow(at);
}

bool Parser::row(Cursor& at, std::string_view section) {
  if (section == "sources") {
    Source& source = trace_.sources.emplace_back();
    return rowId(at, '$', trace_.sources.size() - 1) && at.expect('=') &&
           kind(at, source.step, "source step") && fields(at, source);
  }
  if (section == "guards") {
    Guard& guard = trace_.guards.emplace_back();
    return kind(at, guard.kind, "predicate") && fields(at, guard);
  }
  if (section == "recipes") {
    Recipe& recipe = trace_.recipes.emplace_back();
    return rowId(at, '!', trace_.recipes.size() - 1) && at.expect('=') &&
           kind(at, recipe.kind, "recipe") && fields(at, recipe);
  }
  if (section == "events") return event(at);
  ValueId id;
  return get(at, id) && at.expect(':') && declaration(at, id);
}

bool Parser::event(Cursor& at) {
  Event& event = trace_.events.emplace_back();
  if (at.peek() == '%' || at.peek() == '-') {
    do {
      if (!result(at, event)) return false;
    } while (at.take(','));
    if (!at.expect('=')) return false;
  }
  lengthsGiven_ = false;
  if (!kind(at, event.kind, "event") || !fields(at, event)) return false;
  if (!lengthsGiven_) event.resultLengths = impliedLengths(event);
  return true;
}

bool Parser::result(Cursor& at, Event& event) {
  ValueId id;
  if (!get(at, id)) return false;
  event.results.push_back(id);
  return !at.take(':') || declaration(at, id);
}

bool Parser::declaration(Cursor& at, ValueId id) {
  if (!id.valid()) return at.fail("an absent value cannot be described");
  Value value;
  std::string text;
  // A bare kind comes first unless the value is a tensor with known metadata.
  Cursor ahead = at;
  if (ahead.word(text) && kindNamed<ValueKind>(text)) {
    value.kind = *kindNamed<ValueKind>(text);
    at = ahead;
    const char next = at.peek();
    const bool done = next == 0 || next == ',' || next == '=' || at.rest().starts_with("from ") ||
                      at.rest().starts_with("dynamic");
    if (!done && !get(at, value.meta)) return false;
  } else if (!get(at, value.meta)) {
    return false;
  }
  ahead = at;
  if (ahead.word(text) && text == "from") {
    at = ahead;
    if (!get(at, value.source)) return false;
  }
  ahead = at;
  if (ahead.word(text) && text == "dynamic") {
    at = ahead;
    value.dataDependent = true;
  }
  return values_.emplace(id.value, value).second || at.fail("this value is described twice");
}

template <class Kind>
bool Parser::kind(Cursor& at, Kind& out, std::string_view what) {
  return at.oneOf(&kindNamed<Kind>, out, what);
}

template <class Struct>
bool Parser::attribute(Cursor& at, Struct& value, const std::string& name) {
  bool known = false, good = true;
  forEachField<Struct>([&](const auto& field) {
    if (field.name != name || name == "site") return;
    known = true;
    auto& member = value.*field.member;
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, bool>) {
      member = true;
    } else {
      good = at.expect('=') && get(at, member);
    }
  });
  return known ? good : at.fail(fmt::format("unknown attribute '{}'", name));
}

bool Parser::attribute(Cursor& at, Event& event, const std::string& name) {
  if (name != "lengths") return attribute<Event>(at, event, name);
  lengthsGiven_ = true;
  return at.expect('=') && get(at, event.resultLengths);
}

// The mirror of Printer::putFields.
template <class Struct>
bool Parser::fields(Cursor& at, Struct& value) {
  bool good = true;
  for (const std::string_view name : positional(value)) {
    forEachField<Struct>([&](const auto& field) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(value.*field.member)>, bool>) {
        if (good && !name.empty() && field.name == name) good = get(at, value.*field.member);
      }
    });
  }
  while (good && !at.atEnd()) {
    if (at.peek() == '@') {
      forEachField<Struct>([&](const auto& field) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value.*field.member)>, SiteId>) {
          good = get(at, value.*field.member);
        }
      });
      return good && at.end();
    }
    std::string name;
    good = at.word(name) && attribute(at, value, name);
  }
  return good;
}

template <class Tag>
bool Parser::number(Cursor& at, char sigil, common::Id<Tag>& out) {
  if (at.takeAbsent()) return out = {}, true;
  return at.expect(sigil) && at.index(out.value);
}

template <class Tag>
bool Parser::reference(Cursor& at, char sigil, Word word, const TextTable& table,
                       common::Id<Tag>& out) {
  if (at.takeAbsent(word)) return out = {}, true;
  if (at.take(sigil)) return at.index(out.value);
  std::string text;
  Cursor before = at;
  if (!at.text(text, word)) return false;
  const std::optional<uint32_t> id = table.find(text);
  if (!id) {
    at = before;
    return at.fail(fmt::format("no table, or more than one row of it, has '{}'", text));
  }
  out.value = *id;
  return true;
}

bool Parser::get(Cursor& at, Site& out) {
  int64_t line = 0;
  if (!at.text(out.file, Word::File) || !at.expect(':') || !at.number(line)) return false;
  out.line = static_cast<int>(line);
  return at.text(out.function, Word::Any);
}

bool Parser::get(Cursor& at, SiteId& out) {
  if (!at.expect('@')) return false;
  const std::string_view rest = at.rest();
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits > 0 && digits == rest.size()) return at.index(out.value);
  Site site;
  if (!get(at, site)) return false;
  const std::optional<uint32_t> id = sites_.find(siteKey(site));
  if (!id) return at.fail("no row, or more than one, of 'sites' is this site");
  out.value = *id;
  return true;
}

bool Parser::get(Cursor& at, std::vector<RecipeId>& out) {
  for (;;) {
    RecipeId id;
    if (at.takeAbsent()) {
      out.push_back(id);
    } else if (at.take('!')) {
      if (!at.index(id.value)) return false;
      out.push_back(id);
    } else {
      return true;
    }
  }
}

template <class Integer>
bool Parser::get(Cursor& at, std::vector<Integer>& out) {
  if (!at.expect('[')) return false;
  if (at.take(']')) return true;
  do {
    int64_t value = 0;
    if (!at.number(value)) return false;
    out.push_back(static_cast<Integer>(value));
  } while (at.take(','));
  return at.expect(']');
}

bool Parser::operands(Cursor& at, char open, char close, std::vector<Operand>& out) {
  if (!at.expect(open)) return false;
  if (at.take(close)) return true;
  do {
    if (!get(at, out.emplace_back())) return false;
  } while (at.take(','));
  return at.expect(close);
}

bool Parser::get(Cursor& at, Operand& out) {
  const char first = at.peek();
  if (first == '{') {
    out.kind = Operand::Kind::List;
    return operands(at, '{', '}', out.items);
  }
  if (first == '%') {
    out.kind = Operand::Kind::Value;
    at.take('%');
    return at.takeAbsent() || at.index(out.value.value);
  }
  if (first == '_' && bareLength(at.rest(), Word::Any) == 1) return at.take('_');
  out.kind = Operand::Kind::Const;
  if (at.rest().starts_with("^-")) return at.take('^') && at.take('-');
  return get(at, out.constant);
}

bool Parser::placeValues() {
  for (const auto& [id, value] : values_) {
    if (id != trace_.values.size()) {
      return failAt(Line{{}, {}, lines_.empty() ? 1 : lines_.back().number},
                    fmt::format("value %{} is described nowhere", trace_.values.size()));
    }
    trace_.values.push_back(value);
  }
  return true;
}

Parsed Parser::run(std::string_view text) {
  const auto isTable = [](std::string_view section) {
    return section == "objects" || section == "constants" || section == "metas" ||
           section == "operators" || section == "sites";
  };
  bool good = split(text);
  for (const bool tables : {true, false}) {
    for (const Line& line : lines_) {
      if (!good || isTable(line.section) != tables) continue;
      Cursor at(line.text, line.number);
      good = (tables ? tableRow(at, line.section) : row(at, line.section)) && at.end();
      if (!good) error_ = at.error();
    }
  }
  if (good) placeValues();
  return {std::move(trace_), std::move(error_)};
}

}  // namespace

std::string ParseError::text() const { return fmt::format("{}:{}: {}", line, column, message); }

Parsed parse(std::string_view text) { return Parser().run(text); }

}  // namespace glowplug::ir
