#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"

// Loop IR: what fusion makes of a group of tensor operators, and what code is generated from.
//
// A kernel is a list of nests that run one after the other. A nest has parallel loops in front,
// whose iterations ("items") are independent and are shared out among threads, and a body that runs
// for each item: statements over scalars in SSA form, and further loops, serial or in vector lanes,
// to any depth. Results of reductions are ordinary values after the loop they reduce over, so one
// nest holds all of a softmax or a layer norm:
//
//   kernel softmax
//   sizes n m
//   buffers
//     x f32 in
//     y f32 out
//   nest i0 [n]
//     vector i1 [m]
//       %0: f32 = load x [i0*m + i1]
//       %1: f32 = reduce max %0 over i1
//     vector i2 [m]
//       %2: f32 = load x [i0*m + i2]
//       %3: f32 = sub %2 %1
//       %4: f32 = exp %3
//       %5: f32 = reduce sum %4 over i2
//       store y [i0*m + i2] %4
//     vector i3 [m]
//       ...
//
// Why scalars in lanes and not tiles: one body serves every vector width, the interpreter reads it
// as plain loops, and tails are the code generator's business alone. Why one tree and not separate
// loops with temporaries: a row stays in the first-level cache between its passes.
//
// What a kernel may rely on, and must keep to:
// - Buffers do not overlap. An operation in place uses one InOut buffer.
// - Iterations of vector loops and items are independent: none reads what another one writes.
// - Memory is addressed only by affine expressions (in elements, not bytes) and checked indices.
// - Rounding is in the text: f32 arithmetic rounds to f32 at each operation, a bf16 intermediate is
//   a cast to bf16 and back. Only the order within a Reduce is free, and whether a product is
//   rounded before a sum takes it; both are fixed by the text and the target, never by the number
//   of threads.
namespace glowplug::lower {

using SizeId = common::Id<struct LoopSizeTag>;      // i64 argument: an extent or a stride
using BufferId = common::Id<struct LoopBufferTag>;  // pointer argument, or local memory
using ScalarId = common::Id<struct LoopScalarTag>;  // f64 or i64 argument
using LoopId = common::Id<struct LoopTag>;          // loops count up through the whole kernel
using ValueId = common::Id<struct LoopValueTag>;    // so do values

enum class DType : uint8_t {
#define DTYPE(enumerator, text, bytes, kind) enumerator,
#include "lower/dtypes.def"
#undef DTYPE
};

enum class Op : uint8_t {
#define OP(enumerator, text, operands, dtypes, result, flops, meaning) enumerator,
#include "lower/ops.def"
#undef OP
};

enum class StatementKind : uint8_t {
#define STATEMENT(enumerator, text, least, most, value, meaning) enumerator,
#include "lower/statements.def"
#undef STATEMENT
};

enum class Reduction : uint8_t {
#define REDUCTION(enumerator, text, operands, dtypes, scan, flops, meaning) enumerator,
#include "lower/reductions.def"
#undef REDUCTION
};

enum class LoopKind : uint8_t {
#define LOOP(enumerator, text, meaning) enumerator,
#include "lower/loop_kinds.def"
#undef LOOP
};

enum class Role : uint8_t {
#define ROLE(enumerator, text, meaning) enumerator,
#include "lower/roles.def"
#undef ROLE
};

// factor * sizes... * (loop variable | value | 1)
struct Term {
  int64_t factor = 1;
  std::vector<SizeId> sizes;  // sorted
  LoopId loop;
  ValueId value;  // an i64 value: an indirect index

  bool operator==(const Term&) const = default;
};

// constant + terms. The builder's operators (lower/affine.h) keep like terms together.
struct Affine {
  int64_t constant = 0;
  std::vector<Term> terms;

  bool operator==(const Affine&) const = default;
};

struct Statement {
  StatementKind kind = StatementKind::Op;
  ValueId result;                        // of kinds that make a value
  DType dtype = DType::F32;              // of the result
  Op op = Op::Add;                       // Op
  Reduction reduction = Reduction::Sum;  // Reduce, Scan
  std::vector<ValueId> operands;         // Op, Check, Store, Reduce, Scan
  double real = 0;                       // Constant of a float dtype
  int64_t integer = 0;                   // Constant of the others
  ScalarId scalar;                       // Scalar
  BufferId buffer;                       // Load, Store
  Affine index;                          // Index, Load, Store; Check: the extent
  bool wrap = false;                     // Check
  ValueId mask;                          // Load, Store: bool, may be absent
  LoopId loop;                           // Loop: its own; Reduce, Scan: the loop gone over
  LoopKind loopKind = LoopKind::Serial;  // Loop
  Affine extent;                         // Loop: over sizes alone
  std::vector<Affine> limits;            // Loop: further bounds, over sizes and outer loops
  std::vector<Statement> body;           // Loop

  bool operator==(const Statement&) const = default;
};

struct ParallelLoop {
  LoopId loop;
  Affine extent;  // over sizes alone

  bool operator==(const ParallelLoop&) const = default;
};

// Its items are the iterations of its parallel loops, the last one fastest; no loops make one item.
struct Nest {
  std::vector<ParallelLoop> loops;
  bool vector = false;  // the last parallel loop runs in lanes
  std::vector<Statement> body;

  bool operator==(const Nest&) const = default;
};

struct Buffer {
  std::string name;
  DType dtype = DType::F32;
  Role role = Role::In;
  Affine length;  // Local: elements, over sizes alone

  bool operator==(const Buffer&) const = default;
};

struct Scalar {
  std::string name;
  DType dtype = DType::F64;  // or I64

  bool operator==(const Scalar&) const = default;
};

struct Kernel {
  std::string name;
  std::vector<std::string> sizes;
  std::vector<Scalar> scalars;
  std::vector<Buffer> buffers;
  std::vector<Nest> nests;

  bool operator==(const Kernel&) const = default;
};

}  // namespace glowplug::lower
