#include "codegen/emitter.h"

#include <llvm/IR/Dominators.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include "common/check.h"
#include "lower/affine.h"
#include "lower/lanes.h"
#include "lower/launch.h"

namespace glowplug::codegen {

using lower::Nest;

Emitter::Emitter(llvm::Module& module, const Target& target, const lower::Kernel& kernel)
    : module_(module),
      target_(target),
      kernel_(kernel),
      b_(module.getContext()),
      loops_(lower::loopCount(kernel)),
      extents_(loops_.size(), -1),
      values_(lower::valueCount(kernel)),
      dtypes_(values_.size()),
      varying_(lower::laneVarying(kernel)),
      available_(values_.size(), false) {
  for (const Nest& nest : kernel.nests) noteTypes(nest.body);
}

void Emitter::noteTypes(const std::vector<Statement>& body) {
  for (const Statement& s : body) {
    if (s.result.valid()) dtypes_[s.result.index()] = s.dtype;
    const bool counted = s.kind == lower::StatementKind::Loop && s.limits.empty();
    if (counted && lower::isConstant(s.extent)) extents_[s.loop.index()] = s.extent.constant;
    noteTypes(s.body);
  }
}

void Emitter::nest(size_t index, const std::string& symbol) {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* i64Type = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, i64Type, i64Type, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  // Else LLVM avoids the widest registers on CPUs where they once cost frequency.
  const std::string bits = std::to_string(target_.vectorBits());
  function_->addFnAttr("prefer-vector-width", bits);
  function_->addFnAttr("min-legal-vector-width", bits);
  entry_ = newBlock("entry");
  b_.SetInsertPoint(entry_);
  arguments();
  // What is emitted from here on is behind the entry's variables.
  llvm::BasicBlock* start = newBlock("start");
  b_.SetInsertPoint(start);
  items(kernel_.nests[index]);
  b_.CreateRetVoid();
  b_.SetInsertPoint(entry_);
  b_.CreateBr(start);
  promote();
}

// Reads all arguments; those that are not used cost nothing, as nothing keeps them.
void Emitter::arguments() {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Argument* block = function_->getArg(0);
  const auto member = [&](size_t offset) {
    return b_.CreateLoad(pointer, b_.CreateConstGEP1_64(b_.getInt8Ty(), block, offset));
  };
  const auto element = [&](llvm::Type* type, llvm::Value* table, size_t i) {
    return b_.CreateLoad(type, b_.CreateConstGEP1_64(type, table, i));
  };
  llvm::Value* buffers = member(offsetof(lower::KernelArguments, buffers));
  llvm::Value* sizes = member(offsetof(lower::KernelArguments, sizes));
  llvm::Value* scalars = member(offsetof(lower::KernelArguments, scalars));
  error_ = member(offsetof(lower::KernelArguments, error));
  sizes_.clear(), scalars_.clear(), buffers_.clear();
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    sizes_.push_back(element(b_.getInt64Ty(), sizes, i));
  }
  for (size_t i = 0; i < kernel_.scalars.size(); ++i) {
    scalars_.push_back(element(scalarType(kernel_.scalars[i].dtype), scalars, i));
  }
  llvm::Value* scratch = function_->getArg(3);
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const lower::Buffer& buffer = kernel_.buffers[i];
    if (buffer.role != lower::Role::Local) {
      buffers_.push_back(element(pointer, buffers, i));
      continue;
    }
    // As localBytes() counts (lower/cost.h).
    buffers_.push_back(scratch);
    llvm::Value* bytes = b_.CreateMul(affine(buffer.length), i64(lower::bytesOf(buffer.dtype)));
    bytes = b_.CreateAnd(b_.CreateAdd(bytes, i64(63)), i64(-64));
    scratch = b_.CreateGEP(b_.getInt8Ty(), scratch, bytes);
  }
}

