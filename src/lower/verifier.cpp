#include "lower/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "lower/affine.h"
#include "lower/lanes.h"
#include "lower/printer.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

struct OpenLoop {
  LoopId loop;
  bool parallel = false;
  bool vector = false;
  std::vector<ValueId> reduced;  // known after it
};

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel),
        dtypes_(valueCount(kernel)),
        made_(dtypes_.size(), false),
        visible_(dtypes_.size(), false),
        seenLoops_(loopCount(kernel), false),
        varying_(laneVarying(kernel)) {}

  std::vector<std::string> run();

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    messages_.push_back(where_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void checkNames();
  void checkName(const std::string& name, std::set<std::string>& seen);
  void checkNest(const Nest& nest);
  void checkBlock(const std::vector<Statement>& body);
  void checkLoop(const Statement& s);
  void checkStatement(const Statement& s);
  void checkResult(const Statement& s);
  void checkOp(const Statement& s);
  void checkMemory(const Statement& s);
  void checkReduction(const Statement& s);
  void checkOver(const Statement& s);
  void checkCheck(const Statement& s);
  void checkScalar(const Statement& s);

  void open(LoopId loop, bool parallel, bool vector);
  void checkSizes(const Affine& a, const char* what);  // over sizes alone
  void checkAffine(const Affine& a);
  void checkSizeIds(const Term& term);
  bool checkValue(ValueId id);  // may be used here
  void checkDType(ValueId id, DType wanted);
  void checkResultType(const Statement& s, DType wanted);
  void define(const Statement& s);

  OpenLoop* openLoop(LoopId loop);
  LoopId vectorLoop() const;
  DType dtypeOf(ValueId id) const { return dtypes_[id.index()]; }
  static std::string text(ValueId id) {
    return id.valid() ? fmt::format("%{}", id.value) : std::string("-");
  }

  const Kernel& kernel_;
  std::vector<DType> dtypes_;
  std::vector<bool> made_;
  std::vector<bool> visible_;
  std::vector<bool> seenLoops_;
  std::vector<bool> varying_;
  std::vector<OpenLoop> loops_;
  std::string where_;
  std::vector<std::string> messages_;
};

bool isWord(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
}

bool isLoopName(const std::string& name) {
  return name.size() > 1 && name[0] == 'i' && std::all_of(name.begin() + 1, name.end(), [](char c) {
           return std::isdigit(static_cast<unsigned char>(c));
         });
}

void Verifier::checkName(const std::string& name, std::set<std::string>& seen) {
  if (!isWord(name)) report("'{}' is not a name", name);
  if (!seen.insert(name).second) report("'{}' is named twice", name);
}

void Verifier::checkNames() {
  where_ = "kernel";
  if (!isWord(kernel_.name)) report("'{}' is not a name", kernel_.name);
  std::set<std::string> sizes, scalars, buffers;
  for (const std::string& name : kernel_.sizes) {
    checkName(name, sizes);
    if (isLoopName(name) || std::isdigit(static_cast<unsigned char>(name[0]))) {
      report("a size may not be named '{}'", name);
    }
  }
  for (const Scalar& scalar : kernel_.scalars) {
    checkName(scalar.name, scalars);
    if (scalar.dtype != DType::F64 && scalar.dtype != DType::I64) {
      report("scalar '{}' is neither f64 nor i64", scalar.name);
    }
  }
  for (const Buffer& buffer : kernel_.buffers) {
    checkName(buffer.name, buffers);
    if (buffer.role == Role::Local) checkSizes(buffer.length, "a length");
  }
}

void Verifier::checkSizeIds(const Term& term) {
  for (const SizeId size : term.sizes) {
    if (size.index() >= kernel_.sizes.size()) report("a size is out of range");
  }
}

void Verifier::checkSizes(const Affine& a, const char* what) {
  if (!onlySizes(a)) report("{} may depend only on sizes", what);
  for (const Term& term : a.terms) checkSizeIds(term);
}

OpenLoop* Verifier::openLoop(LoopId loop) {
  const auto found = std::find_if(loops_.begin(), loops_.end(),
                                  [&](const OpenLoop& open) { return open.loop == loop; });
  return found == loops_.end() ? nullptr : &*found;
}

