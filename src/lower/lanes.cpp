#include "lower/lanes.h"

#include <algorithm>

namespace glowplug::lower {
namespace {

class Lanes {
 public:
  explicit Lanes(size_t values) : varying_(values, false) {}

  void block(const std::vector<Statement>& body, LoopId vector, std::vector<LoopId>& inside);
  std::vector<bool> take() { return std::move(varying_); }

 private:
  bool varies(ValueId id) const { return id.index() < varying_.size() && varying_[id.index()]; }
  bool varies(const Statement& s, LoopId vector, const std::vector<LoopId>& inside) const;

  std::vector<bool> varying_;
};

// `inside`: the loops within the vector loop that are open, itself included.
bool Lanes::varies(const Statement& s, LoopId vector, const std::vector<LoopId>& inside) const {
  if (s.kind == StatementKind::Reduce || s.kind == StatementKind::Scan) {
    const bool within = std::find(inside.begin(), inside.end(), s.loop) != inside.end();
    if (!within || s.loop == vector) return false;
  }
  return varies(s.mask) || laneVarying(s.index, vector, varying_) ||
         std::any_of(s.operands.begin(), s.operands.end(), [&](ValueId id) { return varies(id); });
}

void Lanes::block(const std::vector<Statement>& body, LoopId vector, std::vector<LoopId>& inside) {
  for (const Statement& s : body) {
    if (s.kind == StatementKind::Loop) {
      const LoopId around = s.loopKind == LoopKind::Vector ? s.loop : vector;
      if (around.valid()) inside.push_back(s.loop);
      block(s.body, around, inside);
      if (around.valid()) inside.pop_back();
    } else if (s.result.index() < varying_.size()) {
      varying_[s.result.index()] = vector.valid() && varies(s, vector, inside);
    }
  }
}

template <class Visit>
void forEach(const std::vector<Statement>& body, const Visit& visit) {
  for (const Statement& s : body) {
    visit(s);
    forEach(s.body, visit);
  }
}

template <class Tag>
void include(size_t& count, common::Id<Tag> id) {
  if (id.valid()) count = std::max(count, id.index() + 1);
}

}  // namespace

size_t valueCount(const Kernel& kernel) {
  size_t count = 0;
  for (const Nest& nest : kernel.nests) {
    forEach(nest.body, [&](const Statement& s) { include(count, s.result); });
  }
  return count;
}

size_t loopCount(const Kernel& kernel) {
  size_t count = 0;
  for (const Nest& nest : kernel.nests) {
    for (const ParallelLoop& loop : nest.loops) include(count, loop.loop);
    forEach(nest.body, [&](const Statement& s) {
      if (s.kind == StatementKind::Loop) include(count, s.loop);
    });
  }
  return count;
}

bool laneVarying(const Affine& a, LoopId vector, const std::vector<bool>& values) {
  return std::any_of(a.terms.begin(), a.terms.end(), [&](const Term& term) {
    return (vector.valid() && term.loop == vector) ||
           (term.value.index() < values.size() && values[term.value.index()]);
  });
}

std::vector<bool> laneVarying(const Kernel& kernel) {
  Lanes lanes(valueCount(kernel));
  for (const Nest& nest : kernel.nests) {
    std::vector<LoopId> inside;
    const LoopId vector = nest.vector && !nest.loops.empty() ? nest.loops.back().loop : LoopId();
    if (vector.valid()) inside.push_back(vector);
    lanes.block(nest.body, vector, inside);
  }
  return lanes.take();
}

}  // namespace glowplug::lower