void Emitter::items(const Nest& nest) {
  llvm::Value* begin = function_->getArg(1);
  llvm::Value* end = function_->getArg(2);
  addresses_.clear();
  baseAddresses(nest.body);
  if (nest.vector) {
    laneItems(nest, begin, end);
  } else {
    itemLoop(nest, begin, end);
  }
}

// The iteration of each parallel loop that an item's number stands for.
std::vector<llvm::AllocaInst*> Emitter::splitItem(const Nest& nest, size_t count,
                                                  llvm::Value* item) {
  std::vector<llvm::AllocaInst*> variables(count);
  for (size_t i = count; i-- > 0;) {
    variables[i] = variable(b_.getInt64Ty());
    if (i == 0) {
      b_.CreateStore(item, variables[i]);
      break;
    }
    // Without items the code does not run, but it must not divide by 0 then.
    llvm::Value* extent = affine(nest.loops[i].extent);
    extent = b_.CreateSelect(b_.CreateICmpSGT(extent, i64(0)), extent, i64(1));
    b_.CreateStore(b_.CreateURem(item, extent), variables[i]);
    item = b_.CreateUDiv(item, extent);
  }
  return variables;
}

void Emitter::nextItem(const Nest& nest, const std::vector<llvm::AllocaInst*>& variables) {
  llvm::Value* carry = i64(1);
  for (size_t i = variables.size(); i-- > 0;) {
    llvm::Value* next = b_.CreateAdd(b_.CreateLoad(b_.getInt64Ty(), variables[i]), carry);
    if (i > 0) {
      llvm::Value* full = b_.CreateICmpEQ(next, affine(nest.loops[i].extent));
      next = b_.CreateSelect(full, i64(0), next);
      carry = b_.CreateZExt(full, b_.getInt64Ty());
    }
    b_.CreateStore(next, variables[i]);
  }
}

void Emitter::enterItem(const Nest& nest, const std::vector<llvm::AllocaInst*>& variables) {
  for (size_t i = 0; i < variables.size(); ++i) {
    const lower::LoopId loop = nest.loops[i].loop;
    loops_[loop.index()] = b_.CreateLoad(b_.getInt64Ty(), variables[i]);
    extendAddresses(nest.body, loop, loops_[loop.index()]);
  }
}

void Emitter::itemLoop(const Nest& nest, llvm::Value* begin, llvm::Value* end) {
  const std::vector<llvm::AllocaInst*> variables = splitItem(nest, nest.loops.size(), begin);
  llvm::BasicBlock* head = newBlock("item");
  llvm::BasicBlock* done = newBlock("done");
  llvm::AllocaInst* item = variable(b_.getInt64Ty());
  b_.CreateStore(begin, item);
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, done);
  b_.SetInsertPoint(head);
  const auto outside = addresses_;
  enterItem(nest, variables);
  block(nest.body);
  addresses_ = outside;
  nextItem(nest, variables);
  llvm::Value* next = b_.CreateAdd(b_.CreateLoad(b_.getInt64Ty(), item), i64(1));
  b_.CreateStore(next, item);
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
  b_.SetInsertPoint(done);
}

// The last parallel loop in lanes: a piece of each of its rows that the range touches.
void Emitter::laneItems(const Nest& nest, llvm::Value* begin, llvm::Value* end) {
  const lower::LoopId last = nest.loops.back().loop;
  if (nest.loops.size() == 1) return vectorRange(last, nest.body, begin, end);
  std::vector<llvm::AllocaInst*> variables = splitItem(nest, nest.loops.size(), begin);
  llvm::AllocaInst* column = variables.back();
  variables.pop_back();
  llvm::Value* width = affine(nest.loops.back().extent);
  llvm::BasicBlock* head = newBlock("row");
  llvm::BasicBlock* done = newBlock("done");
  llvm::AllocaInst* item = variable(b_.getInt64Ty());
  b_.CreateStore(begin, item);
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, done);
  b_.SetInsertPoint(head);
  const auto outside = addresses_;
  enterItem(nest, variables);
  llvm::Value* from = b_.CreateLoad(b_.getInt64Ty(), column);
  llvm::Value* position = b_.CreateLoad(b_.getInt64Ty(), item);
  llvm::Value* to = b_.CreateAdd(from, b_.CreateSub(end, position));
  to = b_.CreateSelect(b_.CreateICmpSLT(to, width), to, width);
  vectorRange(last, nest.body, from, to);
  addresses_ = outside;
  nextItem(nest, variables);
  b_.CreateStore(i64(0), column);
  llvm::Value* next = b_.CreateAdd(position, b_.CreateSub(to, from));
  b_.CreateStore(next, item);
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
  b_.SetInsertPoint(done);
}

