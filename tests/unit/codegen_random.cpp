#include "codegen_random.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "lower/affine.h"
#include "lower/builder.h"
#include "lower/cost.h"
#include "lower/tables.h"

namespace glowplug::codegen::testing {
namespace {

using lower::Affine;
using lower::BufferId;
using lower::Builder;
using lower::DType;
using lower::LoopKind;
using lower::Op;
using lower::Reduction;
using lower::Role;
using lower::Value;

// A loop variable in scope.
struct Variable {
  Affine index;
  Affine extent;
  bool lanes = false;
  bool serial = false;
};

// What was reduced in a loop: known after it.
struct Pending {
  Value value;
  size_t loop;  // position in the variables
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), b_(fmt::format("random{}", seed)) {}

  RandomKernel run();

 private:
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  size_t below(size_t count) { return random_() % count; }
  template <class T>
  const T& oneOf(const std::vector<T>& list) {
    return list[below(list.size())];
  }
  DType anyDType();

  void nest();
  void body(int depth, bool inLanes);
  void loop(int depth, bool inLanes);
  void statement();
  void operation();
  void memory();
  void reduction();
  void leaf();

  Affine anyExtent();
  Affine layout(bool each);  // an index over the variables; `each`: a place for each iteration
  Value valueOf(DType dtype);
  Value anyOf(DType dtype);
  Value load(DType dtype);
  Value indirect(DType dtype);
  Value constant(DType dtype);
  Value finite(Value a);
  Value small(DType dtype);  // a float that is a whole number of at most 8 bits
  void keep(Value value) { values_.push_back(value); }
  void storeNew(Value value);
  BufferId newBuffer(DType dtype, Role role) {
    return b_.buffer(fmt::format("b{}", buffers_++), dtype, role);
  }
  bool hasLanes() const {
    return std::any_of(variables_.begin(), variables_.end(),
                       [](const Variable& v) { return v.lanes; });
  }

