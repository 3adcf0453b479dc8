#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace glowplug::common {

// Every reason why a call was not recorded or not replayed, and why a graph broke: reasons.def.
enum class Reason : uint8_t {
#define REASON(id, message, hint) id,
#include "common/reasons.def"
#undef REASON
};

struct ReasonInfo {
  const char* id;  // "opaque_call"; lives for ever, as do the others
  const char* message;
  const char* hint;
};

const ReasonInfo& info(Reason reason);
std::optional<Reason> reasonNamed(std::string_view id);
size_t reasonCount();
// It depends on the call's arguments or on luck, not on the program: another call may be recorded.
bool mayPass(Reason reason);

// That something is not done, as a value: what is refused, and where in the user's program.
struct Refusal {
  Reason reason = Reason::internal_error;
  std::string detail;  // what exactly: the function's name, the type, the operator...; may be empty
  std::string file;    // empty: no line of the program stands for it
  int line = 0;

  // "model.py:12: a C function that is not known was called between tensor operators: zlib.crc32"
  std::string text() const;
  // The same and the hint.
  std::string textWithHint() const;
  bool operator==(const Refusal&) const = default;
};

}  // namespace glowplug::common
