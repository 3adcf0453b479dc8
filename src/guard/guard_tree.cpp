#include "guard/guard_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/check.h"
#include "cpython/version_tags.h"
#include "guard/explain.h"
#include "guard/late_guards.h"
#include "guard/trie.h"

namespace glowplug::guard {

using common::SourceId;
using cpython::Ref;

namespace {

// One check of a call. What it finds is in the nodes, which all threads share, until the objects
// asked for have been taken from there: so no collection may come in between, as it can run any
// code. What was made for the check goes when all is done.
struct Check {
  const Call& call;
  Made made = {};
  cpython::CollectionPause pause = {};
};

}  // namespace

struct GuardTree::Impl {
  Trie trie;
  std::array<std::unique_ptr<TraceState>, kMaxTraces> traces;
  std::vector<size_t> order;  // most recently used first

  static Mask bitOf(size_t number) { return Mask{1} << number; }
  TraceState& state(size_t number) const {
    GP_CHECK(number < kMaxTraces && traces[number], "number of a trace");
    return *traces[number];
  }
  bool fast(size_t number, Check& check, std::vector<Ref>& fetched);
  Mask slow(Mask candidates, Check& check);
  void passed(size_t number, std::vector<Ref>& fetched);
  void used(size_t number);
};

bool GuardTree::Impl::fast(size_t number, Check& check, std::vector<Ref>& fetched) {
  TraceState& trace = *traces[number];
  if (!trace.program.valid()) return false;
  if (!trace.program.run(check.call, bitOf(number), check.made)) return false;
  trace.slowPasses = 0;
  trace.program.fetch(fetched);
  return true;
}

// The candidates whose guards all hold.
Mask GuardTree::Impl::slow(Mask candidates, Check& check) {
  Walk walk(candidates, check.made);
  for (const auto& root : trie.roots()) {
    walk.root(*root, check.call);
    if (!walk.live()) return 0;
  }
  for (size_t number : order) {
    if (!(walk.live() & bitOf(number))) continue;
    for (const Sameness& pair : traces[number]->sameness)
      if ((pair.first->object == pair.second->object) != pair.same) {
        walk.strike(bitOf(number));
        break;
      }
  }
  return walk.live();
}

// After a complete check: makes its result the next fast check.
void GuardTree::Impl::passed(size_t number, std::vector<Ref>& fetched) {
  TraceState& trace = *traces[number];
  fetched.reserve(trace.wanted.size());
  for (const Node* node : trace.wanted) fetched.push_back(Ref::borrow(node->object));
  // A program that keeps failing is not worth its making each time.
  constexpr uint32_t kPatience = 8;
  const uint32_t passes = ++trace.slowPasses;
  if (passes > kPatience && (passes & (passes - 1)) != 0) return;
  if (trace.program.valid()) trace.program.countChanges();
  trace.program = compileFast(trie.roots(), bitOf(number), trace.sameness, trace.wanted);
}

void GuardTree::Impl::used(size_t number) {
  auto at = std::find(order.begin(), order.end(), number);
  std::rotate(order.begin(), at, at + 1);
}

GuardTree::GuardTree() : impl_(std::make_unique<Impl>()) {}
GuardTree::~GuardTree() = default;

size_t GuardTree::add(const ir::Trace& trace, const cpython::ObjectTable& objects,
                      const aten::OpTable& ops, const std::vector<SourceId>& wanted,
                      const Call& call) {
  cpython::CollectionPause pause;
  size_t number = 0;
  while (number < kMaxTraces && impl_->traces[number]) number++;
  GP_CHECK(number < kMaxTraces, "too many traces of one entry");
  auto state = std::make_unique<TraceState>();
  state->trace = &trace;
  state->objects = &objects;
  state->ops = &ops;
  state->positional = call.positional;
  if (call.kwnames && PyTuple_GET_SIZE(call.kwnames) > 0)
    state->kwnames = Ref::borrow(call.kwnames);
  for (size_t i = 0; i < trace.guards.size(); i++)
    if (!isLate(trace, trace.guards[i])) state->chosen.push_back(i);
  try {
    impl_->trie.add(*state, wanted, call, Impl::bitOf(number));
  } catch (...) {
    impl_->trie.remove(Impl::bitOf(number));
    throw;
  }
  impl_->traces[number] = std::move(state);
  impl_->order.insert(impl_->order.begin(), number);
  return number;
}

void GuardTree::remove(size_t number) {
  impl_->state(number);
  impl_->traces[number].reset();
  std::erase(impl_->order, number);
  impl_->trie.remove(Impl::bitOf(number));
}

std::optional<size_t> GuardTree::match(const Call& call, std::vector<Ref>& fetched) {
  fetched.clear();
  Check check{call};
  Mask candidates = 0;
  for (size_t i = 0; i < impl_->order.size(); i++) {
    const size_t number = impl_->order[i];
    const TraceState& trace = *impl_->traces[number];
    if (trace.impossible || !trace.shapeMatches(call)) continue;
    if (impl_->fast(number, check, fetched)) {
      if (i != 0) impl_->used(number);
      return number;
    }
    candidates |= Impl::bitOf(number);
  }
  if (!candidates) return std::nullopt;
  const Mask live = impl_->slow(candidates, check);
  for (size_t number : impl_->order) {
    if (!(live & Impl::bitOf(number))) continue;
    impl_->passed(number, fetched);
    impl_->used(number);
    return number;
  }
  return std::nullopt;
}

bool GuardTree::holds(size_t number, const Call& call, std::vector<Ref>& fetched) {
  fetched.clear();
  Check check{call};
  const TraceState& trace = impl_->state(number);
  if (trace.impossible || !trace.shapeMatches(call)) return false;
  if (impl_->fast(number, check, fetched)) return true;
  if (!impl_->slow(Impl::bitOf(number), check)) return false;
  impl_->passed(number, fetched);
  return true;
}

std::optional<Failure> GuardTree::explain(size_t number, const Call& call) const {
  return explainTrace(impl_->state(number), call, Impl::bitOf(number));
}

bool GuardTree::isDead(size_t number) const {
  const TraceState& trace = impl_->state(number);
  if (trace.impossible) return true;
  return std::any_of(trace.needed.begin(), trace.needed.end(),
                     [](const cpython::HeldObject& held) { return held.isDead(); });
}

GuardTree::Size GuardTree::size(size_t number) const {
  const TraceState& trace = impl_->state(number);
  Size size;
  size.guards = trace.guards;
  std::vector<Node*> nodes;
  for (const auto& [source, node] : trace.nodes) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  size.nodes = nodes.size();
  size.fastChecks = trace.program.checks();
  return size;
}

}  // namespace glowplug::guard
