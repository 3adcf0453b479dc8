#include "common/log.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace glowplug::common {
namespace {

constexpr std::string_view kChannels[] = {
#define CHANNEL(enumerator, text, meaning) text,
#include "common/channels.def"
#undef CHANNEL
};

std::string_view trimmed(std::string_view word) {
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  return word;
}

// The bits of one name; 0 if it is unknown.
uint32_t bitsOf(std::string_view name) {
  if (name == "all") return (uint32_t{1} << std::size(kChannels)) - 1;
  for (size_t i = 0; i < std::size(kChannels); ++i) {
    if (kChannels[i] == name) return uint32_t{1} << i;
  }
  return 0;
}

const bool kEnvironmentIsRead = [] {
  const char* wanted = std::getenv("GLOWPLUG_LOGS");
  if (wanted == nullptr) return false;
  const std::string complaint = setLogs(wanted);
  if (!complaint.empty()) std::fprintf(stderr, "[glowplug] GLOWPLUG_LOGS: %s\n", complaint.c_str());
  return true;
}();

}  // namespace

namespace detail {

constinit std::atomic<uint32_t> logMask{0};

void writeLog(Channel channel, std::string_view text) {
  std::string out;
  do {
    const size_t stop = std::min(text.find('\n'), text.size());
    out += fmt::format("[glowplug {}] {}\n", kChannels[static_cast<size_t>(channel)],
                       text.substr(0, stop));
    text.remove_prefix(std::min(stop + 1, text.size()));
  } while (!text.empty());
  // One call, so that threads' lines do not mix.
  std::fwrite(out.data(), 1, out.size(), stderr);
}

}  // namespace detail

void tell(std::string_view text) {
  const std::string line = fmt::format("[glowplug] {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string setLogs(std::string_view channels) {
  uint32_t mask = 0;
  std::string unknown;
  while (!channels.empty()) {
    const size_t stop = std::min(channels.find(','), channels.size());
    const std::string_view name = trimmed(channels.substr(0, stop));
    channels.remove_prefix(std::min(stop + 1, channels.size()));
    const uint32_t bits = bitsOf(name);
    if (bits == 0 && !name.empty())
      unknown += fmt::format("{}'{}'", unknown.empty() ? "" : ", ", name);
    mask |= bits;
  }
  detail::logMask.store(mask, std::memory_order_relaxed);
  if (unknown.empty()) return "";
  return fmt::format("unknown channel {}; there are all, {}", unknown, fmt::join(kChannels, ", "));
}

}  // namespace glowplug::common
