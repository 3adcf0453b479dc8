#include "lower/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "ir/cursor.h"
#include "lower/affine.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

using ir::Cursor;

class Parser {
 public:
  Parsed run(std::string_view text);

 private:
  bool line(Cursor& at, int depth);
  bool top(Cursor& at, const std::string& word);
  bool sizes(Cursor& at);
  bool row(Cursor& at);
  bool scalarRow(Cursor& at);
  bool bufferRow(Cursor& at);
  bool nest(Cursor& at);

  bool statement(Cursor& at, int depth);
  bool loop(Cursor& at, Statement& s);
  bool payload(Cursor& at, Statement& s);
  bool memory(Cursor& at, Statement& s);
  bool reduction(Cursor& at, Statement& s);
  bool operands(Cursor& at, Statement& s);
  bool options(Cursor& at, Statement& s);
  bool constant(Cursor& at, Statement& s);

  bool affine(Cursor& at, Affine& out);  // with its brackets
  bool product(Cursor& at, Affine& out);
  bool factor(Cursor& at, Affine& out);
  bool loopId(Cursor& at, LoopId& out);
  bool valueId(Cursor& at, ValueId& out);
  template <class Kind>
  bool kind(Cursor& at, Kind& out, std::string_view what);

  enum class Section : uint8_t { None, Scalars, Buffers, Nest };

  Kernel kernel_;
  bool named_ = false;
  Section section_ = Section::None;
  // The open blocks, from the nest's body inwards. A block's vector moves only when its parent
  // grows, and then the block is closed already.
  std::vector<std::vector<Statement>*> blocks_;
};

template <class Kind>
bool Parser::kind(Cursor& at, Kind& out, std::string_view what) {
  return at.oneOf(&kindNamed<Kind>, out, what);
}

// The number of a loop variable's name, if it is one.
std::optional<LoopId> loopNamed(std::string_view name) {
  uint32_t number = 0;
  if (name.size() < 2 || name.front() != 'i') return std::nullopt;
  const auto [stop, problem] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
  if (problem != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return LoopId(number);
}

template <class Table, class Name>
std::optional<size_t> positionOf(const Table& table, const std::string& wanted, const Name& name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& row) { return name(row) == wanted; });
  if (found == table.end()) return std::nullopt;
  return static_cast<size_t>(found - table.begin());
}

std::optional<size_t> sizeNamed(const Kernel& kernel, const std::string& name) {
  return positionOf(kernel.sizes, name, [](const std::string& row) { return row; });
}

bool Parser::loopId(Cursor& at, LoopId& out) {
  std::string name;
  if (!at.word(name)) return false;
  const std::optional<LoopId> found = loopNamed(name);
  if (!found) return at.fail(fmt::format("'{}' is not a loop variable", name));
  out = *found;
  return true;
}

bool Parser::valueId(Cursor& at, ValueId& out) { return at.expect('%') && at.index(out.value); }

bool Parser::factor(Cursor& at, Affine& out) {
  if (at.peek() == '%') {
    ValueId value;
    if (!valueId(at, value)) return false;
    out = valueIndex(value);
    return true;
  }
  if (std::isdigit(static_cast<unsigned char>(at.peek()))) return at.number(out.constant);
  std::string name;
  if (!at.word(name)) return false;
  if (const std::optional<LoopId> loop = loopNamed(name)) {
    out = loopIndex(*loop);
    return true;
  }
  const std::optional<size_t> size = sizeNamed(kernel_, name);
  if (!size) return at.fail(fmt::format("unknown size '{}'", name));
  out = sizeIndex(SizeId(*size));
  return true;
}

bool Parser::product(Cursor& at, Affine& out) {
  if (!factor(at, out)) return false;
  while (at.take('*')) {
    Affine next;
    if (!factor(at, next)) return false;
    if (!onlySizes(out) && !onlySizes(next)) {
      return at.fail("a product of two loop variables is not affine");
    }
    out = out * next;
  }
  return true;
}

