// Statements and the operations that are not calls.
#include "codegen/emitter.h"
#include "common/check.h"
#include "lower/convert.h"

namespace glowplug::codegen {

using lower::Op;
using lower::StatementKind;

void Emitter::statement(const Statement& s) {
  Emitted out;
  switch (s.kind) {
    case StatementKind::Op:
      out = operation(s);
      break;
    case StatementKind::Constant:
      out = constant(s);
      break;
    case StatementKind::Scalar:
      out = {{scalars_[s.scalar.index()]}, false};
      break;
    case StatementKind::Index:
      out = index(s);
      break;
    case StatementKind::Check:
      out = check(s);
      break;
    case StatementKind::Load:
      out = load(s);
      break;
    case StatementKind::Store:
      return store(s);
    case StatementKind::Reduce:
    case StatementKind::Scan:
      return accumulate(s);
    case StatementKind::Loop:
      return;
  }
  values_[s.result.index()] = std::move(out);
  available_[s.result.index()] = true;
}

Emitted Emitter::constant(const Statement& s) {
  llvm::Type* type = scalarType(s.dtype);
  if (lower::isFloat(s.dtype)) return {{number(type, s.real)}, false};
  if (lower::isHalf(s.dtype)) {
    const auto value = static_cast<float>(s.real);
    const uint16_t bits =
        s.dtype == DType::BF16 ? lower::bf16OfFloat(value) : lower::f16OfFloat(value);
    return {{b_.getInt16(bits)}, false};
  }
  return {{whole(type, s.dtype == DType::Bool ? s.integer != 0 : s.integer)}, false};
}

Emitted Emitter::operation(const Statement& s) {
  const bool vector = varies(s.result);
  const DType dtype = dtypeOf(s.operands.back());
  Emitted out{{}, vector};
  for (size_t part = 0; part < (vector ? lanes_.parts : 1); ++part) {
    Parts in;
    for (const lower::ValueId operand : s.operands) {
      in.push_back(vector ? partOf(operand, part) : uniform(operand));
    }
    out.parts.push_back(s.op == Op::Cast ? cast(dtype, s.dtype, in[0]) : op(s.op, dtype, in));
  }
  return out;
}

llvm::Value* Emitter::op(Op op, DType dtype, llvm::ArrayRef<llvm::Value*> in) {
  if (op == Op::Select) return b_.CreateSelect(in[0], in[1], in[2]);
  if (op >= Op::Eq && op <= Op::Ge) return compare(op, dtype, in[0], in[1]);
  return lower::isFloat(dtype) ? floatOp(op, in) : integerOp(op, dtype, in);
}

llvm::Value* Emitter::isNan(llvm::Value* a) { return b_.CreateFCmpUNO(a, a); }

// a > b ? a : b (or a < b), which is what maxps and minps compute.
llvm::Value* Emitter::larger(llvm::Value* a, llvm::Value* b, bool smaller) {
  return b_.CreateSelect(smaller ? b_.CreateFCmpOLT(a, b) : b_.CreateFCmpOGT(a, b), a, b);
}

// With NaN winning: a NaN in b comes through the comparison.
llvm::Value* Emitter::extreme(DType dtype, llvm::Value* a, llvm::Value* b, bool smaller) {
  if (lower::isFloat(dtype)) return b_.CreateSelect(isNan(a), a, larger(a, b, smaller));
  const bool sign = lower::isSigned(dtype);
  const auto id = smaller ? (sign ? llvm::Intrinsic::smin : llvm::Intrinsic::umin)
                          : (sign ? llvm::Intrinsic::smax : llvm::Intrinsic::umax);
  return b_.CreateBinaryIntrinsic(id, a, b);
}

llvm::Value* Emitter::compare(Op op, DType dtype, llvm::Value* a, llvm::Value* b) {
  using Predicate = llvm::CmpInst::Predicate;
  static constexpr Predicate kFloat[] = {Predicate::FCMP_OEQ, Predicate::FCMP_UNE,
                                         Predicate::FCMP_OLT, Predicate::FCMP_OLE,
                                         Predicate::FCMP_OGT, Predicate::FCMP_OGE};
  static constexpr Predicate kSigned[] = {Predicate::ICMP_EQ,  Predicate::ICMP_NE,
                                          Predicate::ICMP_SLT, Predicate::ICMP_SLE,
                                          Predicate::ICMP_SGT, Predicate::ICMP_SGE};
  static constexpr Predicate kUnsigned[] = {Predicate::ICMP_EQ,  Predicate::ICMP_NE,
                                            Predicate::ICMP_ULT, Predicate::ICMP_ULE,
                                            Predicate::ICMP_UGT, Predicate::ICMP_UGE};
  const auto which = static_cast<size_t>(op) - static_cast<size_t>(Op::Eq);
  if (lower::isFloat(dtype)) return b_.CreateFCmp(kFloat[which], a, b);
  return b_.CreateICmp(lower::isSigned(dtype) ? kSigned[which] : kUnsigned[which], a, b);
}

namespace {

// Of operations that are one instruction of one operand.
llvm::Intrinsic::ID unaryIntrinsic(Op op) {
  switch (op) {
    case Op::Abs:
      return llvm::Intrinsic::fabs;
    case Op::Sqrt:
      return llvm::Intrinsic::sqrt;
    case Op::Floor:
      return llvm::Intrinsic::floor;
    case Op::Ceil:
      return llvm::Intrinsic::ceil;
    case Op::Round:
      return llvm::Intrinsic::roundeven;
    case Op::Trunc:
      return llvm::Intrinsic::trunc;
    default:
      return llvm::Intrinsic::not_intrinsic;
  }
}

}  // namespace

llvm::Value* Emitter::floatOp(Op op, llvm::ArrayRef<llvm::Value*> in) {
  llvm::Value* a = in[0];
  llvm::Value* b = in.size() > 1 ? in[1] : nullptr;
  llvm::Type* type = a->getType();
  const auto unary = [&](llvm::Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, a); };
  if (const auto id = unaryIntrinsic(op); id != llvm::Intrinsic::not_intrinsic) return unary(id);
  llvm::Value* zero = number(type, 0);
  llvm::Value* one = number(type, 1);
  switch (op) {
    case Op::Add:
      return b_.CreateFAdd(a, b);
    case Op::Sub:
      return b_.CreateFSub(a, b);
    case Op::Mul:
      return b_.CreateFMul(a, b);
    case Op::Div:
      return b_.CreateFDiv(a, b);
    case Op::DivFloor:
    case Op::DivTrunc:
    case Op::Remainder:
      return floatDivision(op, a, b);
    case Op::Fma:
      return b_.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {a, b, in[2]});
    case Op::Neg:
      return b_.CreateFNeg(a);
    case Op::Sign:
      return b_.CreateSelect(b_.CreateFCmpOGT(a, zero), one,
                             b_.CreateSelect(b_.CreateFCmpOLT(a, zero), number(type, -1), zero));
    case Op::Reciprocal:
      return b_.CreateFDiv(one, a);
    case Op::Rsqrt:
      return b_.CreateFDiv(one, unary(llvm::Intrinsic::sqrt));
    case Op::Copysign:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
    case Op::Maximum:
    case Op::Minimum:
      return b_.CreateSelect(isNan(a), a, larger(a, b, op == Op::Minimum));
    case Op::Fmax:
    case Op::Fmin:
      return b_.CreateSelect(isNan(b), a, larger(a, b, op == Op::Fmin));
    case Op::IsNan:
      return isNan(a);
    case Op::IsInf:
      return b_.CreateFCmpOEQ(unary(llvm::Intrinsic::fabs), llvm::ConstantFP::getInfinity(type));
    case Op::Frac:
      return b_.CreateFSub(a, unary(llvm::Intrinsic::trunc));
    case Op::Sigmoid:
      return b_.CreateFDiv(one, b_.CreateFAdd(one, math(Op::Exp, {b_.CreateFNeg(a)})));
    case Op::Log1p:
      return log1p(a);
    default:
      return math(op, in);
  }
}

