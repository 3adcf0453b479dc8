// Loops: counting, the two forms of a vector loop, and what is moved in front of them.
#include <algorithm>

#include "codegen/emitter.h"
#include "lower/affine.h"
#include "lower/lanes.h"

namespace glowplug::codegen {

using lower::LoopId;
using lower::StatementKind;

namespace {

// Calls visit(statement) for all statements of a block and the loops in it.
template <class Visit>
void forEach(const std::vector<lower::Statement>& body, const Visit& visit) {
  for (const lower::Statement& s : body) {
    visit(s);
    forEach(s.body, visit);
  }
}

bool storesTo(const std::vector<lower::Statement>& body, lower::BufferId buffer) {
  bool found = false;
  forEach(body, [&](const lower::Statement& s) {
    found |= s.kind == StatementKind::Store && s.buffer == buffer;
  });
  return found;
}

bool usesValues(const lower::Affine& a, const std::vector<bool>& available) {
  return std::any_of(a.terms.begin(), a.terms.end(), [&](const lower::Term& term) {
    return term.value.valid() && !available[term.value.index()];
  });
}

}  // namespace

// A loop from `begin` while below `end`; the body gets the position. It may open blocks of its own.
template <class Body>
void Emitter::countingLoop(llvm::Value* begin, llvm::Value* end, llvm::Value* step,
                           const Body& body) {
  llvm::BasicBlock* head = newBlock("loop");
  llvm::BasicBlock* done = newBlock("after");
  llvm::BasicBlock* before = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, done);
  b_.SetInsertPoint(head);
  llvm::PHINode* position = b_.CreatePHI(b_.getInt64Ty(), 2);
  position->addIncoming(begin, before);
  body(position);
  llvm::Value* next = b_.CreateAdd(position, step);
  position->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
  b_.SetInsertPoint(done);
}

void Emitter::block(const std::vector<Statement>& body) {
  for (const Statement& s : body) {
    if (s.kind == StatementKind::Loop) {
      loop(s);
    } else if (!s.result.valid() || !available_[s.result.index()]) {
      statement(s);
    }
  }
  // What was hoisted out of the block stays; the rest is emitted again in another form of it.
  for (const Statement& s : body) {
    if (s.result.valid()) available_[s.result.index()] = false;
  }
}

void Emitter::loop(const Statement& s) {
  llvm::Value* count = affine(s.extent);
  for (const lower::Affine& limit : s.limits) {
    llvm::Value* other = affine(limit);
    count = b_.CreateSelect(b_.CreateICmpSLT(other, count), other, count);
  }
  const bool vector = s.loopKind == lower::LoopKind::Vector;
  beginAccumulators(s.body, s.loop, vector ? s.loop : LoopId(),
                    vector ? partsFor(s.loop, s.body) : lanes_.parts);
  if (vector) {
    vectorRange(s.loop, s.body, i64(0), count);
  } else {
    serialLoop(s, count);
  }
  endAccumulators(s.body, s.loop);
}

void Emitter::serialLoop(const Statement& s, llvm::Value* count) {
  llvm::BasicBlock* some = newBlock("some");
  llvm::BasicBlock* done = newBlock("none");
  b_.CreateCondBr(b_.CreateICmpSGT(count, i64(0)), some, done);
  b_.SetInsertPoint(some);
  hoist(s.body, s.loop);
  countingLoop(i64(0), count, i64(1), [&](llvm::Value* position) {
    loops_[s.loop.index()] = position;
    const auto outside = addresses_;
    extendAddresses(s.body, s.loop, position);
    block(s.body);
    addresses_ = outside;
  });
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

// Whole groups of parts without a mask, then single vectors with one.
void Emitter::vectorRange(LoopId loop, const std::vector<Statement>& body, llvm::Value* begin,
                          llvm::Value* end) {
  llvm::BasicBlock* some = newBlock("some");
  llvm::BasicBlock* done = newBlock("none");
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), some, done);
  b_.SetInsertPoint(some);
  hoist(body, loop);
  const std::vector<bool> hoisted = available_;
  const size_t parts = partsFor(loop, body);
  const auto group = static_cast<int64_t>(parts) * target_.lanes;
  llvm::Value* whole = b_.CreateAnd(b_.CreateSub(end, begin), i64(-group));
  llvm::Value* middle = b_.CreateAdd(begin, whole);
  laneLoop(loop, body, begin, middle, parts, nullptr);
  available_ = hoisted;
  laneLoop(loop, body, middle, end, 1, end);
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

void Emitter::laneLoop(LoopId loop, const std::vector<Statement>& body, llvm::Value* begin,
                       llvm::Value* end, size_t parts, llvm::Value* limit) {
  const auto step = static_cast<int64_t>(parts) * target_.lanes;
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  const auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  if (first != nullptr && last != nullptr && first->getSExtValue() >= last->getSExtValue()) return;
  countingLoop(begin, end, i64(step), [&](llvm::Value* position) {
    llvm::Value* mask = nullptr;
    if (limit != nullptr) {
      llvm::Value* left = splat(b_.CreateSub(limit, position));
      mask = b_.CreateICmpSLT(laneNumbers(), left);
    }
    lanes_ = LaneContext{loop, parts, position, mask};
    loops_[loop.index()] = position;
    block(body);
    lanes_ = LaneContext{};
  });
}

// Whether the statement gives the same in each iteration of the loop and may run in front of it.
bool Emitter::hoistable(const Statement& s, LoopId loop, const std::vector<Statement>& body) const {
  const bool kind = s.kind == StatementKind::Op || s.kind == StatementKind::Constant ||
                    s.kind == StatementKind::Scalar || s.kind == StatementKind::Index ||
                    s.kind == StatementKind::Check || s.kind == StatementKind::Load;
  if (!kind || lower::uses(s.index, loop) || usesValues(s.index, available_)) return false;
  if (s.kind == StatementKind::Load && storesTo(body, s.buffer)) return false;
  if (s.mask.valid() && !available_[s.mask.index()]) return false;
  return std::all_of(s.operands.begin(), s.operands.end(),
                     [&](lower::ValueId id) { return available_[id.index()]; });
}

void Emitter::hoist(const std::vector<Statement>& body, LoopId loop) {
  for (const Statement& s : body) {
    if (s.kind != StatementKind::Loop && hoistable(s, loop, body)) statement(s);
  }
}

// How many vectors at a time: enough for independent chains, not so many that registers run out.
// Functions that are called lose all vector registers, so more than one gains nothing there.
size_t Emitter::partsFor(LoopId loop, const std::vector<Statement>& body) const {
  size_t statements = 0;
  bool calls = false;
  forEach(body, [&](const Statement& s) {
    if (s.kind == StatementKind::Loop || s.kind == StatementKind::Constant) return;
    ++statements;
    calls |= s.kind == StatementKind::Op && lower::info(s.op).flops >= 20;
  });
  if (calls) return 1;
  size_t parts = statements <= 12 ? 4 : statements <= 32 ? 2 : 1;
  // No more than a loop of known extent fills.
  const int64_t extent = extents_[loop.index()];
  while (parts > 1 && extent >= 0 && static_cast<int64_t>(parts) * target_.lanes > extent)
    parts /= 2;
  return parts;
}

}  // namespace glowplug::codegen
