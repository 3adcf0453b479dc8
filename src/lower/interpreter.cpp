#include "lower/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "lower/affine.h"
#include "lower/evaluate.h"
#include "lower/lanes.h"
#include "lower/printer.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

// What a reduction or scan has seen since its loop began.
struct State {
  Number value{};  // or the mean
  double m2 = 0;
  int64_t count = 0;
  int64_t index = 0;  // of the largest or smallest so far
};

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, const KernelArguments& arguments,
              const std::vector<int64_t>& lengths);

  void run() {
    for (const Nest& nest : kernel_.nests) items(nest, 0);
  }

 private:
  void items(const Nest& nest, size_t depth);
  void block(const std::vector<Statement>& body);
  void loop(const Statement& s);
  void begin(const std::vector<Statement>& body, LoopId loop);
  void end(const std::vector<Statement>& body, LoopId loop);
  void statement(const Statement& s);
  void check(const Statement& s);
  void memory(const Statement& s);
  void operation(const Statement& s);
  void accumulate(const Statement& s);
  void chooseIndex(const Statement& s, State& state);
  // The dtype in which a reduction is kept: f32 sums are kept in f64.
  DType kept(const Statement& s) const;

  int64_t affine(const Affine& a) const;
  Number& value(ValueId id) { return values_[id.index()]; }

  const Kernel& kernel_;
  const KernelArguments& arguments_;
  const std::vector<int64_t>& lengths_;
  std::vector<std::vector<char>> locals_;  // parallel to the buffers
  std::vector<int64_t> loops_;
  std::vector<Number> values_;
  std::vector<DType> dtypes_;
  std::vector<State> states_;  // parallel to the values
};

Interpreter::Interpreter(const Kernel& kernel, const KernelArguments& arguments,
                         const std::vector<int64_t>& lengths)
    : kernel_(kernel),
      arguments_(arguments),
      lengths_(lengths),
      loops_(loopCount(kernel)),
      values_(valueCount(kernel)),
      dtypes_(values_.size()),
      states_(values_.size()) {
  for (const Buffer& buffer : kernel.buffers) {
    const int64_t length =
        buffer.role == Role::Local ? evaluate(buffer.length, arguments.sizes) : 0;
    locals_.emplace_back(static_cast<size_t>(std::max<int64_t>(length, 0)) * bytesOf(buffer.dtype));
  }
}

int64_t Interpreter::affine(const Affine& a) const {
  int64_t sum = a.constant;
  for (const Term& term : a.terms) {
    int64_t product = term.factor;
    for (const SizeId size : term.sizes) product *= arguments_.sizes[size.index()];
    if (term.loop.valid()) product *= loops_[term.loop.index()];
    if (term.value.valid()) product *= values_[term.value.index()].integer;
    sum += product;
  }
  return sum;
}

void Interpreter::items(const Nest& nest, size_t depth) {
  if (depth == nest.loops.size()) return block(nest.body);
  const ParallelLoop& loop = nest.loops[depth];
  const int64_t extent = affine(loop.extent);
  for (int64_t i = 0; i < extent; ++i) {
    loops_[loop.loop.index()] = i;
    items(nest, depth + 1);
  }
}

void Interpreter::block(const std::vector<Statement>& body) {
  for (const Statement& s : body) {
    if (s.kind == StatementKind::Loop) {
      loop(s);
    } else {
      statement(s);
    }
  }
}

void Interpreter::loop(const Statement& s) {
  int64_t count = affine(s.extent);
  for (const Affine& limit : s.limits) count = std::min(count, affine(limit));
  begin(s.body, s.loop);
  for (int64_t i = 0; i < count; ++i) {
    loops_[s.loop.index()] = i;
    block(s.body);
  }
  end(s.body, s.loop);
}

void Interpreter::begin(const std::vector<Statement>& body, LoopId loop) {
  for (const Statement& s : body) {
    begin(s.body, loop);
    const bool reduces = s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan;
    if (reduces && s.loop == loop) {
      states_[s.result.index()] = State{identity(s.reduction, kept(s)), 0, 0, 0};
    }
  }
}

void Interpreter::end(const std::vector<Statement>& body, LoopId loop) {
  for (const Statement& s : body) {
    end(s.body, loop);
    if (s.kind != StatementKind::Reduce || s.loop != loop) continue;
    dtypes_[s.result.index()] = s.dtype;
    const State& state = states_[s.result.index()];
    Number result = state.value;
    if (s.reduction == Reduction::WelfordM2) result.real = state.m2;
    if (info(s.reduction).operands == 2) result.integer = state.index;
    value(s.result) = fit(s.dtype, result);
  }
}

