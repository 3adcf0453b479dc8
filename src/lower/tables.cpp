#include "lower/tables.h"

#include <iterator>
#include <string>
#include <type_traits>

#include "common/name_table.h"

namespace glowplug::lower {
namespace {

constexpr DTypeInfo kDTypes[] = {
#define DTYPE(enumerator, text, bytes, kind) {text, bytes, DTypeKind::kind},
#include "lower/dtypes.def"
#undef DTYPE
};

constexpr OpInfo kOps[] = {
#define OP(enumerator, text, operands, dtypes, result, flops, meaning) \
  {text, operands, dtypes, ResultRule::result, flops, meaning},
#include "lower/ops.def"
#undef OP
};

constexpr StatementInfo kStatements[] = {
#define STATEMENT(enumerator, text, least, most, value, meaning) \
  {text, least, most, value, meaning},
#include "lower/statements.def"
#undef STATEMENT
};

constexpr ReductionInfo kReductions[] = {
#define REDUCTION(enumerator, text, operands, dtypes, scan, flops, meaning) \
  {text, operands, dtypes, scan, flops, meaning},
#include "lower/reductions.def"
#undef REDUCTION
};

constexpr NameInfo kLoops[] = {
#define LOOP(enumerator, text, meaning) {text, meaning},
#include "lower/loop_kinds.def"
#undef LOOP
};

constexpr NameInfo kRoles[] = {
#define ROLE(enumerator, text, meaning) {text, meaning},
#include "lower/roles.def"
#undef ROLE
};

template <class Kind>
constexpr const auto& rows() {
  if constexpr (std::is_same_v<Kind, DType>)
    return kDTypes;
  else if constexpr (std::is_same_v<Kind, Op>)
    return kOps;
  else if constexpr (std::is_same_v<Kind, StatementKind>)
    return kStatements;
  else if constexpr (std::is_same_v<Kind, Reduction>)
    return kReductions;
  else if constexpr (std::is_same_v<Kind, LoopKind>)
    return kLoops;
  else
    return kRoles;
}

template <class Kind>
const auto& row(Kind kind) {
  return common::rowOf(rows<Kind>(), kind);
}

}  // namespace

const DTypeInfo& info(DType dtype) { return row(dtype); }
const OpInfo& info(Op op) { return row(op); }
const StatementInfo& info(StatementKind kind) { return row(kind); }
const ReductionInfo& info(Reduction reduction) { return row(reduction); }
const NameInfo& info(LoopKind kind) { return row(kind); }
const NameInfo& info(Role role) { return row(role); }

template <class Kind>
std::optional<Kind> kindNamed(std::string_view name) {
  if (name.empty()) return std::nullopt;
  return common::kindIn<Kind>(rows<Kind>(), name);
}

template <class Kind>
size_t kindCount() {
  return std::size(rows<Kind>());
}

#define GP_INSTANTIATE(Kind)                                           \
  template std::optional<Kind> kindNamed<Kind>(std::string_view name); \
  template size_t kindCount<Kind>();
GP_INSTANTIATE(DType)
GP_INSTANTIATE(Op)
GP_INSTANTIATE(StatementKind)
GP_INSTANTIATE(Reduction)
GP_INSTANTIATE(LoopKind)
GP_INSTANTIATE(Role)
#undef GP_INSTANTIATE

bool takes(std::string_view letters, DType dtype) {
  static constexpr char kLetters[] = {'F', 'H', 'I', 'B'};  // in the order of DTypeKind
  return letters.find(kLetters[static_cast<size_t>(info(dtype).kind)]) != letters.npos;
}

DType resultOf(Op op, DType operand) {
  return info(op).result == ResultRule::Bool ? DType::Bool : operand;
}

DType resultOf(Reduction reduction, DType operand) {
  return info(reduction).operands == 2 ? DType::I64 : operand;
}

}  // namespace glowplug::lower