  std::mt19937_64 random_;
  Builder b_;
  size_t buffers_ = 0;
  std::vector<Affine> extents_;
  std::vector<int64_t> sizes_;
  std::vector<Variable> variables_;
  std::vector<Value> values_;
  std::vector<Pending> pending_;
};

DType Generator::anyDType() {
  static const std::vector<DType> kList = {DType::F32,  DType::F32, DType::F32, DType::F64,
                                           DType::BF16, DType::F16, DType::U8,  DType::I8,
                                           DType::I16,  DType::I32, DType::I64, DType::Bool};
  return oneOf(kList);
}

Affine Generator::anyExtent() {
  return chance(10) ? lower::constantIndex(static_cast<int64_t>(below(6))) : oneOf(extents_);
}

Affine Generator::layout(bool each) {
  std::vector<const Variable*> order;
  for (const Variable& variable : variables_) {
    if (each || chance(75)) order.push_back(&variable);
  }
  if (chance(25)) std::shuffle(order.begin(), order.end(), random_);
  Affine stride = lower::constantIndex(chance(85) ? 1 : 2);
  Affine out = lower::constantIndex(chance(80) ? 0 : 3);
  for (size_t i = order.size(); i-- > 0;) {
    out = out + order[i]->index * stride;
    if (order[i]->extent != lower::constantIndex(0)) stride = stride * order[i]->extent;
  }
  return out;
}

Value Generator::constant(DType dtype) {
  static const std::vector<double> kReals = {0, 1, -1, 0.5, 3, -0.1, 1e10, 7.25};
  static const std::vector<int64_t> kWholes = {0, 1, -1, 2, 5, 100, 255, -128, 100000};
  if (lower::isReal(dtype)) return b_.real(dtype, oneOf(kReals));
  return b_.integer(dtype, dtype == DType::Bool ? static_cast<int64_t>(below(2)) : oneOf(kWholes));
}

Value Generator::load(DType dtype) {
  const Value mask = chance(15) ? valueOf(DType::Bool) : Value{};
  return b_.load(newBuffer(dtype, Role::In), layout(false), mask);
}

// Through an index that is mostly in range; what is not is an error in both.
Value Generator::indirect(DType dtype) {
  const Affine extent = chance(50) ? lower::constantIndex(7) : oneOf(extents_) + 1;
  Value index = valueOf(DType::I64);
  if (!chance(2)) index = b_.op(Op::Remainder, index, b_.index(extent));
  const Value checked = b_.check(index, extent, chance(50));
  Affine place = lower::valueIndex(checked.id) * lower::constantIndex(chance(50) ? 1 : 3);
  if (chance(40)) place = place * oneOf(extents_) + layout(false);
  return b_.load(newBuffer(dtype, Role::In), place);
}

Value Generator::anyOf(DType dtype) {
  const size_t kind = below(12);
  if (kind == 0) return constant(dtype);
  if (kind == 1)
    return b_.cast(dtype, b_.scalarValue(b_.scalar(fmt::format("s{}", buffers_++),
                                                   chance(50) ? DType::F64 : DType::I64)));
  if (kind == 2 && !variables_.empty()) return b_.cast(dtype, b_.index(layout(false)));
  if (kind == 3) return indirect(dtype);
  if (kind < 8 && !values_.empty()) return b_.cast(dtype, oneOf(values_));
  return load(dtype);
}

Value Generator::valueOf(DType dtype) {
  std::vector<Value> fitting;
  for (const Value& value : values_) {
    if (value.dtype == dtype) fitting.push_back(value);
  }
  if (!fitting.empty() && chance(70)) return oneOf(fitting);
  if (values_.size() > 60) return constant(dtype);
  const Value made = anyOf(dtype);
  keep(made);
  return made;
}

Value Generator::finite(Value a) {
  const Value bound = b_.real(a.dtype, 10);
  const Value inside = b_.op(Op::Lt, b_.op(Op::Abs, a), bound);
  return b_.select(inside, a, b_.real(a.dtype, 0.75));
}

Value Generator::small(DType dtype) { return b_.cast(dtype, valueOf(DType::I8)); }

bool isExact(Op op) {
  return op != Op::Pow && op != Op::Sigmoid && (op < Op::Exp || op > Op::Lgamma) && op != Op::Cast;
}

bool divides(Op op) {
  return op == Op::DivFloor || op == Op::DivTrunc || op == Op::Remainder || op == Op::Fmod;
}

void Generator::operation() {
  const auto op = static_cast<Op>(below(lower::kindCount<Op>()));
  const lower::OpInfo& row = lower::info(op);
  const DType dtype = anyDType();
  if (op == Op::Cast) return keep(b_.cast(dtype, valueOf(anyDType())));
  if (!isExact(op) && !(op == Op::Pow && lower::isInt(dtype))) return;
  if (!lower::takes(row.dtypes, dtype)) return;
  Value in[3];
  for (int i = 0; i < row.operands; ++i) {
    in[i] = valueOf(op == Op::Select && i == 0 ? DType::Bool : dtype);
  }
  if (divides(op) && lower::isInt(dtype) && !chance(2)) {
    const Value zero = b_.op(Op::Eq, in[1], b_.integer(dtype, 0));
    in[1] = b_.select(zero, b_.integer(dtype, 3), in[1]);
  } else if (divides(op) && lower::isFloat(dtype) && op != Op::DivTrunc) {
    // The quotient of SLEEF's fmod is bounded.
    in[0] = finite(in[0]);
    in[1] = b_.add(b_.op(Op::Abs, finite(in[1])), b_.real(dtype, 0.01));
  }
  // The sign of a NaN is open.
  if (op == Op::Copysign) in[1] = finite(in[1]);
  keep(row.operands == 1   ? b_.op(op, in[0])
       : row.operands == 2 ? b_.op(op, in[0], in[1])
                           : b_.op(op, in[0], in[1], in[2]));
}

void Generator::storeNew(Value value) {
  const Value mask = chance(15) ? valueOf(DType::Bool) : Value{};
  b_.store(newBuffer(value.dtype, Role::Out), layout(true), value, mask);
}

void Generator::memory() {
  const DType dtype = anyDType();
  const Value value = valueOf(dtype);
  if (!chance(30)) return storeNew(value);
  const BufferId buffer = newBuffer(dtype, Role::InOut);
  const Affine place = layout(true);
  keep(b_.load(buffer, place));
  b_.store(buffer, place, value);
  keep(b_.load(buffer, place));
}

// A transcendental function: only stored, as its last bits are the library's.
void Generator::leaf() {
  static const std::vector<Op> kOps = {Op::Exp,     Op::Log,   Op::Tanh,  Op::Erf,  Op::Sin,
                                       Op::Sigmoid, Op::Log1p, Op::Expm1, Op::Atan, Op::Exp2};
  const DType dtype = chance(80) ? DType::F32 : DType::F64;
  const Value in = finite(valueOf(dtype));
  const Value normal = b_.op(Op::Gt, b_.op(Op::Abs, in), b_.real(dtype, 1e-30));
  storeNew(b_.op(oneOf(kOps), b_.select(normal, in, b_.real(dtype, 0))));
}

void Generator::reduction() {
  std::vector<size_t> inner;  // loops that can be gone over: not the parallel ones
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].serial) inner.push_back(i);
  }
  if (inner.empty()) return;
  const size_t loop = oneOf(inner);
  const Affine& over = variables_[loop].index;
  const auto kind = static_cast<Reduction>(below(static_cast<size_t>(Reduction::WelfordMean)));
  const lower::ReductionInfo& row = lower::info(kind);
  const DType dtype = kind == Reduction::Any || kind == Reduction::All ? DType::Bool : anyDType();
  if (!lower::takes(row.dtypes, dtype)) return;
  if (row.operands == 2) {
    const Value index = b_.index(layout(true));
    pending_.push_back({b_.argReduce(kind, valueOf(dtype), index, over), loop});
    return;
  }
  Value in;
  if (!lower::isFloat(dtype)) {
    in = valueOf(dtype);
  } else if (kind == Reduction::Sum) {
    in = small(dtype);
  } else if (kind == Reduction::Prod) {
    in = b_.op(Op::Sign, valueOf(dtype));
  } else {
    in = b_.add(valueOf(dtype), b_.real(dtype, 0));  // never -0, which is equal to 0
  }
  const bool lanesBetween =
      std::any_of(variables_.begin() + static_cast<int64_t>(loop), variables_.end(),
                  [](const Variable& v) { return v.lanes; });
  if (row.scan && chance(30) && !lanesBetween) return keep(b_.scan(kind, in, over));
  pending_.push_back({b_.reduce(kind, in, over), loop});
}