// The steps of ATen's kernels, rounding included.
llvm::Value* Emitter::floatDivision(Op op, llvm::Value* a, llvm::Value* b) {
  llvm::Value* quotient = b_.CreateFDiv(a, b);
  if (op == Op::DivTrunc) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, quotient);
  llvm::Value* zero = number(a->getType(), 0);
  llvm::Value* one = number(a->getType(), 1);
  llvm::Value* mod = math(Op::Fmod, {a, b});
  llvm::Value* apart = b_.CreateXor(b_.CreateFCmpOLT(b, zero), b_.CreateFCmpOLT(mod, zero));
  apart = b_.CreateAnd(apart, b_.CreateFCmpUNE(mod, zero));
  if (op == Op::Remainder) return b_.CreateSelect(apart, b_.CreateFAdd(mod, b), mod);
  llvm::Value* div = b_.CreateFDiv(b_.CreateFSub(a, mod), b);
  div = b_.CreateSelect(apart, b_.CreateFSub(div, one), div);
  llvm::Value* down = b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, div);
  llvm::Value* above = b_.CreateFCmpOGT(b_.CreateFSub(div, down), number(a->getType(), 0.5));
  down = b_.CreateSelect(above, b_.CreateFAdd(down, one), down);
  llvm::Value* signedZero = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, quotient);
  down = b_.CreateSelect(b_.CreateFCmpOEQ(div, zero), signedZero, down);
  return b_.CreateSelect(b_.CreateFCmpOEQ(b, zero), quotient, down);
}