bool Parser::affine(Cursor& at, Affine& out) {
  if (!at.expect('[')) return false;
  out = {};
  bool negative = at.take('-');
  while (true) {
    Affine term;
    if (!product(at, term)) return false;
    out = negative ? std::move(out) - term : std::move(out) + term;
    if (at.take(']')) return true;
    negative = at.peek() == '-';
    if (!at.take('-') && !at.take('+')) return at.fail("expected '+', '-' or ']'");
  }
}

bool Parser::sizes(Cursor& at) {
  while (!at.atEnd()) {
    std::string name;
    if (!at.word(name)) return false;
    kernel_.sizes.push_back(std::move(name));
  }
  return true;
}

bool Parser::scalarRow(Cursor& at) {
  Scalar scalar;
  if (!at.word(scalar.name) || !kind(at, scalar.dtype, "dtype")) return false;
  kernel_.scalars.push_back(std::move(scalar));
  return at.end();
}

bool Parser::bufferRow(Cursor& at) {
  Buffer buffer;
  if (!at.word(buffer.name) || !kind(at, buffer.dtype, "dtype") || !kind(at, buffer.role, "role")) {
    return false;
  }
  if (buffer.role == Role::Local && !affine(at, buffer.length)) return false;
  kernel_.buffers.push_back(std::move(buffer));
  return at.end();
}

bool Parser::nest(Cursor& at) {
  Nest nest;
  while (!at.atEnd()) {
    std::string word;
    Cursor ahead = at;
    if (ahead.word(word) && word == "vector") {
      nest.vector = true;
      at = ahead;
      break;
    }
    ParallelLoop loop;
    if (!loopId(at, loop.loop) || !affine(at, loop.extent)) return false;
    nest.loops.push_back(std::move(loop));
  }
  kernel_.nests.push_back(std::move(nest));
  blocks_ = {&kernel_.nests.back().body};
  return at.end();
}

bool Parser::top(Cursor& at, const std::string& word) {
  if (!named_) {
    named_ = word == "kernel" && at.word(kernel_.name) && at.end();
    return named_ || at.fail("expected 'kernel NAME'");
  }
  if (word == "nest") {
    section_ = Section::Nest;
    return nest(at);
  }
  section_ = word == "scalars"   ? Section::Scalars
             : word == "buffers" ? Section::Buffers
                                 : Section::None;
  if (word == "sizes") return sizes(at);
  return section_ != Section::None ? at.end() : at.fail(fmt::format("unknown section '{}'", word));
}

bool Parser::row(Cursor& at) {
  if (section_ == Section::Scalars) return scalarRow(at);
  if (section_ == Section::Buffers) return bufferRow(at);
  return at.fail("a row before any section");
}

bool Parser::loop(Cursor& at, Statement& s) {
  s.kind = StatementKind::Loop;
  if (!loopId(at, s.loop) || !affine(at, s.extent)) return false;
  while (!at.atEnd()) {
    std::string word;
    if (!at.word(word) || (word != "limit" && !at.fail("expected 'limit'"))) return false;
    if (!affine(at, s.limits.emplace_back())) return false;
  }
  return true;
}

bool Parser::constant(Cursor& at, Statement& s) {
  return isReal(s.dtype) ? at.real(s.real) : at.number(s.integer);
}

bool Parser::memory(Cursor& at, Statement& s) {
  std::string name;
  if (!at.word(name)) return false;
  const auto buffer = positionOf(kernel_.buffers, name, [](const Buffer& row) { return row.name; });
  if (!buffer) return at.fail(fmt::format("unknown buffer '{}'", name));
  s.buffer = BufferId(*buffer);
  return affine(at, s.index);
}

bool Parser::operands(Cursor& at, Statement& s) {
  while (at.peek() == '%') {
    if (!valueId(at, s.operands.emplace_back())) return false;
  }
  return true;
}

bool Parser::reduction(Cursor& at, Statement& s) {
  std::string word;
  if (!kind(at, s.reduction, "reduction") || !operands(at, s)) return false;
  if (!at.word(word) || word != "over") return at.fail("expected 'over'");
  return loopId(at, s.loop);
}

