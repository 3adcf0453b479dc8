// Operations that are calls: SLEEF's functions, and integer powers.
#include "codegen/emitter.h"
#include "codegen/symbols.h"
#include "common/check.h"

namespace glowplug::codegen {

using lower::Op;

// One call for values of `type`, which SLEEF has a function for.
llvm::Value* Emitter::mathCall(Op op, llvm::Type* type, llvm::ArrayRef<llvm::Value*> in) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  const bool isDouble = type->getScalarType()->isDoubleTy();
  const int lanes = vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
  const std::string name = mathSymbol(op, isDouble, lanes, target_);
  GP_CHECK(!name.empty(), std::string(lower::nameOf(op)) + " has no function");
  const std::vector<llvm::Type*> operands(in.size(), type);
  return b_.CreateCall(runtime(name, type, operands), in);
}

// SLEEF 3.5 gives infinity near the largest numbers, later versions do not: what is that large is
// made smaller by a factor whose logarithm is added again.
llvm::Value* Emitter::log1p(llvm::Value* a) {
  llvm::Type* type = a->getType();
  const bool isDouble = type->getScalarType()->isDoubleTy();
  llvm::Value* large = b_.CreateFCmpOGT(a, number(type, isDouble ? 1e300 : 1e37));
  llvm::Value* scaled = b_.CreateFMul(a, number(type, 0x1p-32));
  llvm::Value* out = math(Op::Log1p, {b_.CreateSelect(large, scaled, a)});
  const double logOfFactor = 22.180709777918249;  // 32 log(2)
  return b_.CreateSelect(large, b_.CreateFAdd(out, number(type, logOfFactor)), out);
}

// A vector of doubles takes two registers, and so two calls.
llvm::Value* Emitter::math(Op op, llvm::ArrayRef<llvm::Value*> in) {
  llvm::Type* type = in[0]->getType();
  if (!type->isVectorTy() || !type->getScalarType()->isDoubleTy()) return mathCall(op, type, in);
  const auto half = static_cast<size_t>(target_.lanes / 2);
  auto* halfType = llvm::FixedVectorType::get(b_.getDoubleTy(), static_cast<unsigned>(half));
  std::vector<int> numbers(static_cast<size_t>(target_.lanes));
  for (int i = 0; i < target_.lanes; ++i) numbers[static_cast<size_t>(i)] = i;
  const llvm::ArrayRef<int> all(numbers);
  Parts results;
  for (size_t side = 0; side < 2; ++side) {
    Parts halves;
    for (llvm::Value* value : in) {
      halves.push_back(b_.CreateShuffleVector(value, all.slice(side * half, half)));
    }
    results.push_back(mathCall(op, halfType, halves));
  }
  return b_.CreateShuffleVector(results[0], results[1], all);
}

// Lane by lane: torch's models hardly ever do it.
llvm::Value* Emitter::integerPower(DType dtype, llvm::Value* a, llvm::Value* b) {
  llvm::Type* i64Type = b_.getInt64Ty();
  llvm::Type* element = a->getType()->getScalarType();
  const bool sign = lower::isSigned(dtype);
  const auto one = [&](llvm::Value* base, llvm::Value* exponent) {
    llvm::Value* wide[] = {b_.CreateIntCast(base, i64Type, sign),
                           b_.CreateIntCast(exponent, i64Type, sign)};
    llvm::Value* power =
        b_.CreateCall(runtime(kIntegerPowerSymbol, i64Type, {i64Type, i64Type}), wide);
    return b_.CreateIntCast(power, element, sign);
  };
  if (!a->getType()->isVectorTy()) return one(a, b);
  llvm::Value* out = llvm::PoisonValue::get(a->getType());
  for (int lane = 0; lane < target_.lanes; ++lane) {
    const auto at = static_cast<uint64_t>(lane);
    out = b_.CreateInsertElement(
        out, one(b_.CreateExtractElement(a, at), b_.CreateExtractElement(b, at)), at);
  }
  return out;
}

}  // namespace glowplug::codegen
