#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

// Lines on stderr for those who ask by GLOWPLUG_LOGS=guards,recompiles,... (or "all"). A channel
// that is off costs one load.
namespace glowplug::common {

enum class Channel : uint8_t {
#define CHANNEL(enumerator, text, meaning) enumerator,
#include "common/channels.def"
#undef CHANNEL
};

namespace detail {
extern constinit std::atomic<uint32_t> logMask;
void writeLog(Channel channel, std::string_view text);
}  // namespace detail

inline bool logs(Channel channel) {
  return detail::logMask.load(std::memory_order_relaxed) >> static_cast<unsigned>(channel) & 1;
}

// Writes "[glowplug guards] text", and the same mark before each further line of the text.
template <class... Args>
void log(Channel channel, fmt::format_string<Args...> format, Args&&... args) {
  if (logs(channel)) detail::writeLog(channel, fmt::format(format, std::forward<Args>(args)...));
}

// "[glowplug] text" for everybody: what has been ignored, once. From any thread, without Python.
void tell(std::string_view text);

// Switches on exactly the channels of that comma list, as GLOWPLUG_LOGS does when the program
// starts. Returns a complaint that names what is unknown and lists the channels, or an empty
// string.
std::string setLogs(std::string_view channels);

}  // namespace glowplug::common
