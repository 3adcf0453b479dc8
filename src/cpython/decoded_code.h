#pragma once

#include <Python.h>

#include <vector>

#include "cpython/exception_table.h"
#include "cpython/instruction.h"

namespace glowplug::cpython {

// A code object's instructions in version-neutral form. Made once for each code object, and freed
// with it.
class DecodedCode {
 public:
  explicit DecodedCode(PyCodeObject* code);

  const Instruction* begin() const { return instructions_.data(); }
  size_t size() const { return instructions_.size(); }
  const Instruction& at(size_t index) const { return instructions_.at(index); }
  // The instruction at a code unit, or the first one after it when that unit holds none (caches,
  // NOP).
  const Instruction* atUnit(int32_t unit) const { return begin() + indexOfUnit_[unit]; }
  // The innermost handler that covers a code unit, or nullptr.
  const ExceptionHandler* handlerOf(int32_t unit) const;
  const std::vector<ExceptionHandler>& handlers() const { return handlers_; }

 private:
  void decode(PyCodeObject* code);

  std::vector<Instruction> instructions_;
  std::vector<int32_t> indexOfUnit_;
  std::vector<ExceptionHandler> handlers_;
};

// The decoded form, kept with the code object. nullptr with an error when memory runs out.
const DecodedCode* decodedCode(PyCodeObject* code);

}  // namespace glowplug::cpython
