#pragma once

// Private to aten/: what an operator does besides computing its results, as far as its schema, its
// tags and (where schemas are silent or wrong) tables by name tell.
#include <vector>

#include "aten/torch.h"

namespace glowplug::aten {

class OpTraits {
 public:
  explicit OpTraits(const c10::OperatorHandle& op);

  using Arguments = c10::ArrayRef<c10::IValue>;

  // Draws from a random generator, or is foreign code that could.
  bool random(Arguments arguments) const;
  // Whether argument `index` (a tensor or a list of tensors) is written.
  bool writes(size_t index, Arguments arguments) const;
  // Whether some call of it may write an argument.
  bool mayWrite() const;
  // A result may share memory with argument `index`.
  bool aliases(size_t index) const { return aliases_[index]; }
  // Result sizes depend on the data of operands, not only on their sizes.
  bool sizesDependOnData(Arguments arguments) const;
  // Results have no dimensions, whatever the sizes of the operands.
  bool givesZeroDim(Arguments arguments) const;
  // The results are sized as argument 0 or are argument 0.
  bool keepsSizesOfSelf() const { return keepsSizesOfSelf_; }
  // Resizes the tensor that it writes.
  bool resizesWritten() const { return resizesWritten_; }
  // A function of the operands' metadata alone: nothing to replay.
  bool metadataQuery() const { return metadataQuery_; }
  // Changes what a tensor has besides its contents: its shape or its gradient.
  bool changesFields() const { return changesFields_; }
  // Gives a tensor that was just made out of Python data.
  bool lift() const { return lift_; }
  // Allocates and fills one tensor, from metadata of its operands at most.
  bool makesOneTensor() const { return makesOneTensor_; }

 private:
  int find(const char* argument) const;
  const c10::IValue* value(const char* argument, Arguments arguments) const;
  bool numberIs(const char* argument, Arguments arguments, double expected) const;

  std::string name_, overload_;
  c10::OperatorHandle op_;
  std::vector<bool> writes_, aliases_;
  bool foreign_, draws_ = false, dynamic_ = false, readsMasks_ = false, hiddenWrites_ = false;
  bool conservativeAliases_ = false;
  bool keepsSizesOfSelf_, resizesWritten_, metadataQuery_, lift_, makesOneTensor_;
  bool changesFields_;
};

}  // namespace glowplug::aten
