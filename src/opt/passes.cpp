#include "opt/passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "common/check.h"

namespace glowplug::opt {

const std::vector<PassInfo>& passTable() {
  static const std::vector<PassInfo> kTable = {
#define PASS(function, name, meaning) {name, meaning, &function},
#include "opt/passes.def"
#undef PASS
  };
  return kTable;
}

std::vector<PassTime> runPasses(Graph& graph, const std::vector<std::string_view>& without) {
  std::vector<PassTime> times;
  for (const PassInfo& pass : passTable()) {
    if (std::find(without.begin(), without.end(), pass.name) != without.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    pass.run(graph);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    times.push_back({pass.name, taken.count()});
    const std::vector<std::string> wrong = verify(graph);
    GP_CHECK(wrong.empty(), fmt::format("after {}: {}", pass.name, fmt::join(wrong, "; ")));
  }
  return times;
}

}  // namespace glowplug::opt
