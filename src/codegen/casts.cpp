// Conversions: the vector form of lower/convert.h.
#include "codegen/emitter.h"

namespace glowplug::codegen {

llvm::Value* Emitter::cast(DType from, DType to, llvm::Value* value) {
  if (from == to) return value;
  if (lower::isHalf(from)) return cast(DType::F32, to, floatOfHalf(from, value));
  if (lower::isHalf(to)) return halfOfFloat(to, cast(from, DType::F32, value));
  if (to == DType::Bool) {
    llvm::Value* zero = llvm::Constant::getNullValue(value->getType());
    return lower::isFloat(from) ? b_.CreateFCmpUNE(value, zero) : b_.CreateICmpNE(value, zero);
  }
  return lower::isFloat(to) ? toFloat(from, to, value) : toInteger(from, to, value);
}

llvm::Value* Emitter::toFloat(DType from, DType to, llvm::Value* value) {
  llvm::Type* type = shaped(scalarType(to), value);
  if (lower::isFloat(from)) {
    return to == DType::F64 ? b_.CreateFPExt(value, type) : b_.CreateFPTrunc(value, type);
  }
  return lower::isSigned(from) ? b_.CreateSIToFP(value, type) : b_.CreateUIToFP(value, type);
}

llvm::Value* Emitter::toInteger(DType from, DType to, llvm::Value* value) {
  llvm::Type* type = shaped(scalarType(to), value);
  if (!lower::isFloat(from)) return b_.CreateIntCast(value, type, lower::isSigned(from));
  const bool wide = to == DType::U8 || to == DType::I64;
  llvm::Type* between = shaped(wide ? b_.getInt64Ty() : b_.getInt32Ty(), value);
  const double bound = wide ? 0x1p63 : 0x1p31;
  // For f64 the i32 range goes down to just above -2^31 - 1; where the sum rounds to the bound, the
  // bound itself gets the lowest number either way.
  llvm::Value* low = number(value->getType(), wide ? -bound : -bound - 1);
  llvm::Value* above = wide ? b_.CreateFCmpOGE(value, low) : b_.CreateFCmpOGT(value, low);
  llvm::Value* inside =
      b_.CreateAnd(above, b_.CreateFCmpOLT(value, number(value->getType(), bound)));
  const unsigned bits = between->getScalarSizeInBits();
  llvm::Value* lowest = llvm::ConstantInt::get(between, llvm::APInt::getSignedMinValue(bits));
  llvm::Value* converted = b_.CreateFreeze(b_.CreateFPToSI(value, between));
  return b_.CreateIntCast(b_.CreateSelect(inside, converted, lowest), type, true);
}

llvm::Value* Emitter::floatOfHalf(DType from, llvm::Value* value) {
  llvm::Type* f32 = shaped(b_.getFloatTy(), value);
  llvm::Type* i32 = shaped(b_.getInt32Ty(), value);
  if (from == DType::BF16) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(value, i32), whole(i32, 16)), f32);
  }
  if (!target_.convertsHalf) return softFloatOfF16(value);
  return b_.CreateFPExt(b_.CreateBitCast(value, shaped(b_.getHalfTy(), value)), f32);
}

// To nearest, ties to even. The instruction of AVX512-BF16 is no help: it takes denormals for 0.
llvm::Value* Emitter::halfOfFloat(DType to, llvm::Value* value) {
  llvm::Type* i16 = shaped(b_.getInt16Ty(), value);
  llvm::Type* i32 = shaped(b_.getInt32Ty(), value);
  if (to == DType::F16) {
    if (!target_.convertsHalf) return softF16OfFloat(value);
    return b_.CreateBitCast(b_.CreateFPTrunc(value, shaped(b_.getHalfTy(), value)), i16);
  }
  llvm::Value* bits = b_.CreateBitCast(value, i32);
  llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(bits, whole(i32, 16)), whole(i32, 1));
  llvm::Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, whole(i32, 0x7fff)));
  rounded = b_.CreateSelect(isNan(value), whole(i32, 0x7fc00000), rounded);
  return b_.CreateTrunc(b_.CreateLShr(rounded, whole(i32, 16)), i16);
}

// The exponent and fraction moved into place make a number 2^112 too small, denormal or not.
llvm::Value* Emitter::softFloatOfF16(llvm::Value* value) {
  llvm::Type* f32 = shaped(b_.getFloatTy(), value);
  llvm::Type* i32 = shaped(b_.getInt32Ty(), value);
  llvm::Value* bits = b_.CreateZExt(value, i32);
  llvm::Value* magnitude = b_.CreateAnd(bits, whole(i32, 0x7fff));
  llvm::Value* sign = b_.CreateShl(b_.CreateAnd(bits, whole(i32, 0x8000)), whole(i32, 16));
  llvm::Value* moved = b_.CreateBitCast(b_.CreateShl(magnitude, whole(i32, 13)), f32);
  llvm::Value* scaled = b_.CreateBitCast(b_.CreateFMul(moved, number(f32, 0x1p112)), i32);
  llvm::Value* special =
      b_.CreateOr(b_.CreateShl(magnitude, whole(i32, 13)), whole(i32, 0x7f800000));
  llvm::Value* isSpecial = b_.CreateICmpUGE(magnitude, whole(i32, 0x7c00));
  llvm::Value* out = b_.CreateSelect(isSpecial, special, scaled);
  return b_.CreateBitCast(b_.CreateOr(out, sign), f32);
}

// F. Giesen's method: the adder does the rounding of denormals, when a number is added whose unit
// in the last place is f16's.
llvm::Value* Emitter::softF16OfFloat(llvm::Value* value) {
  llvm::Type* f32 = value->getType();
  llvm::Type* i32 = shaped(b_.getInt32Ty(), value);
  llvm::Value* bits = b_.CreateBitCast(value, i32);
  llvm::Value* size = b_.CreateAnd(bits, whole(i32, 0x7fffffff));
  llvm::Value* sign = b_.CreateLShr(b_.CreateXor(bits, size), whole(i32, 16));
  llvm::Value* large = b_.CreateSelect(isNan(value), whole(i32, 0x7e00), whole(i32, 0x7c00));
  constexpr int64_t kMagic = ((127 - 15) + (23 - 10) + 1) << 23;
  llvm::Value* magic = b_.CreateBitCast(whole(i32, kMagic), f32);
  llvm::Value* sum = b_.CreateFAdd(b_.CreateBitCast(size, f32), magic);
  llvm::Value* small = b_.CreateSub(b_.CreateBitCast(sum, i32), whole(i32, kMagic));
  llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(size, whole(i32, 13)), whole(i32, 1));
  constexpr int64_t kRebias = (int64_t{15 - 127} << 23) + 0xfff;
  llvm::Value* normal = b_.CreateAdd(b_.CreateAdd(size, whole(i32, kRebias)), odd);
  normal = b_.CreateLShr(normal, whole(i32, 13));
  llvm::Value* out = b_.CreateSelect(
      b_.CreateICmpUGE(size, whole(i32, int64_t{127 + 16} << 23)), large,
      b_.CreateSelect(b_.CreateICmpULT(size, whole(i32, int64_t{113} << 23)), small, normal));
  return b_.CreateTrunc(b_.CreateOr(out, sign), shaped(b_.getInt16Ty(), value));
}

}  // namespace glowplug::codegen