LoopId Verifier::vectorLoop() const {
  for (const OpenLoop& open : loops_) {
    if (open.vector) return open.loop;
  }
  return {};
}

bool Verifier::checkValue(ValueId id) {
  if (id.index() < visible_.size() && visible_[id.index()]) return true;
  report("value {} is not known here", text(id));
  return false;
}

void Verifier::checkDType(ValueId id, DType wanted) {
  if (checkValue(id) && dtypeOf(id) != wanted) {
    report("value {} is {}, not {}", text(id), nameOf(dtypeOf(id)), nameOf(wanted));
  }
}

void Verifier::checkAffine(const Affine& a) {
  for (const Term& term : a.terms) {
    checkSizeIds(term);
    if (term.loop.valid() && term.value.valid()) report("a term has a variable and a value");
    if (term.loop.valid() && openLoop(term.loop) == nullptr) {
      report("i{} is not the variable of a loop around", term.loop.value);
    }
    if (term.value.valid()) checkDType(term.value, DType::I64);
  }
}

void Verifier::checkResultType(const Statement& s, DType wanted) {
  if (s.dtype != wanted) report("the result is {}, not {}", nameOf(wanted), nameOf(s.dtype));
}

void Verifier::checkOp(const Statement& s) {
  const OpInfo& row = info(s.op);
  if (s.operands.size() != static_cast<size_t>(row.operands)) {
    return report("needs {} operands", row.operands);
  }
  for (const ValueId operand : s.operands) {
    if (!checkValue(operand)) return;
  }
  const DType dtype = dtypeOf(s.operands.back());
  if (!takes(row.dtypes, dtype)) return report("does not take {}", nameOf(dtype));
  if (s.op == Op::Select) {
    checkDType(s.operands[0], DType::Bool);
    checkDType(s.operands[1], dtype);
  } else {
    for (const ValueId operand : s.operands) checkDType(operand, dtype);
  }
  if (s.op != Op::Cast) checkResultType(s, resultOf(s.op, dtype));
}

void Verifier::checkMemory(const Statement& s) {
  checkAffine(s.index);
  if (s.mask.valid()) checkDType(s.mask, DType::Bool);
  if (s.buffer.index() >= kernel_.buffers.size()) return report("the buffer is out of range");
  const Buffer& buffer = kernel_.buffers[s.buffer.index()];
  if (s.kind == StatementKind::Load) {
    if (buffer.role == Role::Out) report("'{}' is only written", buffer.name);
    return checkResultType(s, buffer.dtype);
  }
  if (buffer.role == Role::In) report("'{}' is only read", buffer.name);
  for (const ValueId operand : s.operands) checkDType(operand, buffer.dtype);
  if (vectorLoop().valid() && !laneVarying(s.index, vectorLoop(), varying_)) {
    report("all lanes store to one place");
  }
}

// The loop that a reduction or scan goes over.
void Verifier::checkOver(const Statement& s) {
  OpenLoop* over = openLoop(s.loop);
  if (over == nullptr) return report("the loop it goes over is not around it");
  if (over->parallel) return report("goes over a parallel loop");
  if (s.kind == StatementKind::Reduce) {
    over->reduced.push_back(s.result);
    return;
  }
  for (const OpenLoop* open = over; open != &loops_.back() + 1; ++open) {
    if (open->vector) report("there is a vector loop in between");
  }
}

void Verifier::checkReduction(const Statement& s) {
  const ReductionInfo& row = info(s.reduction);
  if (s.kind == StatementKind::Scan && !row.scan) report("{} is not for scans", row.name);
  if (s.operands.size() != static_cast<size_t>(row.operands)) {
    return report("needs {} operands", row.operands);
  }
  if (!checkValue(s.operands[0])) return;
  const DType dtype = dtypeOf(s.operands[0]);
  if (!takes(row.dtypes, dtype)) report("does not take {}", nameOf(dtype));
  if (row.operands == 2) checkDType(s.operands[1], DType::I64);
  checkResultType(s, resultOf(s.reduction, dtype));
  checkOver(s);
}

