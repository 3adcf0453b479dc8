#include "guard/late_guards.h"

#include "cpython/version_tags.h"
#include "guard/trie.h"

namespace glowplug::guard {

using common::SourceId;
using cpython::Ref;

bool isLate(const ir::Trace& trace, SourceId source) {
  while (source.valid()) {
    const ir::Source& at = trace.sources[source.index()];
    if (at.since > 0 || at.step == ir::StepKind::Result || at.step == ir::StepKind::Built)
      return true;
    source = at.parent;
  }
  return false;
}

bool isLate(const ir::Trace& trace, const ir::Guard& guard) {
  return guard.since > 0 || isLate(trace, guard.source) || isLate(trace, guard.other);
}

struct LateGuards::Impl {
  static constexpr Mask kBit = 1;
  Trie trie;
  TraceState state;
};

LateGuards::LateGuards(const ir::Trace& trace, const cpython::ObjectTable& objects,
                       const aten::OpTable& ops, std::vector<size_t> guards,
                       const std::vector<SourceId>& wanted)
    : impl_(std::make_unique<Impl>()) {
  impl_->state.trace = &trace;
  impl_->state.objects = &objects;
  impl_->state.ops = &ops;
  impl_->state.chosen = std::move(guards);
  // What a function was made of is looked up where it stands for itself.
  impl_->trie.add(impl_->state, wanted, Call(), Impl::kBit);
}

LateGuards::~LateGuards() = default;

bool LateGuards::hold(const Call& call, std::vector<Ref>& fetched) const {
  if (impl_->state.impossible) return false;
  Made made;
  cpython::CollectionPause pause;
  Walk walk(Impl::kBit, made);
  for (const auto& root : impl_->trie.roots()) {
    walk.root(*root, call);
    if (!walk.live()) return false;
  }
  for (const Sameness& pair : impl_->state.sameness)
    if ((pair.first->object == pair.second->object) != pair.same) return false;
  fetched.clear();
  for (const Node* node : impl_->state.wanted) fetched.push_back(Ref::borrow(node->object));
  return true;
}

}  // namespace glowplug::guard
