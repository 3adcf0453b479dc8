#include "lower/builder.h"

#include <fmt/format.h>

#include "common/check.h"
#include "lower/printer.h"
#include "lower/tables.h"
#include "lower/verifier.h"

namespace glowplug::lower {

Builder::Builder(std::string name) { kernel_.name = std::move(name); }

Affine Builder::size(std::string name) {
  kernel_.sizes.push_back(std::move(name));
  return sizeIndex(SizeId(kernel_.sizes.size() - 1));
}

ScalarId Builder::scalar(std::string name, DType dtype) {
  kernel_.scalars.push_back({std::move(name), dtype});
  return ScalarId(kernel_.scalars.size() - 1);
}

BufferId Builder::buffer(std::string name, DType dtype, Role role) {
  kernel_.buffers.push_back({std::move(name), dtype, role, {}});
  return BufferId(kernel_.buffers.size() - 1);
}

BufferId Builder::local(std::string name, DType dtype, Affine length) {
  kernel_.buffers.push_back({std::move(name), dtype, Role::Local, std::move(length)});
  return BufferId(kernel_.buffers.size() - 1);
}

std::vector<Affine> Builder::nest(const std::vector<Affine>& extents, bool vector) {
  GP_CHECK(path_.empty(), "a loop is still open");
  Nest& nest = kernel_.nests.emplace_back();
  nest.vector = vector;
  std::vector<Affine> variables;
  for (const Affine& extent : extents) {
    const LoopId loop(loops_++);
    nest.loops.push_back({loop, extent});
    variables.push_back(loopIndex(loop));
  }
  return variables;
}

std::vector<Statement>& Builder::block() {
  GP_CHECK(!kernel_.nests.empty(), "no nest is open");
  std::vector<Statement>* block = &kernel_.nests.back().body;
  for (const size_t place : path_) block = &(*block)[place].body;
  return *block;
}

Affine Builder::open(LoopKind kind, Affine extent, std::vector<Affine> limits) {
  Statement s;
  s.kind = StatementKind::Loop;
  s.loop = LoopId(loops_++);
  s.loopKind = kind;
  s.extent = std::move(extent);
  s.limits = std::move(limits);
  const LoopId loop = s.loop;
  add(std::move(s));
  std::vector<Statement>& around = block();
  path_.push_back(around.size() - 1);
  return loopIndex(loop);
}

void Builder::close() {
  GP_CHECK(!path_.empty(), "no loop is open");
  path_.pop_back();
}

Statement& Builder::add(Statement statement) { return block().emplace_back(std::move(statement)); }

Value Builder::addValue(Statement statement) {
  statement.result = ValueId(values_++);
  const Statement& added = add(std::move(statement));
  return {added.result, added.dtype};
}

Value Builder::op(Op op, Value a) {
  Statement s;
  s.op = op;
  s.operands = {a.id};
  s.dtype = resultOf(op, a.dtype);
  return addValue(std::move(s));
}

Value Builder::op(Op op, Value a, Value b) {
  Statement s;
  s.op = op;
  s.operands = {a.id, b.id};
  s.dtype = resultOf(op, b.dtype);
  return addValue(std::move(s));
}

Value Builder::op(Op op, Value a, Value b, Value c) {
  Statement s;
  s.op = op;
  s.operands = {a.id, b.id, c.id};
  s.dtype = resultOf(op, c.dtype);
  return addValue(std::move(s));
}

Value Builder::cast(DType dtype, Value a) {
  if (a.dtype == dtype) return a;
  Statement s;
  s.op = Op::Cast;
  s.operands = {a.id};
  s.dtype = dtype;
  return addValue(std::move(s));
}

Value Builder::rounded(DType dtype, Value a) {
  return isHalf(dtype) ? cast(a.dtype, cast(dtype, a)) : a;
}

Value Builder::real(DType dtype, double number) {
  Statement s;
  s.kind = StatementKind::Constant;
  s.dtype = dtype;
  s.real = number;
  return addValue(std::move(s));
}

Value Builder::integer(DType dtype, int64_t number) {
  Statement s;
  s.kind = StatementKind::Constant;
  s.dtype = dtype;
  s.integer = number;
  return addValue(std::move(s));
}

Value Builder::scalarValue(ScalarId scalar) {
  Statement s;
  s.kind = StatementKind::Scalar;
  s.scalar = scalar;
  s.dtype = kernel_.scalars[scalar.index()].dtype;
  return addValue(std::move(s));
}

Value Builder::index(Affine a) {
  Statement s;
  s.kind = StatementKind::Index;
  s.dtype = DType::I64;
  s.index = std::move(a);
  return addValue(std::move(s));
}

Value Builder::check(Value index, Affine extent, bool wrap) {
  Statement s;
  s.kind = StatementKind::Check;
  s.dtype = DType::I64;
  s.operands = {index.id};
  s.index = std::move(extent);
  s.wrap = wrap;
  return addValue(std::move(s));
}

Value Builder::load(BufferId buffer, Affine index, Value mask) {
  Statement s;
  s.kind = StatementKind::Load;
  s.dtype = dtypeOf(buffer);
  s.buffer = buffer;
  s.index = std::move(index);
  s.mask = mask.id;
  return addValue(std::move(s));
}

void Builder::store(BufferId buffer, Affine index, Value value, Value mask) {
  Statement s;
  s.kind = StatementKind::Store;
  s.operands = {value.id};
  s.buffer = buffer;
  s.index = std::move(index);
  s.mask = mask.id;
  add(std::move(s));
}

namespace {

Statement reduction(StatementKind kind, Reduction reduction, Value value, const Affine& over) {
  GP_CHECK(over.terms.size() == 1 && over.terms[0].loop.valid(), "not a loop variable");
  Statement s;
  s.kind = kind;
  s.reduction = reduction;
  s.operands = {value.id};
  s.dtype = resultOf(reduction, value.dtype);
  s.loop = over.terms[0].loop;
  return s;
}

}  // namespace

Value Builder::reduce(Reduction kind, Value value, const Affine& over) {
  return addValue(reduction(StatementKind::Reduce, kind, value, over));
}

Value Builder::argReduce(Reduction kind, Value value, Value index, const Affine& over) {
  Statement s = reduction(StatementKind::Reduce, kind, value, over);
  s.operands.push_back(index.id);
  return addValue(std::move(s));
}

Value Builder::scan(Reduction kind, Value value, const Affine& over) {
  return addValue(reduction(StatementKind::Scan, kind, value, over));
}

Kernel Builder::take() {
  GP_CHECK(path_.empty(), "a loop is still open");
  const std::vector<std::string> messages = verify(kernel_);
  GP_CHECK(messages.empty(), fmt::format("{}\n{}", fmt::join(messages, "\n"), print(kernel_)));
  return std::move(kernel_);
}

}  // namespace glowplug::lower
