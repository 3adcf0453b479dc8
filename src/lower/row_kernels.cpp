#include "lower/row_kernels.h"

#include "lower/builder.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

// What all row kernels begin with.
struct Rows {
  Rows(const char* name, DType dtype)
      : b(name),
        dtype(dtype),
        compute(isHalf(dtype) ? DType::F32 : dtype),
        n(b.size("n")),
        m(b.size("m")),
        x(b.buffer("x", dtype, Role::In)),
        row(b.nest({n})[0]) {}

  Value load(const Affine& j) { return b.cast(compute, b.load(x, row * m + j)); }
  Value count() { return b.cast(compute, b.index(m)); }
  Value scalar(const char* name) { return b.cast(compute, b.scalarValue(b.scalar(name))); }
  void store(BufferId buffer, const Affine& place, Value value) {
    b.store(buffer, place, b.cast(dtype, value));
  }

  Builder b;
  DType dtype, compute;
  Affine n, m;
  BufferId x;
  Affine row;
};

}  // namespace

Kernel rowReduction(RowReduction reduction, DType dtype) {
  static constexpr const char* kNames[] = {"sum", "mean", "amax", "amin", "var"};
  Rows r(kNames[static_cast<size_t>(reduction)], dtype);
  const BufferId y = r.b.buffer("y", dtype, Role::Out);
  Reduction kind = Reduction::Sum;
  if (reduction == RowReduction::Amax) kind = Reduction::Max;
  if (reduction == RowReduction::Amin) kind = Reduction::Min;
  if (reduction == RowReduction::Var) kind = Reduction::WelfordM2;
  Value out;
  r.b.vector(r.m, [&](const Affine& j) { out = r.b.reduce(kind, r.load(j), j); });
  if (reduction == RowReduction::Mean) out = r.b.div(out, r.count());
  if (reduction == RowReduction::Var) {
    // Not below 0, as eager has it: the variance of one element is 0 / 0.
    const Value zero = r.b.real(r.compute, 0);
    const Value freedom = r.b.sub(r.count(), r.scalar("correction"));
    out = r.b.div(out, r.b.op(Op::Maximum, freedom, zero));
  }
  r.store(y, r.row, out);
  return r.b.take();
}

Kernel rowSoftmax(DType dtype, bool logarithm) {
  Rows r(logarithm ? "log_softmax" : "softmax", dtype);
  const BufferId y = r.b.buffer("y", dtype, Role::Out);
  const BufferId kept = r.b.local("kept", r.compute, r.m);
  Value top, total;
  r.b.vector(r.m, [&](const Affine& j) { top = r.b.reduce(Reduction::Max, r.load(j), j); });
  r.b.vector(r.m, [&](const Affine& j) {
    const Value shifted = r.b.sub(r.load(j), top);
    const Value power = r.b.op(Op::Exp, shifted);
    r.b.store(kept, j, logarithm ? shifted : power);
    total = r.b.reduce(Reduction::Sum, power, j);
  });
  // Eager keeps the sum and its logarithm in the tensor's dtype.
  if (logarithm) total = r.b.rounded(dtype, r.b.op(Op::Log, r.b.rounded(dtype, total)));
  r.b.vector(r.m, [&](const Affine& j) {
    const Value value = r.b.load(kept, j);
    r.store(y, r.row * r.m + j, logarithm ? r.b.sub(value, total) : r.b.div(value, total));
  });
  return r.b.take();
}

Kernel rowLayerNorm(DType dtype, bool weight, bool bias) {
  Rows r("layer_norm", dtype);
  const BufferId w = weight ? r.b.buffer("weight", dtype, Role::In) : BufferId();
  const BufferId c = bias ? r.b.buffer("bias", dtype, Role::In) : BufferId();
  const BufferId y = r.b.buffer("y", dtype, Role::Out);
  Value mean, m2;
  r.b.vector(r.m, [&](const Affine& j) {
    const Value x = r.load(j);
    mean = r.b.reduce(Reduction::WelfordMean, x, j);
    m2 = r.b.reduce(Reduction::WelfordM2, x, j);
  });
  const Value variance = r.b.div(m2, r.count());
  const Value scale = r.b.op(Op::Rsqrt, r.b.add(variance, r.scalar("eps")));
  r.b.vector(r.m, [&](const Affine& j) {
    Value out = r.b.mul(r.b.sub(r.load(j), mean), scale);
    if (weight) out = r.b.mul(out, r.b.cast(r.compute, r.b.load(w, j)));
    if (bias) out = r.b.add(out, r.b.cast(r.compute, r.b.load(c, j)));
    r.store(y, r.row * r.m + j, out);
  });
  return r.b.take();
}

}  // namespace glowplug::lower