void Generator::statement() {
  const size_t kind = below(20);
  if (kind < 11) return operation();
  if (kind < 14) return memory();
  if (kind < 18) return reduction();
  if (kind == 18) return leaf();
  keep(load(anyDType()));
}

void Generator::loop(int depth, bool inLanes) {
  const bool lanes = !inLanes && chance(60);
  const Affine extent = anyExtent();
  std::vector<Affine> limits;
  for (const Variable& variable : variables_) {
    if (!variable.lanes && chance(10)) limits.push_back(variable.index + 2);
  }
  const size_t known = values_.size();
  const size_t position = variables_.size();
  const Affine index = b_.open(lanes ? LoopKind::Vector : LoopKind::Serial, extent, limits);
  variables_.push_back({index, extent, lanes, true});
  body(depth + 1, inLanes || lanes);
  b_.close();
  variables_.pop_back();
  values_.resize(std::min(values_.size(), known));
  for (size_t i = 0; i < pending_.size();) {
    if (pending_[i].loop == position) {
      keep(pending_[i].value);
      pending_.erase(pending_.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
}

void Generator::body(int depth, bool inLanes) {
  const size_t count = 1 + below(7);
  for (size_t i = 0; i < count; ++i) {
    if (depth < 3 && chance(depth == 0 ? 35 : 20)) {
      loop(depth, inLanes);
    } else {
      statement();
    }
  }
  storeNew(valueOf(anyDType()));
}

void Generator::nest() {
  std::vector<Affine> extents;
  const size_t count = below(4);
  for (size_t i = 0; i < count; ++i) extents.push_back(anyExtent());
  const bool lanes = count > 0 && chance(50);
  const std::vector<Affine> indices = b_.nest(extents, lanes);
  for (size_t i = 0; i < count; ++i) {
    variables_.push_back({indices[i], extents[i], lanes && i + 1 == count, false});
  }
  body(0, lanes);
  variables_.clear();
  values_.clear();
}

double bytesOf(const RandomKernel& made) {
  double bytes = 0;
  for (const lower::Nest& nest : made.kernel.nests) {
    const lower::Cost cost = lower::costOf(made.kernel, nest, made.sizes.data());
    bytes += static_cast<double>(cost.items) * cost.bytesPerItem;
  }
  return bytes;
}

RandomKernel Generator::run() {
  static const std::vector<int64_t> kSizes = {0,  1,  1,  2,  3,  4,  5,  6,  8,
                                              15, 16, 17, 31, 32, 33, 65, 70, 129};
  const size_t sizes = 1 + below(3);
  for (size_t i = 0; i < sizes; ++i) {
    extents_.push_back(b_.size(fmt::format("n{}", i)));
    // One long size at most.
    sizes_.push_back(i == 0 ? oneOf(kSizes) : kSizes[below(8)]);
  }
  const size_t nests = 1 + below(2);
  for (size_t i = 0; i < nests; ++i) nest();
  RandomKernel out{b_.take(), sizes_};
  // The interpreter is slow.
  while (bytesOf(out) > 1e5) *std::max_element(out.sizes.begin(), out.sizes.end()) /= 2;
  return out;
}

}  // namespace

RandomKernel randomKernel(uint64_t seed) { return Generator(seed).run(); }

}  // namespace glowplug::codegen::testing