void Verifier::checkCheck(const Statement& s) {
  if (s.operands.size() != 1) return report("needs 1 operand");
  checkDType(s.operands[0], DType::I64);
  checkSizes(s.index, "the extent");
  checkResultType(s, DType::I64);
}

void Verifier::checkScalar(const Statement& s) {
  if (s.scalar.index() >= kernel_.scalars.size()) return report("the scalar is out of range");
  checkResultType(s, kernel_.scalars[s.scalar.index()].dtype);
}

void Verifier::checkResult(const Statement& s) {
  if (info(s.kind).value && !s.result.valid()) return report("makes a value and names none");
  if (!info(s.kind).value && s.result.valid()) return report("makes no value");
  if (!s.result.valid()) return;
  if (made_[s.result.index()]) report("value {} is made twice", text(s.result));
  made_[s.result.index()] = true;
  dtypes_[s.result.index()] = s.dtype;
  if (s.kind != StatementKind::Reduce) visible_[s.result.index()] = true;
}

void Verifier::checkStatement(const Statement& s) {
  where_ = print(kernel_, s);
  const StatementInfo& row = info(s.kind);
  const auto operands = static_cast<int>(s.operands.size());
  if (operands < row.least || operands > row.most) {
    report("has {} operands", operands);
  } else if (s.kind == StatementKind::Op) {
    checkOp(s);
  } else if (s.kind == StatementKind::Load || s.kind == StatementKind::Store) {
    checkMemory(s);
  } else if (s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan) {
    checkReduction(s);
  } else if (s.kind == StatementKind::Check) {
    checkCheck(s);
  } else if (s.kind == StatementKind::Scalar) {
    checkScalar(s);
  } else if (s.kind == StatementKind::Index) {
    checkAffine(s.index);
    checkResultType(s, DType::I64);
  }
  checkResult(s);
}

void Verifier::open(LoopId loop, bool parallel, bool vector) {
  if (!loop.valid()) return report("a loop has no number");
  if (seenLoops_[loop.index()]) report("there are two loops i{}", loop.value);
  seenLoops_[loop.index()] = true;
  if (vector && vectorLoop().valid()) report("a vector loop inside a vector loop");
  loops_.push_back({loop, parallel, vector, {}});
}

void Verifier::checkLoop(const Statement& s) {
  where_ = print(kernel_, s);
  checkSizes(s.extent, "an extent");
  for (const Affine& limit : s.limits) {
    checkAffine(limit);
    if (vectorLoop().valid() && laneVarying(limit, vectorLoop(), varying_)) {
      report("a limit differs between lanes");
    }
  }
  const size_t outside = loops_.size();
  open(s.loop, false, s.loopKind == LoopKind::Vector);
  if (loops_.size() == outside) return;
  checkBlock(s.body);
  const std::vector<ValueId> reduced = std::move(loops_.back().reduced);
  loops_.pop_back();
  for (const ValueId id : reduced) {
    if (id.valid()) visible_[id.index()] = true;
  }
}

// What a block makes is not known after it.
void Verifier::checkBlock(const std::vector<Statement>& body) {
  const std::vector<bool> before = visible_;
  for (const Statement& s : body) {
    if (s.kind == StatementKind::Loop) {
      checkLoop(s);
    } else {
      checkStatement(s);
    }
  }
  visible_ = before;
}

void Verifier::checkNest(const Nest& nest) {
  where_ = "nest";
  if (nest.vector && nest.loops.empty()) report("is 'vector' without a loop");
  for (const ParallelLoop& loop : nest.loops) {
    checkSizes(loop.extent, "an extent");
    open(loop.loop, true, nest.vector && &loop == &nest.loops.back());
  }
  checkBlock(nest.body);
  loops_.clear();
}

std::vector<std::string> Verifier::run() {
  checkNames();
  for (const Nest& nest : kernel_.nests) checkNest(nest);
  return std::move(messages_);
}

}  // namespace

std::vector<std::string> verify(const Kernel& kernel) { return Verifier(kernel).run(); }

}  // namespace glowplug::lower
