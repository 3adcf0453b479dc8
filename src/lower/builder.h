#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lower/affine.h"
#include "lower/loop_ir.h"

namespace glowplug::lower {

// A value of the kernel under construction.
struct Value {
  ValueId id;
  DType dtype = DType::F32;

  bool valid() const { return id.valid(); }
};

// Makes kernels. Sizes, buffers and scalars may be added at any time; statements go into the
// innermost open loop of the open nest.
//
//   Builder b("softmax");
//   const Affine n = b.size("n"), m = b.size("m");
//   const BufferId x = b.buffer("x", DType::F32, Role::In), y = ...;
//   const Affine row = b.nest({n})[0];
//   Value top, total;
//   b.vector(m, [&](const Affine& j) { top = b.reduce(Reduction::Max, b.load(x, row * m + j), j);
//   }); b.vector(m, [&](const Affine& j) { ... b.store(y, row * m + j, e); }); const Kernel kernel
//   = b.take();
//
// Wrong use is a bug of the caller: take() verifies and throws InternalError with all messages.
class Builder {
 public:
  explicit Builder(std::string name);

  Affine size(std::string name);
  ScalarId scalar(std::string name, DType dtype = DType::F64);
  BufferId buffer(std::string name, DType dtype, Role role);
  BufferId local(std::string name, DType dtype, Affine length);

  // Begins the next nest and returns its loop variables. `vector`: the last one runs in lanes.
  std::vector<Affine> nest(const std::vector<Affine>& extents, bool vector = false);

  // Opens a loop, to be closed again; returns its variable. It runs while below the extent and all
  // limits.
  Affine open(LoopKind kind, Affine extent, std::vector<Affine> limits = {});
  void close();
  template <class Body>
  void loop(LoopKind kind, Affine extent, const Body& body, std::vector<Affine> limits = {}) {
    body(open(kind, std::move(extent), std::move(limits)));
    close();
  }
  template <class Body>
  void vector(Affine extent, const Body& body, std::vector<Affine> limits = {}) {
    loop(LoopKind::Vector, std::move(extent), body, std::move(limits));
  }
  template <class Body>
  void serial(Affine extent, const Body& body, std::vector<Affine> limits = {}) {
    loop(LoopKind::Serial, std::move(extent), body, std::move(limits));
  }

  Value op(Op op, Value a);
  Value op(Op op, Value a, Value b);
  Value op(Op op, Value a, Value b, Value c);
  Value add(Value a, Value b) { return op(Op::Add, a, b); }
  Value sub(Value a, Value b) { return op(Op::Sub, a, b); }
  Value mul(Value a, Value b) { return op(Op::Mul, a, b); }
  Value div(Value a, Value b) { return op(Op::Div, a, b); }
  Value select(Value condition, Value a, Value b) { return op(Op::Select, condition, a, b); }
  // The same value if it has that dtype already.
  Value cast(DType dtype, Value a);
  // Rounds to a 16-bit dtype and back to f32, as a store of it would: eager's rounding between
  // operators. Other dtypes change nothing.
  Value rounded(DType dtype, Value a);

  Value real(DType dtype, double number);
  Value integer(DType dtype, int64_t number);
  Value scalarValue(ScalarId scalar);
  Value index(Affine a);  // as i64
  // An index known to lie in [0, extent), for valueIndex() (lower/affine.h).
  Value check(Value index, Affine extent, bool wrap = false);

  Value load(BufferId buffer, Affine index, Value mask = {});
  void store(BufferId buffer, Affine index, Value value, Value mask = {});

  // `over`: a variable that open() or loop() gave. Results are known after that loop.
  Value reduce(Reduction reduction, Value value, const Affine& over);
  Value argReduce(Reduction reduction, Value value, Value index, const Affine& over);
  Value scan(Reduction reduction, Value value, const Affine& over);

  DType dtypeOf(BufferId buffer) const { return kernel_.buffers[buffer.index()].dtype; }

  Kernel take();

 private:
  Statement& add(Statement statement);
  Value addValue(Statement statement);
  std::vector<Statement>& block();

  Kernel kernel_;
  std::vector<size_t> path_;  // positions of the open loops, each in its block
  size_t loops_ = 0;
  size_t values_ = 0;
};

}  // namespace glowplug::lower
