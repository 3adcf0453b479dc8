#pragma once

#include <stdexcept>
#include <string>

namespace glowplug::common {

// A bug in Glowplug: an invariant of its own does not hold. Never thrown for what a user's program
// does; it is caught at the engine's boundary, where the entry is disabled and the user's call runs
// eagerly.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void failCheck(const char* condition, const char* file, int line,
                                   const std::string& context) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + condition +
                      (context.empty() ? "" : " (" + context + ")"));
}

}  // namespace glowplug::common

#define GP_CHECK(condition, context)                                                          \
  do {                                                                                        \
    if (!(condition)) ::glowplug::common::failCheck(#condition, __FILE__, __LINE__, context); \
  } while (false)
