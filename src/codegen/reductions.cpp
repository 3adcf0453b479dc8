// Reductions and scans. Every accumulator part sees a fixed set of lanes, and parts and lanes are
// merged pairwise in a fixed order, so results depend on the text and the target alone.
#include "codegen/emitter.h"
#include "common/check.h"
#include "lower/evaluate.h"

namespace glowplug::codegen {

using lower::LoopId;
using lower::Op;
using lower::Reduction;
using lower::StatementKind;

namespace {

bool isWelford(const lower::Statement& s) {
  return s.reduction == Reduction::WelfordMean || s.reduction == Reduction::WelfordM2;
}

bool isArg(const lower::Statement& s) { return lower::info(s.reduction).operands == 2; }

// A product and the sum that it is added to may become one instruction.
void contract(llvm::Value* value) {
  auto* made = llvm::dyn_cast<llvm::Instruction>(value);
  const bool fits = made != nullptr && (made->getOpcode() == llvm::Instruction::FMul ||
                                        made->getOpcode() == llvm::Instruction::FAdd);
  if (fits) made->setHasAllowContract(true);
}

bool accumulates(const lower::Statement& s) {
  return s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan;
}

}  // namespace

std::vector<Emitter::DType> Emitter::componentTypes(const Statement& s) const {
  if (isWelford(s)) return {s.dtype, s.dtype, s.dtype};
  if (isArg(s)) return {dtypeOf(s.operands[0]), DType::I64};
  return {s.dtype};
}

// What merges with any state to that state.
llvm::Value* Emitter::initial(const Statement& s, size_t component, llvm::Type* type) {
  if (isWelford(s)) return llvm::Constant::getNullValue(type);
  if (component == 1) return whole(type, std::numeric_limits<int64_t>::max());
  Reduction kind = s.reduction;
  if (kind == Reduction::ArgMax) kind = Reduction::Max;
  if (kind == Reduction::ArgMin) kind = Reduction::Min;
  const DType dtype = componentTypes(s)[0];
  const lower::Number value = lower::identity(kind, dtype);
  return lower::isFloat(dtype) ? number(type, value.real) : whole(type, value.integer);
}

// Before a loop: memory for all that reduces over it. `parts` are those that the statements of this
// block will be emitted with; `vector` the vector loop inside or at `loop`, if any.
void Emitter::beginAccumulators(const std::vector<Statement>& body, LoopId loop, LoopId vector,
                                size_t parts) {
  for (const Statement& s : body) {
    if (s.kind == StatementKind::Loop) {
      const bool lanes = s.loopKind == lower::LoopKind::Vector;
      beginAccumulators(s.body, loop, lanes ? s.loop : vector,
                        lanes ? partsFor(s.loop, s.body) : parts);
    }
    if (!accumulates(s) || s.loop != loop) continue;
    Accumulator accumulator;
    accumulator.statement = &s;
    accumulator.vector = vector.valid() || varies(s.result);
    accumulator.parts = accumulator.vector ? parts : 1;
    const std::vector<DType> types = componentTypes(s);
    for (size_t component = 0; component < types.size(); ++component) {
      llvm::Type* type = scalarType(types[component]);
      if (accumulator.vector) {
        type = llvm::FixedVectorType::get(type, static_cast<unsigned>(target_.lanes));
      }
      auto& memory = accumulator.components.emplace_back();
      for (size_t part = 0; part < accumulator.parts; ++part) {
        memory.push_back(variable(type));
        b_.CreateStore(initial(s, component, type), memory.back());
      }
    }
    accumulators_[s.result] = std::move(accumulator);
  }
}

llvm::Value* Emitter::combine(Reduction reduction, DType dtype, llvm::Value* a, llvm::Value* b) {
  switch (reduction) {
    case Reduction::Sum:
      return op(Op::Add, dtype, {a, b});
    case Reduction::Prod:
      return op(Op::Mul, dtype, {a, b});
    case Reduction::Max:
    case Reduction::Min:
      return extreme(dtype, a, b, reduction == Reduction::Min);
    case Reduction::Any:
      return b_.CreateOr(a, b);
    default:
      return b_.CreateAnd(a, b);
  }
}

// The better of two (value, index) pairs: NaN before numbers, then the value, then the lower index.
std::vector<llvm::Value*> Emitter::mergeIndex(const Statement& s,
                                              const std::vector<llvm::Value*>& a,
                                              const std::vector<llvm::Value*>& b) {
  const DType dtype = componentTypes(s)[0];
  const Op order = s.reduction == Reduction::ArgMax ? Op::Gt : Op::Lt;
  llvm::Value* better = compare(order, dtype, b[0], a[0]);
  llvm::Value* equal = compare(Op::Eq, dtype, b[0], a[0]);
  if (lower::isFloat(dtype)) {
    llvm::Value* nanA = isNan(a[0]);
    llvm::Value* nanB = isNan(b[0]);
    better = b_.CreateOr(better, b_.CreateAnd(nanB, b_.CreateNot(nanA)));
    equal = b_.CreateOr(equal, b_.CreateAnd(nanA, nanB));
  }
  better = b_.CreateOr(better, b_.CreateAnd(equal, b_.CreateICmpSLT(b[1], a[1])));
  return {b_.CreateSelect(better, b[0], a[0]), b_.CreateSelect(better, b[1], a[1])};
}

// Chan's formula for mean, M2 and count of two sets.
std::vector<llvm::Value*> Emitter::mergeMoments(const std::vector<llvm::Value*>& a,
                                                const std::vector<llvm::Value*>& b) {
  llvm::Type* type = a[0]->getType();
  llvm::Value* zero = number(type, 0);
  llvm::Value* count = b_.CreateFAdd(a[2], b[2]);
  llvm::Value* some = b_.CreateSelect(b_.CreateFCmpOEQ(count, zero), number(type, 1), count);
  llvm::Value* share = b_.CreateFDiv(b[2], some);
  llvm::Value* delta = b_.CreateFSub(b[0], a[0]);
  llvm::Value* mean = b_.CreateFAdd(a[0], b_.CreateFMul(delta, share));
  llvm::Value* between = b_.CreateFMul(b_.CreateFMul(delta, delta), b_.CreateFMul(a[2], share));
  return {mean, b_.CreateFAdd(b_.CreateFAdd(a[1], b[1]), between), count};
}

std::vector<llvm::Value*> Emitter::merge(const Statement& s, const std::vector<llvm::Value*>& a,
                                         const std::vector<llvm::Value*>& b) {
  if (isWelford(s)) return mergeMoments(a, b);
  if (isArg(s)) return mergeIndex(s, a, b);
  return {combine(s.reduction, s.dtype, a[0], b[0])};
}

// The state after one more element in each lane.
std::vector<llvm::Value*> Emitter::step(const Statement& s, const std::vector<llvm::Value*>& state,
                                        size_t part) {
  const bool vector = state[0]->getType()->isVectorTy();
  std::vector<llvm::Value*> next;
  for (const lower::ValueId operand : s.operands) {
    next.push_back(vector ? partOf(operand, part) : uniform(operand));
  }
  if (s.reduction == Reduction::Sum) contract(next[0]);
  if (!isWelford(s)) {
    std::vector<llvm::Value*> merged = merge(s, state, next);
    if (s.reduction == Reduction::Sum) contract(merged[0]);
    return merged;
  }
  llvm::Value* count = b_.CreateFAdd(state[2], number(state[2]->getType(), 1));
  llvm::Value* delta = b_.CreateFSub(next[0], state[0]);
  llvm::Value* mean = b_.CreateFAdd(state[0], b_.CreateFDiv(delta, count));
  llvm::Value* m2 = b_.CreateFAdd(state[1], b_.CreateFMul(delta, b_.CreateFSub(next[0], mean)));
  return {mean, m2, count};
}

// Mean and M2 of one value over one loop are one state: the first statement updates it.
bool Emitter::sharesWelford(const Statement& s) {
  if (!isWelford(s)) return false;
  for (auto& [id, other] : accumulators_) {
    const Statement& first = *other.statement;
    if (id < s.result && isWelford(first) && first.loop == s.loop && first.operands == s.operands &&
        &first != &s) {
      accumulators_[s.result].components = other.components;
      return true;
    }
  }
  return false;
}

void Emitter::accumulate(const Statement& s) {
  if (sharesWelford(s)) return;
  Accumulator& accumulator = accumulators_.at(s.result);
  Emitted running{{}, accumulator.vector};
  for (size_t part = 0; part < (accumulator.vector ? lanes_.parts : 1); ++part) {
    std::vector<llvm::Value*> state;
    for (const auto& memory : accumulator.components) {
      state.push_back(b_.CreateLoad(memory[part]->getAllocatedType(), memory[part]));
    }
    const std::vector<llvm::Value*> next = step(s, state, part);
    for (size_t component = 0; component < next.size(); ++component) {
      llvm::Value* value = next[component];
      if (accumulator.vector && lanes_.mask != nullptr) {
        value = b_.CreateSelect(lanes_.mask, value, state[component]);
      }
      b_.CreateStore(value, accumulator.components[component][part]);
    }
    running.parts.push_back(next[0]);
  }
  if (s.kind != StatementKind::Scan) return;
  values_[s.result.index()] = std::move(running);
  available_[s.result.index()] = true;
}

llvm::Value* Emitter::outcome(const Statement& s, const std::vector<llvm::Value*>& state) {
  if (s.reduction == Reduction::WelfordM2) return state[1];
  if (!isArg(s)) return state[0];
  llvm::Type* type = state[1]->getType();
  llvm::Value* none = b_.CreateICmpEQ(state[1], whole(type, std::numeric_limits<int64_t>::max()));
  return b_.CreateSelect(none, llvm::Constant::getNullValue(type), state[1]);
}

// After a loop: the results of what reduced over it.
void Emitter::endAccumulators(const std::vector<Statement>& body, LoopId loop) {
  for (const Statement& s : body) {
    endAccumulators(s.body, loop);
    if (s.kind != StatementKind::Reduce || s.loop != loop) continue;
    const Accumulator& accumulator = accumulators_.at(s.result);
    std::vector<std::vector<llvm::Value*>> states(accumulator.parts);
    for (size_t part = 0; part < accumulator.parts; ++part) {
      for (const auto& memory : accumulator.components) {
        states[part].push_back(b_.CreateLoad(memory[part]->getAllocatedType(), memory[part]));
      }
    }
    const bool lanesStay = varies(s.result);
    Emitted out{{}, lanesStay};
    if (lanesStay) {
      for (const auto& state : states) out.parts.push_back(outcome(s, state));
    } else {
      for (size_t count = states.size(); count > 1; count /= 2) {
        for (size_t i = 0; i < count / 2; ++i) {
          states[i] = merge(s, states[i], states[i + count / 2]);
        }
      }
      std::vector<llvm::Value*>& state = states[0];
      for (int lanes = target_.lanes; accumulator.vector && lanes > 1; lanes /= 2) {
        std::vector<int> low, high;
        for (int lane = 0; lane < lanes / 2; ++lane) {
          low.push_back(lane);
          high.push_back(lane + lanes / 2);
        }
        std::vector<llvm::Value*> lows, highs;
        for (llvm::Value* component : state) {
          lows.push_back(b_.CreateShuffleVector(component, low));
          highs.push_back(b_.CreateShuffleVector(component, high));
        }
        state = merge(s, lows, highs);
      }
      if (accumulator.vector) {
        for (llvm::Value*& component : state) {
          component = b_.CreateExtractElement(component, uint64_t{0});
        }
      }
      out.parts.push_back(outcome(s, state));
    }
    values_[s.result.index()] = std::move(out);
    available_[s.result.index()] = true;
  }
}

}  // namespace glowplug::codegen
