#include "lower/cost.h"

#include <algorithm>

#include "lower/affine.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

int64_t extentOf(const Affine& extent, const int64_t* sizes) {
  return std::max<int64_t>(evaluate(extent, sizes), 0);
}

// Adds the cost of a block that runs `times` times.
void addBlock(const Kernel& kernel, const std::vector<Statement>& body, double times,
              const int64_t* sizes, Cost& cost) {
  for (const Statement& s : body) {
    if (s.kind == StatementKind::Op) cost.flopsPerItem += times * info(s.op).flops;
    if (s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan) {
      cost.flopsPerItem += times * info(s.reduction).flops;
    }
    if (s.kind == StatementKind::Load || s.kind == StatementKind::Store) {
      const Buffer& buffer = kernel.buffers[s.buffer.index()];
      if (buffer.role != Role::Local) cost.bytesPerItem += times * bytesOf(buffer.dtype);
    }
    if (s.kind == StatementKind::Loop) {
      double count = static_cast<double>(extentOf(s.extent, sizes));
      for (const Affine& limit : s.limits) {
        if (onlySizes(limit)) {
          count = std::min(count, static_cast<double>(extentOf(limit, sizes)));
        }
      }
      addBlock(kernel, s.body, times * count, sizes, cost);
    }
  }
}

}  // namespace

Cost costOf(const Kernel& kernel, const Nest& nest, const int64_t* sizes) {
  Cost cost;
  cost.items = 1;
  for (const ParallelLoop& loop : nest.loops) cost.items *= extentOf(loop.extent, sizes);
  addBlock(kernel, nest.body, 1, sizes, cost);
  return cost;
}

int64_t localBytes(const Kernel& kernel, const int64_t* sizes) {
  int64_t bytes = 0;
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.role != Role::Local) continue;
    bytes += (extentOf(buffer.length, sizes) * bytesOf(buffer.dtype) + 63) / 64 * 64;
  }
  return bytes;
}

}  // namespace glowplug::lower
