#pragma once

// Private to aten/.
#include <optional>
#include <vector>

#include "aten/torch.h"

namespace glowplug::aten {

// The warnings of one replay's operators. Until the replay has changed something they wait, since
// the program may yet have to run from its start, and warns then itself.
class WarningBuffer : public c10::WarningHandler {
 public:
  // While one lives, what this thread's operators warn of goes to the buffer.
  class Scope {
   public:
    explicit Scope(WarningBuffer& buffer) : outer_(c10::WarningUtils::get_warning_handler()) {
      c10::WarningUtils::set_warning_handler(&buffer);
    }
    ~Scope() { c10::WarningUtils::set_warning_handler(outer_); }

   private:
    c10::WarningHandler* outer_;
  };

  void process(const c10::Warning& warning) override { warnings_.push_back({warning, {}}); }
  // The warning that Python gets when it reads .grad of that tensor.
  void addGradRead(const at::Tensor& tensor) { warnings_.push_back({std::nullopt, tensor}); }

  // From now on each warning is due right after its operator.
  void passOn() { passOn_ = true; }
  bool empty() const { return warnings_.empty(); }
  bool due() const { return passOn_ && !warnings_.empty(); }
  // Gives Python what is here. Needs the GIL. Throws what Python's filter turns a warning into;
  // with an error set, prints instead.
  void flush(bool inException);

 private:
  struct Waiting {
    std::optional<c10::Warning> warning;
    at::Tensor gradOf;
  };
  std::vector<Waiting> warnings_;
  bool passOn_ = false;
};

}  // namespace glowplug::aten
