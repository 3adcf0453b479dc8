#include "lower/printer.h"

#include <fmt/format.h>

#include "lower/tables.h"

namespace glowplug::lower {
namespace {

template <class Tag>
std::string numbered(char sigil, common::Id<Tag> id) {
  return id.valid() ? fmt::format("{}{}", sigil, id.value) : "-";
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string run();
  std::string affine(const Affine& a) const;
  std::string line(const Statement& s) const;

 private:
  void header();
  void block(const std::vector<Statement>& body, int depth);
  void add(int depth, const std::string& text) {
    out_.append(static_cast<size_t>(depth) * 2, ' ').append(text).append("\n");
  }

  std::string product(const Term& term) const;
  std::string payload(const Statement& s) const;
  std::string nestLine(const Nest& nest) const;
  std::string loopLine(const Statement& s) const;

  std::string name(SizeId id) const {
    return id.index() < kernel_.sizes.size() ? kernel_.sizes[id.index()] : "-";
  }
  std::string name(BufferId id) const {
    return id.index() < kernel_.buffers.size() ? kernel_.buffers[id.index()].name : "-";
  }
  std::string name(ScalarId id) const {
    return id.index() < kernel_.scalars.size() ? kernel_.scalars[id.index()].name : "-";
  }

  const Kernel& kernel_;
  std::string out_;
};

// A term without its sign.
std::string Printer::product(const Term& term) const {
  std::vector<std::string> factors;
  if (term.loop.valid()) factors.push_back(numbered('i', term.loop));
  if (term.value.valid()) factors.push_back(numbered('%', term.value));
  for (const SizeId size : term.sizes) factors.push_back(name(size));
  // The lowest int64 has no positive twin.
  const uint64_t size = term.factor < 0 ? 0 - static_cast<uint64_t>(term.factor) : term.factor;
  if (size != 1 || factors.empty()) factors.push_back(fmt::format("{}", size));
  return fmt::format("{}", fmt::join(factors, "*"));
}

std::string Printer::affine(const Affine& a) const {
  std::string out;
  const auto add = [&](bool negative, const std::string& text) {
    if (out.empty()) {
      out = (negative ? "-" : "") + text;
    } else {
      out += (negative ? " - " : " + ") + text;
    }
  };
  for (const Term& term : a.terms) add(term.factor < 0, product(term));
  if (a.constant != 0 || out.empty()) {
    add(a.constant < 0, product(Term{a.constant, {}, {}, {}}));
  }
  return out;
}

// What follows the statement's name.
std::string Printer::payload(const Statement& s) const {
  std::string out;
  const auto add = [&](const std::string& text) { out += " " + text; };
  const bool memory = s.kind == StatementKind::Load || s.kind == StatementKind::Store;
  if (s.kind == StatementKind::Constant) {
    add(isReal(s.dtype) ? fmt::format("{}", s.real) : fmt::format("{}", s.integer));
  }
  if (s.kind == StatementKind::Scalar) add(name(s.scalar));
  if (s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan) {
    add(std::string(info(s.reduction).name));
  }
  if (memory) add(name(s.buffer));
  if (memory || s.kind == StatementKind::Index) add("[" + affine(s.index) + "]");
  for (const ValueId operand : s.operands) add(numbered('%', operand));
  if (s.kind == StatementKind::Check) {
    add("[" + affine(s.index) + "]");
    if (s.wrap) add("wrap");
  }
  if (s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan) {
    add("over " + numbered('i', s.loop));
  }
  if (s.mask.valid()) add("if " + numbered('%', s.mask));
  return out;
}

std::string Printer::loopLine(const Statement& s) const {
  std::string out =
      fmt::format("{} {} [{}]", info(s.loopKind).name, numbered('i', s.loop), affine(s.extent));
  for (const Affine& limit : s.limits) out += fmt::format(" limit [{}]", affine(limit));
  return out;
}

std::string Printer::line(const Statement& s) const {
  if (s.kind == StatementKind::Loop) return loopLine(s);
  std::string out;
  if (s.result.valid()) out = fmt::format("{}: {} = ", numbered('%', s.result), nameOf(s.dtype));
  out += s.kind == StatementKind::Op ? nameOf(s.op) : info(s.kind).name;
  return out + payload(s);
}

std::string Printer::nestLine(const Nest& nest) const {
  std::string out = "nest";
  for (const ParallelLoop& loop : nest.loops) {
    out += fmt::format(" {} [{}]", numbered('i', loop.loop), affine(loop.extent));
  }
  return nest.vector ? out + " vector" : out;
}

void Printer::block(const std::vector<Statement>& body, int depth) {
  for (const Statement& s : body) {
    add(depth, line(s));
    block(s.body, depth + 1);
  }
}

void Printer::header() {
  add(0, "kernel " + kernel_.name);
  if (!kernel_.sizes.empty()) add(0, fmt::format("sizes {}", fmt::join(kernel_.sizes, " ")));
  if (!kernel_.scalars.empty()) add(0, "scalars");
  for (const Scalar& scalar : kernel_.scalars) {
    add(1, fmt::format("{} {}", scalar.name, nameOf(scalar.dtype)));
  }
  if (!kernel_.buffers.empty()) add(0, "buffers");
  for (const Buffer& buffer : kernel_.buffers) {
    std::string row =
        fmt::format("{} {} {}", buffer.name, nameOf(buffer.dtype), info(buffer.role).name);
    if (buffer.role == Role::Local) row += " [" + affine(buffer.length) + "]";
    add(1, row);
  }
}

std::string Printer::run() {
  header();
  for (const Nest& nest : kernel_.nests) {
    add(0, nestLine(nest));
    block(nest.body, 1);
  }
  return std::move(out_);
}

}  // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).run(); }

std::string print(const Kernel& kernel, const Affine& affine) {
  return Printer(kernel).affine(affine);
}

std::string print(const Kernel& kernel, const Statement& statement) {
  return Printer(kernel).line(statement);
}

}  // namespace glowplug::lower
