#pragma once

#include <string_view>
#include <vector>

#include "opt/graph.h"

namespace glowplug::opt {

// Passes, one file each: passes.def says what each is for.
#define PASS(function, name, meaning) void function(Graph& graph);
#include "opt/passes.def"
#undef PASS

struct PassInfo {
  std::string_view name, meaning;
  void (*run)(Graph&);
};
const std::vector<PassInfo>& passTable();

struct PassTime {
  std::string_view name;
  double seconds = 0;
};

// Runs the passes of the table but for those named, and verifies the graph after each: a graph that
// is wrong afterwards is a bug and throws InternalError with the pass's name.
std::vector<PassTime> runPasses(Graph& graph, const std::vector<std::string_view>& without = {});

}  // namespace glowplug::opt
