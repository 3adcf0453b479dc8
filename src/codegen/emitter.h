#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <map>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "lower/loop_ir.h"
#include "lower/tables.h"

// From one nest of a kernel to one LLVM function. Private to this folder.
//
// A value that is the same in all lanes is one LLVM scalar. One that differs is a few vectors of
// the target's lanes, "parts": a vector loop's body is emitted once for several parts at a time,
// which gives independent chains of instructions, and once for one part with a mask, for what
// remains. Accumulators of reductions have as many parts; they are combined in a tree that depends
// only on the text and the target. LLVM's optimiser does not run, so what it would do for such code
// is done here: addresses are built up loop by loop, and what does not change in a loop is emitted
// in front of it.
namespace glowplug::codegen {

using Parts = llvm::SmallVector<llvm::Value*, 4>;

// A value of the kernel in LLVM: one scalar, or parts.
struct Emitted {
  Parts parts;
  bool vector = false;
};

// The vector loop that statements are emitted in.
struct LaneContext {
  lower::LoopId loop;  // invalid: none
  size_t parts = 1;
  llvm::Value* position = nullptr;  // value of the loop variable in the first lane
  llvm::Value* mask = nullptr;      // which lanes run; null: all
};

// What a reduction or scan keeps: each component (a sum; a largest value and its index; mean, M2
// and count) in memory of its own, which becomes registers afterwards.
struct Accumulator {
  const lower::Statement* statement = nullptr;
  bool vector = false;
  size_t parts = 1;
  std::vector<std::vector<llvm::AllocaInst*>> components;  // [component][part]
};

class Emitter {
 public:
  Emitter(llvm::Module& module, const Target& target, const lower::Kernel& kernel);

  void nest(size_t index, const std::string& symbol);

 private:
  using Statement = lower::Statement;
  using DType = lower::DType;

  // emitter.cpp: functions and items
  void noteTypes(const std::vector<Statement>& body);  // and extents
  void arguments();
  void items(const lower::Nest& nest);
  void itemLoop(const lower::Nest& nest, llvm::Value* begin, llvm::Value* end);
  void laneItems(const lower::Nest& nest, llvm::Value* begin, llvm::Value* end);
  std::vector<llvm::AllocaInst*> splitItem(const lower::Nest& nest, size_t count,
                                           llvm::Value* item);
  void enterItem(const lower::Nest& nest, const std::vector<llvm::AllocaInst*>& variables);
  void nextItem(const lower::Nest& nest, const std::vector<llvm::AllocaInst*>& variables);
  void promote();

  // loops.cpp
  void block(const std::vector<Statement>& body);
  void loop(const Statement& s);
  void serialLoop(const Statement& s, llvm::Value* count);
  void vectorRange(lower::LoopId loop, const std::vector<Statement>& body, llvm::Value* begin,
                   llvm::Value* end);
  void laneLoop(lower::LoopId loop, const std::vector<Statement>& body, llvm::Value* begin,
                llvm::Value* end, size_t parts, llvm::Value* limit);
  void hoist(const std::vector<Statement>& body, lower::LoopId loop);
  bool hoistable(const Statement& s, lower::LoopId loop, const std::vector<Statement>& body) const;
  size_t partsFor(lower::LoopId loop, const std::vector<Statement>& body) const;
  template <class Body>
  void countingLoop(llvm::Value* begin, llvm::Value* end, llvm::Value* step, const Body& body);
  llvm::BasicBlock* newBlock(const char* name);
  llvm::AllocaInst* variable(llvm::Type* type);

  // memory.cpp
  llvm::Value* affine(const lower::Affine& a);  // the same in all lanes
  llvm::Value* sizeProduct(const lower::Term& term);
  Emitted index(const Statement& s);
  void baseAddresses(const std::vector<Statement>& body);
  void extendAddresses(const std::vector<Statement>& body, lower::LoopId loop,
                       llvm::Value* position);
  llvm::Value* elementAddress(const Statement& s);  // of the first lane's part that is alike
  Emitted load(const Statement& s);
  void store(const Statement& s);
  Emitted check(const Statement& s);
  // How the address changes from lane to lane.
  struct Lanes {
    bool contiguous = false;
    Parts offsets;  // else: i64 vectors, one a part; empty: all lanes alike
  };
  Lanes laneOffsets(const Statement& s);
  llvm::Value* maskOf(const Statement& s, size_t part);
  llvm::Value* vectorLoad(const Statement& s, llvm::Value* address, const Lanes& lanes,
                          size_t part);
  llvm::Value* fromMemory(DType dtype, llvm::Value* value);
  llvm::Value* toMemory(DType dtype, llvm::Value* value);
  void reportIndex(llvm::Value* bad, llvm::Value* given, llvm::Value* extent);
  void reportDivision(llvm::Value* bad);
  template <class Report>
  void whenAny(llvm::Value* bad, const Report& report);