// "if %3" of loads and stores, "wrap" of checks.
bool Parser::options(Cursor& at, Statement& s) {
  while (!at.atEnd()) {
    std::string word;
    if (!at.word(word)) return false;
    if (word == "if") {
      if (!valueId(at, s.mask)) return false;
    } else if (word == "wrap") {
      s.wrap = true;
    } else {
      return at.fail(fmt::format("unexpected '{}'", word));
    }
  }
  return true;
}

bool Parser::payload(Cursor& at, Statement& s) {
  switch (s.kind) {
    case StatementKind::Constant:
      return constant(at, s) && at.end();
    case StatementKind::Scalar: {
      std::string name;
      if (!at.word(name)) return false;
      const auto scalar =
          positionOf(kernel_.scalars, name, [](const Scalar& row) { return row.name; });
      if (!scalar) return at.fail(fmt::format("unknown scalar '{}'", name));
      s.scalar = ScalarId(*scalar);
      return at.end();
    }
    case StatementKind::Index:
      return affine(at, s.index) && at.end();
    case StatementKind::Check:
      return operands(at, s) && affine(at, s.index) && options(at, s);
    case StatementKind::Load:
    case StatementKind::Store:
      return memory(at, s) && operands(at, s) && options(at, s);
    case StatementKind::Reduce:
    case StatementKind::Scan:
      return reduction(at, s) && at.end();
    case StatementKind::Op:
    case StatementKind::Loop:
      return operands(at, s) && at.end();
  }
  return at.end();
}

bool Parser::statement(Cursor& at, int depth) {
  if (static_cast<size_t>(depth) > blocks_.size()) return at.fail("indented too far");
  blocks_.resize(static_cast<size_t>(depth));
  Statement s;
  if (at.peek() == '%') {
    if (!valueId(at, s.result) || !at.expect(':') || !kind(at, s.dtype, "dtype") ||
        !at.expect('=')) {
      return false;
    }
  }
  std::string word;
  if (!at.word(word)) return false;
  bool good = true;
  if (const auto loopKind = kindNamed<LoopKind>(word)) {
    s.loopKind = *loopKind;
    good = loop(at, s);
  } else if (const auto statementKind = kindNamed<StatementKind>(word)) {
    s.kind = *statementKind;
    good = payload(at, s);
  } else if (const auto op = kindNamed<Op>(word)) {
    s.op = *op;
    good = payload(at, s);
  } else {
    return at.fail(fmt::format("unknown statement '{}'", word));
  }
  if (!good) return false;
  const bool opens = s.kind == StatementKind::Loop;
  blocks_.back()->push_back(std::move(s));
  if (opens) blocks_.push_back(&blocks_.back()->back().body);
  return true;
}

bool Parser::line(Cursor& at, int depth) {
  if (depth > 0 && section_ == Section::Nest) return statement(at, depth);
  if (depth > 0) return row(at);
  std::string word;
  return at.word(word) && top(at, word);
}

Parsed Parser::run(std::string_view text) {
  int number = 0;
  while (!text.empty()) {
    const size_t stop = std::min(text.find('\n'), text.size());
    const std::string_view current = text.substr(0, stop);
    text.remove_prefix(std::min(stop + 1, text.size()));
    Cursor at(current, ++number);
    if (at.atEnd() || at.peek() == ';') continue;
    const size_t spaces = current.find_first_not_of(' ');
    if (spaces % 2 != 0) at.fail("an odd number of spaces in front");
    if (at.error() || !line(at, static_cast<int>(spaces / 2))) {
      return {std::move(kernel_), at.error()};
    }
  }
  if (!named_) return {std::move(kernel_), ParseError{number + 1, 1, "expected 'kernel NAME'"}};
  return {std::move(kernel_), std::nullopt};
}

}  // namespace

Parsed parse(std::string_view text) { return Parser().run(text); }

}  // namespace glowplug::lower
