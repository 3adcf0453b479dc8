#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lower/loop_ir.h"

// What the .def files say of each row, for code that treats rows alike.
namespace glowplug::lower {

enum class DTypeKind : uint8_t { Float, Half, Int, Bool };
enum class ResultRule : uint8_t { Same, Bool };

struct DTypeInfo {
  std::string_view name;
  int bytes;
  DTypeKind kind;
};

struct OpInfo {
  std::string_view name;
  int operands;
  std::string_view dtypes;  // letters explained in ops.def
  ResultRule result;
  int flops;
  std::string_view meaning;
};

struct StatementInfo {
  std::string_view name;
  int least, most;  // operands
  bool value;
  std::string_view meaning;
};

struct ReductionInfo {
  std::string_view name;
  int operands;
  std::string_view dtypes;
  bool scan;
  int flops;
  std::string_view meaning;
};

struct NameInfo {
  std::string_view name;
  std::string_view meaning;
};

const DTypeInfo& info(DType dtype);
const OpInfo& info(Op op);
const StatementInfo& info(StatementKind kind);
const ReductionInfo& info(Reduction reduction);
const NameInfo& info(LoopKind kind);
const NameInfo& info(Role role);

// The row of that name in text; defined for the enums above.
template <class Kind>
std::optional<Kind> kindNamed(std::string_view name);

// How many rows there are.
template <class Kind>
size_t kindCount();

inline std::string_view nameOf(DType dtype) { return info(dtype).name; }
inline std::string_view nameOf(Op op) { return info(op).name; }
inline int bytesOf(DType dtype) { return info(dtype).bytes; }
inline bool isFloat(DType dtype) { return info(dtype).kind == DTypeKind::Float; }
inline bool isHalf(DType dtype) { return info(dtype).kind == DTypeKind::Half; }
inline bool isInt(DType dtype) { return info(dtype).kind == DTypeKind::Int; }
inline bool isSigned(DType dtype) { return isInt(dtype) && dtype != DType::U8; }
// Numbers of the dtype are kept as doubles (else as int64).
inline bool isReal(DType dtype) { return isFloat(dtype) || isHalf(dtype); }

// Whether the letters of a table's column (ops.def) name the dtype.
bool takes(std::string_view letters, DType dtype);

// dtype of an operation's result for the dtype of its last operand; not for Cast, which names it.
DType resultOf(Op op, DType operand);
DType resultOf(Reduction reduction, DType operand);

}  // namespace glowplug::lower
