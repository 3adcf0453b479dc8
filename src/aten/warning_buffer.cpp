#include "aten/warning_buffer.h"

namespace glowplug::aten {

void WarningBuffer::flush(bool inException) {
  std::vector<c10::Warning> warnings = std::move(warnings_);
  warnings_.clear();
  torch::PyWarningHandler python;
  if (inException) python.set_in_exception();
  for (const c10::Warning& warning : warnings) c10::warn(warning);
}

}  // namespace glowplug::aten