void Emitter::promote() {
  llvm::DominatorTree dominators(*function_);
  llvm::PromoteMemToReg(variables_, dominators);
  variables_.clear();
}

llvm::BasicBlock* Emitter::newBlock(const char* name) {
  return llvm::BasicBlock::Create(module_.getContext(), name, function_);
}

// At the entry, so that it can become a register; each is stored to before it is loaded.
llvm::AllocaInst* Emitter::variable(llvm::Type* type) {
  llvm::IRBuilder<> at(entry_);
  variables_.push_back(at.CreateAlloca(type));
  return variables_.back();
}

llvm::Type* Emitter::scalarType(DType dtype) {
  if (dtype == DType::F32) return b_.getFloatTy();
  if (dtype == DType::F64) return b_.getDoubleTy();
  if (dtype == DType::Bool) return b_.getInt1Ty();
  return memoryType(dtype);  // bf16 and f16 are carried as their bits
}

llvm::Type* Emitter::memoryType(DType dtype) {
  if (lower::isFloat(dtype)) return scalarType(dtype);
  return b_.getIntNTy(static_cast<unsigned>(lower::bytesOf(dtype)) * 8);
}

llvm::Type* Emitter::shaped(llvm::Type* type, llvm::Value* like) {
  const auto* vector = llvm::dyn_cast<llvm::VectorType>(like->getType());
  return vector == nullptr ? type : llvm::VectorType::get(type, vector->getElementCount());
}

llvm::Value* Emitter::splat(llvm::Value* value) {
  return b_.CreateVectorSplat(static_cast<unsigned>(target_.lanes), value);
}

llvm::Value* Emitter::partOf(lower::ValueId id, size_t part) {
  const Emitted& value = emitted(id);
  GP_CHECK(!value.parts.empty(), "a value is used before it is emitted");
  return value.vector ? value.parts[part] : splat(value.parts[0]);
}

llvm::Value* Emitter::uniform(lower::ValueId id) {
  const Emitted& value = emitted(id);
  GP_CHECK(!value.vector && value.parts.size() == 1, "a value differs between lanes");
  return value.parts[0];
}

llvm::Value* Emitter::number(llvm::Type* type, double value) {
  return llvm::ConstantFP::get(type, value);
}

llvm::Value* Emitter::whole(llvm::Type* type, int64_t value) {
  return llvm::ConstantInt::getSigned(type, value, /*ImplicitTrunc=*/true);
}

llvm::Value* Emitter::laneNumbers() {
  std::vector<llvm::Constant*> numbers;
  for (int lane = 0; lane < target_.lanes; ++lane) {
    numbers.push_back(b_.getInt64(static_cast<uint64_t>(lane)));
  }
  return llvm::ConstantVector::get(numbers);
}

llvm::FunctionCallee Emitter::runtime(const std::string& name, llvm::Type* result,
                                      llvm::ArrayRef<llvm::Type*> operands) {
  llvm::FunctionCallee callee =
      module_.getOrInsertFunction(name, llvm::FunctionType::get(result, operands, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->setDoesNotAccessMemory();
  return callee;
}

}  // namespace glowplug::codegen
