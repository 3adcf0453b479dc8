// Addresses, loads and stores, checked indices.
#include "codegen/emitter.h"
#include "common/check.h"
#include "lower/affine.h"
#include "lower/lanes.h"
#include "lower/launch.h"

namespace glowplug::codegen {

using lower::LoopId;
using lower::StatementKind;
using lower::Term;

namespace {

bool isMemory(const lower::Statement& s) {
  return s.kind == StatementKind::Load || s.kind == StatementKind::Store;
}

}  // namespace

llvm::Value* Emitter::sizeProduct(const Term& term) {
  llvm::Value* product = i64(term.factor);
  for (const lower::SizeId size : term.sizes) {
    product = b_.CreateMul(sizes_[size.index()], product);
  }
  return product;
}

llvm::Value* Emitter::affine(const lower::Affine& a) {
  llvm::Value* sum = i64(a.constant);
  for (const Term& term : a.terms) {
    llvm::Value* product = sizeProduct(term);
    if (term.loop.valid()) product = b_.CreateMul(loops_[term.loop.index()], product);
    if (term.value.valid()) product = b_.CreateMul(uniform(term.value), product);
    sum = b_.CreateAdd(sum, product);
  }
  return sum;
}

// The part of each address that no loop changes.
void Emitter::baseAddresses(const std::vector<Statement>& body) {
  for (const Statement& s : body) {
    baseAddresses(s.body);
    if (!isMemory(s)) continue;
    lower::Affine fixed{s.index.constant, {}};
    for (const Term& term : s.index.terms) {
      if (!term.loop.valid() && !term.value.valid()) fixed.terms.push_back(term);
    }
    llvm::Type* type = memoryType(kernel_.buffers[s.buffer.index()].dtype);
    addresses_[&s] = b_.CreateGEP(type, buffers_[s.buffer.index()], affine(fixed));
  }
}

// On entry to a loop: what its variable adds, for all accesses inside it.
void Emitter::extendAddresses(const std::vector<Statement>& body, LoopId loop,
                              llvm::Value* position) {
  for (const Statement& s : body) {
    extendAddresses(s.body, loop, position);
    if (!isMemory(s) || !lower::uses(s.index, loop)) continue;
    llvm::Type* type = memoryType(kernel_.buffers[s.buffer.index()].dtype);
    llvm::Value* offset = b_.CreateMul(position, affine(lower::factorOf(s.index, loop)));
    addresses_[&s] = b_.CreateGEP(type, addresses_[&s], offset);
  }
}

llvm::Value* Emitter::elementAddress(const Statement& s) {
  llvm::Type* type = memoryType(kernel_.buffers[s.buffer.index()].dtype);
  llvm::Value* address = addresses_.at(&s);
  for (const Term& term : s.index.terms) {
    if (!term.value.valid() || varies(term.value)) continue;
    address = b_.CreateGEP(type, address, b_.CreateMul(uniform(term.value), sizeProduct(term)));
  }
  if (lanes_.loop.valid() && lower::uses(s.index, lanes_.loop)) {
    llvm::Value* factor = affine(lower::factorOf(s.index, lanes_.loop));
    address = b_.CreateGEP(type, address, b_.CreateMul(lanes_.position, factor));
  }
  return address;
}

Emitter::Lanes Emitter::laneOffsets(const Statement& s) {
  Lanes out;
  const lower::Affine factor = lower::factorOf(s.index, lanes_.loop);
  bool indirect = false;
  for (const Term& term : s.index.terms) indirect |= term.value.valid() && varies(term.value);
  if (!indirect && lower::isConstant(factor) && factor.constant == 1) {
    out.contiguous = true;
    return out;
  }
  for (size_t part = 0; part < lanes_.parts; ++part) {
    llvm::Value* first = i64(static_cast<int64_t>(part) * target_.lanes);
    llvm::Value* offset =
        b_.CreateMul(b_.CreateAdd(laneNumbers(), splat(first)), splat(affine(factor)));
    for (const Term& term : s.index.terms) {
      if (!term.value.valid() || !varies(term.value)) continue;
      llvm::Value* scaled = b_.CreateMul(partOf(term.value, part), splat(sizeProduct(term)));
      offset = b_.CreateAdd(offset, scaled);
    }
    out.offsets.push_back(offset);
  }
  return out;
}

// Which lanes of a part a load or store touches; null: all.
llvm::Value* Emitter::maskOf(const Statement& s, size_t part) {
  if (!s.mask.valid()) return lanes_.mask;
  llvm::Value* mask = partOf(s.mask, part);
  return lanes_.mask == nullptr ? mask : b_.CreateAnd(mask, lanes_.mask);
}

llvm::Value* Emitter::fromMemory(DType dtype, llvm::Value* value) {
  if (dtype != DType::Bool) return value;
  return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

llvm::Value* Emitter::toMemory(DType dtype, llvm::Value* value) {
  if (dtype != DType::Bool) return value;
  return b_.CreateZExt(value, shaped(b_.getInt8Ty(), value));
}

llvm::Value* Emitter::vectorLoad(const Statement& s, llvm::Value* address, const Lanes& lanes,
                                 size_t part) {
  llvm::Type* element = memoryType(s.dtype);
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(target_.lanes));
  const llvm::Align align(static_cast<uint64_t>(lower::bytesOf(s.dtype)));
  llvm::Value* mask = maskOf(s, part);
  llvm::Value* zero = llvm::Constant::getNullValue(type);
  if (!lanes.contiguous) {
    llvm::Value* addresses = b_.CreateGEP(element, address, lanes.offsets[part]);
    if (mask == nullptr) mask = splat(b_.getTrue());
    return b_.CreateMaskedGather(type, addresses, align, mask, zero);
  }
  address = b_.CreateGEP(element, address, i64(static_cast<int64_t>(part) * target_.lanes));
  if (mask == nullptr) return b_.CreateAlignedLoad(type, address, align);
  return b_.CreateMaskedLoad(type, address, align, mask, zero);
}

Emitted Emitter::load(const Statement& s) {
  llvm::Type* element = memoryType(s.dtype);
  const llvm::Align align(static_cast<uint64_t>(lower::bytesOf(s.dtype)));
  if (varies(s.result)) {
    Emitted out{{}, true};
    llvm::Value* address = elementAddress(s);
    const Lanes lanes = laneOffsets(s);
    for (size_t part = 0; part < lanes_.parts; ++part) {
      out.parts.push_back(fromMemory(s.dtype, vectorLoad(s, address, lanes, part)));
    }
    return out;
  }
  if (!s.mask.valid()) {
    llvm::Value* value = b_.CreateAlignedLoad(element, elementAddress(s), align);
    return {{fromMemory(s.dtype, value)}, false};
  }
  llvm::AllocaInst* result = variable(element);
  b_.CreateStore(llvm::Constant::getNullValue(element), result);
  whenAny(uniform(s.mask),
          [&] { b_.CreateStore(b_.CreateAlignedLoad(element, elementAddress(s), align), result); });
  return {{fromMemory(s.dtype, b_.CreateLoad(element, result))}, false};
}

void Emitter::store(const Statement& s) {
  const DType dtype = kernel_.buffers[s.buffer.index()].dtype;
  const llvm::Align align(static_cast<uint64_t>(lower::bytesOf(dtype)));
  if (!lanes_.loop.valid()) {
    const auto write = [&] {
      b_.CreateAlignedStore(toMemory(dtype, uniform(s.operands[0])), elementAddress(s), align);
    };
    if (s.mask.valid()) {
      whenAny(uniform(s.mask), write);
    } else {
      write();
    }
    return;
  }
  llvm::Type* element = memoryType(dtype);
  llvm::Value* address = elementAddress(s);
  const Lanes lanes = laneOffsets(s);
  for (size_t part = 0; part < lanes_.parts; ++part) {
    llvm::Value* value = toMemory(dtype, partOf(s.operands[0], part));
    llvm::Value* mask = maskOf(s, part);
    if (!lanes.contiguous) {
      llvm::Value* addresses = b_.CreateGEP(element, address, lanes.offsets[part]);
      if (mask == nullptr) mask = splat(b_.getTrue());
      b_.CreateMaskedScatter(value, addresses, align, mask);
      continue;
    }
    llvm::Value* place =
        b_.CreateGEP(element, address, i64(static_cast<int64_t>(part) * target_.lanes));
    if (mask == nullptr) {
      b_.CreateAlignedStore(value, place, align);
    } else {
      b_.CreateMaskedStore(value, place, align, mask);
    }
  }
}

// An affine expression as a value.
Emitted Emitter::index(const Statement& s) {
  if (!varies(s.result)) return {{affine(s.index)}, false};
  lower::Affine alike{s.index.constant, {}};
  for (const Term& term : s.index.terms) {
    if (!term.value.valid() || !varies(term.value)) alike.terms.push_back(term);
  }
  // The variable of the vector loop stands for its first lane in `alike`.
  llvm::Value* first = affine(alike);
  Emitted out{{}, true};
  const Lanes lanes = laneOffsets(s);
  for (size_t part = 0; part < lanes_.parts; ++part) {
    llvm::Value* offset;
    if (lanes.contiguous) {
      llvm::Value* start = i64(static_cast<int64_t>(part) * target_.lanes);
      offset = b_.CreateAdd(laneNumbers(), splat(start));
    } else {
      offset = lanes.offsets[part];
    }
    out.parts.push_back(b_.CreateAdd(splat(first), offset));
  }
  return out;
}

Emitted Emitter::check(const Statement& s) {
  const bool vector = varies(s.result);
  llvm::Value* extent = affine(s.index);
  Emitted out{{}, vector};
  for (size_t part = 0; part < (vector ? lanes_.parts : 1); ++part) {
    llvm::Value* given = vector ? partOf(s.operands[0], part) : uniform(s.operands[0]);
    llvm::Value* limit = vector ? splat(extent) : extent;
    llvm::Value* zero = llvm::Constant::getNullValue(given->getType());
    llvm::Value* index = given;
    if (s.wrap) {
      llvm::Value* wrapped = b_.CreateAdd(given, limit);
      index = b_.CreateSelect(b_.CreateICmpSLT(given, zero), wrapped, given);
    }
    llvm::Value* bad = b_.CreateOr(b_.CreateICmpSLT(index, zero), b_.CreateICmpSGE(index, limit));
    out.parts.push_back(b_.CreateSelect(bad, zero, index));
    if (vector && lanes_.mask != nullptr) bad = b_.CreateAnd(bad, lanes_.mask);
    reportIndex(bad, given, extent);
  }
  return out;
}

// Runs what `report` emits if any lane of `bad` is set.
template <class Report>
void Emitter::whenAny(llvm::Value* bad, const Report& report) {
  if (bad->getType()->isVectorTy()) bad = b_.CreateOrReduce(bad);
  llvm::BasicBlock* then = newBlock("then");
  llvm::BasicBlock* done = newBlock("done");
  b_.CreateCondBr(bad, then, done);
  b_.SetInsertPoint(then);
  report();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

void Emitter::reportIndex(llvm::Value* bad, llvm::Value* given, llvm::Value* extent) {
  whenAny(bad, [&] {
    if (bad->getType()->isVectorTy()) {
      llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(target_.lanes));
      llvm::Value* lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz,
                                                   b_.CreateBitCast(bad, bits), b_.getTrue());
      given = b_.CreateExtractElement(given, b_.CreateZExt(lane, b_.getInt64Ty()));
    }
    const auto put = [&](size_t offset, llvm::Value* value) {
      b_.CreateStore(value, b_.CreateConstGEP1_64(b_.getInt8Ty(), error_, offset));
    };
    put(offsetof(lower::KernelError, kind), i64(lower::KernelError::IndexOutOfRange));
    put(offsetof(lower::KernelError, index), given);
    put(offsetof(lower::KernelError, extent), extent);
  });
}

void Emitter::reportDivision(llvm::Value* bad) {
  if (bad->getType()->isVectorTy() && lanes_.mask != nullptr) {
    bad = b_.CreateAnd(bad, lanes_.mask);
  }
  whenAny(bad, [&] { b_.CreateStore(i64(lower::KernelError::DivisionByZero), error_); });
}

}  // namespace glowplug::codegen