  // statements.cpp
  void statement(const Statement& s);
  Emitted constant(const Statement& s);
  Emitted operation(const Statement& s);
  llvm::Value* op(lower::Op op, DType dtype, llvm::ArrayRef<llvm::Value*> in);
  llvm::Value* floatOp(lower::Op op, llvm::ArrayRef<llvm::Value*> in);
  llvm::Value* floatDivision(lower::Op op, llvm::Value* a, llvm::Value* b);
  llvm::Value* integerOp(lower::Op op, DType dtype, llvm::ArrayRef<llvm::Value*> in);
  llvm::Value* integerDivision(lower::Op op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* integerPower(DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* shift(lower::Op op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(lower::Op op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* larger(llvm::Value* a, llvm::Value* b, bool smaller);  // maxps, minps
  llvm::Value* extreme(DType dtype, llvm::Value* a, llvm::Value* b, bool smaller);
  llvm::Value* isNan(llvm::Value* a);

  // math.cpp
  llvm::Value* math(lower::Op op, llvm::ArrayRef<llvm::Value*> in);
  llvm::Value* log1p(llvm::Value* a);
  llvm::Value* mathCall(lower::Op op, llvm::Type* type, llvm::ArrayRef<llvm::Value*> in);

  // casts.cpp
  llvm::Value* cast(DType from, DType to, llvm::Value* value);
  llvm::Value* toFloat(DType from, DType to, llvm::Value* value);
  llvm::Value* toInteger(DType from, DType to, llvm::Value* value);
  llvm::Value* floatOfHalf(DType from, llvm::Value* value);
  llvm::Value* halfOfFloat(DType to, llvm::Value* value);
  llvm::Value* softFloatOfF16(llvm::Value* value);
  llvm::Value* softF16OfFloat(llvm::Value* value);

  // reductions.cpp
  void beginAccumulators(const std::vector<Statement>& body, lower::LoopId loop,
                         lower::LoopId vector, size_t parts);
  void endAccumulators(const std::vector<Statement>& body, lower::LoopId loop);
  void accumulate(const Statement& s);
  bool sharesWelford(const Statement& s);
  std::vector<DType> componentTypes(const Statement& s) const;
  llvm::Value* initial(const Statement& s, size_t component, llvm::Type* type);
  std::vector<llvm::Value*> step(const Statement& s, const std::vector<llvm::Value*>& state,
                                 size_t part);
  std::vector<llvm::Value*> merge(const Statement& s, const std::vector<llvm::Value*>& a,
                                  const std::vector<llvm::Value*>& b);
  std::vector<llvm::Value*> mergeIndex(const Statement& s, const std::vector<llvm::Value*>& a,
                                       const std::vector<llvm::Value*>& b);
  std::vector<llvm::Value*> mergeMoments(const std::vector<llvm::Value*>& a,
                                         const std::vector<llvm::Value*>& b);
  llvm::Value* combine(lower::Reduction reduction, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* outcome(const Statement& s, const std::vector<llvm::Value*>& state);

  // Small things
  llvm::Type* scalarType(DType dtype);
  llvm::Type* memoryType(DType dtype);
  // `type`, or a vector of it if `like` is one.
  llvm::Type* shaped(llvm::Type* type, llvm::Value* like);
  llvm::Value* splat(llvm::Value* value);
  llvm::Value* partOf(lower::ValueId id, size_t part);  // as a vector inside vector contexts
  const Emitted& emitted(lower::ValueId id) const { return values_[id.index()]; }
  llvm::Value* uniform(lower::ValueId id);
  DType dtypeOf(lower::ValueId id) const { return dtypes_[id.index()]; }
  llvm::Value* number(llvm::Type* type, double value);
  llvm::Value* whole(llvm::Type* type, int64_t value);
  llvm::Value* i64(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* laneNumbers();  // <0, 1, 2...> of i64
  llvm::FunctionCallee runtime(const std::string& name, llvm::Type* result,
                               llvm::ArrayRef<llvm::Type*> operands);
  bool varies(lower::ValueId id) const { return varying_[id.index()]; }

  llvm::Module& module_;
  const Target& target_;
  const lower::Kernel& kernel_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  std::vector<llvm::AllocaInst*> variables_;  // all of the function, to become registers
  std::vector<llvm::Value*> sizes_, buffers_, scalars_;
  llvm::Value* error_ = nullptr;
  std::vector<llvm::Value*> loops_;  // variables of open loops; of vector loops the first lane's
  std::vector<int64_t> extents_;     // of loops, where the text has a number; else -1
  std::vector<Emitted> values_;
  std::vector<DType> dtypes_;
  std::vector<bool> varying_;
  std::vector<bool> available_;  // emitted already, also by hoisting
  std::map<lower::ValueId, Accumulator> accumulators_;
  std::map<const Statement*, llvm::Value*> addresses_;
  LaneContext lanes_;
};

}  // namespace glowplug::codegen