llvm::Value* Emitter::integerOp(Op op, DType dtype, llvm::ArrayRef<llvm::Value*> in) {
  llvm::Value* a = in[0];
  llvm::Value* b = in.size() > 1 ? in[1] : nullptr;
  llvm::Value* zero = llvm::Constant::getNullValue(a->getType());
  switch (op) {
    case Op::Add:
      return b_.CreateAdd(a, b);
    case Op::Sub:
      return b_.CreateSub(a, b);
    case Op::Mul:
      return b_.CreateMul(a, b);
    case Op::DivFloor:
    case Op::DivTrunc:
    case Op::Remainder:
    case Op::Fmod:
      return integerDivision(op, dtype, a, b);
    case Op::Pow:
      return integerPower(dtype, a, b);
    case Op::Neg:
      return b_.CreateNeg(a);
    case Op::Abs:
      return lower::isSigned(dtype)
                 ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse())
                 : a;
    case Op::Sign:
      return b_.CreateSub(b_.CreateZExt(compare(Op::Gt, dtype, a, zero), a->getType()),
                          b_.CreateZExt(compare(Op::Lt, dtype, a, zero), a->getType()));
    case Op::Maximum:
    case Op::Minimum:
      return extreme(dtype, a, b, op == Op::Minimum);
    case Op::And:
      return b_.CreateAnd(a, b);
    case Op::Or:
      return b_.CreateOr(a, b);
    case Op::Xor:
      return b_.CreateXor(a, b);
    case Op::Not:
      return b_.CreateNot(a);
    case Op::Shl:
    case Op::Shr:
      return shift(op, dtype, a, b);
    default:
      GP_CHECK(false, std::string(lower::nameOf(op)) + " of integers");
  }
}

// Division instructions trap on a divisor 0 and on the lowest number over -1; both divisors become
// 1, which gives the wrapped result in the second case.
llvm::Value* Emitter::integerDivision(Op op, DType dtype, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  llvm::Value* zero = llvm::Constant::getNullValue(type);
  llvm::Value* one = whole(type, 1);
  llvm::Value* byZero = b_.CreateICmpEQ(b, zero);
  llvm::Value* divisor = b_.CreateSelect(byZero, one, b);
  reportDivision(byZero);
  const bool quotientWanted = op == Op::DivFloor || op == Op::DivTrunc;
  if (!lower::isSigned(dtype)) {
    return quotientWanted ? b_.CreateUDiv(a, divisor) : b_.CreateURem(a, divisor);
  }
  const unsigned bits = type->getScalarSizeInBits();
  llvm::Value* lowest = llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(bits));
  llvm::Value* overflows =
      b_.CreateAnd(b_.CreateICmpEQ(a, lowest), b_.CreateICmpEQ(divisor, whole(type, -1)));
  divisor = b_.CreateSelect(overflows, one, divisor);
  llvm::Value* quotient = b_.CreateSDiv(a, divisor);
  if (op == Op::DivTrunc) return quotient;
  llvm::Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
  if (op == Op::Fmod) return rest;
  llvm::Value* apart = b_.CreateXor(b_.CreateICmpSLT(rest, zero), b_.CreateICmpSLT(divisor, zero));
  apart = b_.CreateAnd(apart, b_.CreateICmpNE(rest, zero));
  if (op == Op::Remainder) return b_.CreateSelect(apart, b_.CreateAdd(rest, divisor), rest);
  return b_.CreateSelect(apart, b_.CreateSub(quotient, one), quotient);
}

llvm::Value* Emitter::shift(Op op, DType dtype, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  const unsigned bits = type->getScalarSizeInBits();
  llvm::Value* outside = b_.CreateICmpUGE(b, whole(type, bits));  // negative ones are large
  if (op == Op::Shl) {
    llvm::Value* amount = b_.CreateSelect(outside, llvm::Constant::getNullValue(type), b);
    return b_.CreateSelect(outside, llvm::Constant::getNullValue(type), b_.CreateShl(a, amount));
  }
  llvm::Value* amount = b_.CreateSelect(outside, whole(type, bits - 1), b);
  if (lower::isSigned(dtype)) return b_.CreateAShr(a, amount);
  return b_.CreateSelect(outside, llvm::Constant::getNullValue(type), b_.CreateLShr(a, amount));
}

}  // namespace glowplug::codegen