DType Interpreter::kept(const Statement& s) const {
  const bool rounds =
      s.kind == StatementKind::Reduce &&
      (s.reduction == Reduction::Sum || s.reduction == Reduction::Prod ||
       s.reduction == Reduction::WelfordMean || s.reduction == Reduction::WelfordM2);
  return rounds && s.dtype == DType::F32 ? DType::F64 : s.dtype;
}

// The first NaN stays; else the first of the largest, or smallest, whatever the order of visits.
void Interpreter::chooseIndex(const Statement& s, State& state) {
  const DType dtype = dtypes_[s.operands[0].index()];
  const Number next = value(s.operands[0]);
  const int64_t index = value(s.operands[1]).integer;
  const bool most = s.reduction == Reduction::ArgMax;
  bool better;
  if (isReal(dtype)) {
    const double a = next.real, b = state.value.real;
    const bool tie = a == b || (std::isnan(a) && std::isnan(b));
    better =
        tie ? index < state.index : !std::isnan(b) && (std::isnan(a) || (most ? a > b : a < b));
  } else {
    const int64_t a = next.integer, b = state.value.integer;
    better = a == b ? index < state.index : most ? a > b : a < b;
  }
  if (state.count++ == 0 || better) {
    state.value = next;
    state.index = index;
  }
}

void Interpreter::accumulate(const Statement& s) {
  State& state = states_[s.result.index()];
  if (info(s.reduction).operands == 2) return chooseIndex(s, state);
  const Number next = value(s.operands[0]);
  if (s.reduction == Reduction::WelfordMean || s.reduction == Reduction::WelfordM2) {
    const double delta = next.real - state.value.real;
    state.value.real += delta / static_cast<double>(++state.count);
    state.m2 += delta * (next.real - state.value.real);
    return;
  }
  state.value = combine(s.reduction, kept(s), state.value, next);
  if (s.kind == StatementKind::Scan) value(s.result) = state.value;
}

void Interpreter::operation(const Statement& s) {
  const DType dtype = dtypes_[s.operands.back().index()];
  if (s.op == Op::Cast) {
    value(s.result) = convert(dtype, s.dtype, value(s.operands[0]));
    return;
  }
  Number operands[3] = {};
  for (size_t i = 0; i < s.operands.size(); ++i) operands[i] = value(s.operands[i]);
  value(s.result) = evaluate(s.op, dtype, operands, arguments_.error);
}

void Interpreter::check(const Statement& s) {
  const int64_t given = value(s.operands[0]).integer;
  const int64_t extent = affine(s.index);
  int64_t index = given;
  if (s.wrap && index < 0) index += extent;
  if (index < 0 || index >= extent) {
    *arguments_.error = KernelError{KernelError::IndexOutOfRange, given, extent};
    index = 0;
  }
  value(s.result).integer = index;
}

void Interpreter::memory(const Statement& s) {
  if (s.mask.valid() && value(s.mask).integer == 0) {
    if (s.kind == StatementKind::Load) value(s.result) = Number{};
    return;
  }
  const size_t number = s.buffer.index();
  const Buffer& buffer = kernel_.buffers[number];
  const bool local = buffer.role == Role::Local;
  const int64_t bytes = bytesOf(buffer.dtype);
  const int64_t length =
      local ? static_cast<int64_t>(locals_[number].size()) / bytes : lengths_[number];
  const int64_t index = affine(s.index);
  GP_CHECK(index >= 0 && index < length,
           fmt::format("{}: element {} of {}", print(kernel_, s), index, length));
  char* base = local ? locals_[number].data() : static_cast<char*>(arguments_.buffers[number]);
  if (s.kind == StatementKind::Load) {
    value(s.result) = readNumber(buffer.dtype, base + index * bytes);
  } else {
    writeNumber(buffer.dtype, base + index * bytes, value(s.operands[0]));
  }
}

void Interpreter::statement(const Statement& s) {
  if (s.result.valid()) dtypes_[s.result.index()] = s.dtype;
  switch (s.kind) {
    case StatementKind::Op:
      return operation(s);
    case StatementKind::Constant:
      value(s.result) =
          fit(s.dtype, isReal(s.dtype) ? Number{.real = s.real} : Number{.integer = s.integer});
      return;
    case StatementKind::Scalar:
      value(s.result) = arguments_.scalars[s.scalar.index()];
      return;
    case StatementKind::Index:
      value(s.result).integer = affine(s.index);
      return;
    case StatementKind::Check:
      return check(s);
    case StatementKind::Load:
    case StatementKind::Store:
      return memory(s);
    case StatementKind::Reduce:
    case StatementKind::Scan:
      return accumulate(s);
    case StatementKind::Loop:
      return;
  }
}

}  // namespace

void interpret(const Kernel& kernel, const KernelArguments& arguments,
               const std::vector<int64_t>& lengths) {
  Interpreter(kernel, arguments, lengths).run();
}

}  // namespace glowplug::lower
