#include "common/reasons.h"

#include <fmt/format.h>

#include <iterator>

#include "common/check.h"

namespace glowplug::common {
namespace {

constexpr ReasonInfo kReasons[] = {
#define REASON(id, message, hint) {#id, message, hint},
#include "common/reasons.def"
#undef REASON
};

}  // namespace

const ReasonInfo& info(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  GP_CHECK(index < std::size(kReasons), std::to_string(index));
  return kReasons[index];
}

std::optional<Reason> reasonNamed(std::string_view id) {
  for (size_t i = 0; i < std::size(kReasons); ++i) {
    if (kReasons[i].id == id) return static_cast<Reason>(i);
  }
  return std::nullopt;
}

size_t reasonCount() { return std::size(kReasons); }

bool mayPass(Reason reason) {
  return reason == Reason::exception || reason == Reason::call_raised ||
         reason == Reason::operator_raised || reason == Reason::tensor_subclass ||
         reason == Reason::generator_input || reason == Reason::threads ||
         reason == Reason::cache_filled;
}

std::string Refusal::text() const {
  std::string out = file.empty() ? "" : fmt::format("{}:{}: ", file, line);
  out += info(reason).message;
  if (!detail.empty()) out += ": " + detail;
  return out;
}

std::string Refusal::textWithHint() const {
  return fmt::format("{}\n  hint: {}", text(), info(reason).hint);
}

}  // namespace glowplug::common
