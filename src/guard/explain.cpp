#include "guard/explain.h"

#include <fmt/format.h>

#include "cpython/version_tags.h"
#include "guard/predicates.h"

namespace glowplug::guard {

using cpython::ObjectTable;
using ir::PredicateKind;

namespace {

std::string shapeText(size_t positional, PyObject* kwnames) {
  std::string text =
      fmt::format("{} positional argument{}", positional, positional == 1 ? "" : "s");
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
    text += fmt::format("{}{}", i ? ", " : " and ",
                        ObjectTable::describe(PyTuple_GET_ITEM(kwnames, i)));
  return text;
}

// Asks the guards of one trace one after the other, through the same steps and predicates as a
// check.
class Explainer {
 public:
  Explainer(const TraceState& state, const Call& call, Mask bit)
      : state_(state), call_(call), bit_(bit) {}

  std::optional<Failure> run();

 private:
  PyObject* objectAt(const Node& node);
  std::optional<Failure> ask(const ir::Guard& guard, const Predicate* predicate);
  std::optional<Failure> missing(const ir::Guard& guard, common::SourceId source);
  Failure failure(const ir::Guard& guard, std::string expected, std::string found) const;

  const TraceState& state_;
  const Call& call_;
  Mask bit_;
  Made made_;
  std::unordered_map<const Node*, PyObject*> objects_;
};

std::optional<Failure> Explainer::run() {
  if (!state_.shapeMatches(call_)) {
    Failure shape;
    shape.guard.kind = PredicateKind::Length;
    shape.guard.number = static_cast<int64_t>(state_.positional);
    shape.path = "L.args";
    shape.expected = shapeText(state_.positional, state_.kwnames.get());
    shape.found = shapeText(call_.positional, call_.kwnames);
    return shape;
  }
  for (size_t i = 0; i < state_.chosen.size(); i++)
    if (auto found = ask(state_.trace->guards[state_.chosen[i]], state_.predicates[i]))
      return found;
  for (size_t i = 0; i < state_.trace->sources.size(); i++) {
    ir::Guard needed;
    needed.source = common::SourceId(i);
    auto node = state_.nodes.find(needed.source);
    if (node != state_.nodes.end() && !objectAt(*node->second))
      return failure(needed, "an object", "nothing");
  }
  return std::nullopt;
}

PyObject* Explainer::objectAt(const Node& node) {
  auto known = objects_.find(&node);
  if (known != objects_.end()) return known->second;
  PyObject* found = nullptr;
  if (!node.parent) {
    found = fetchRoot(node, call_);
  } else if (PyObject* parent = objectAt(*node.parent)) {
    found = fetchStep(node, parent, made_);
  }
  return objects_[&node] = found;
}

Failure Explainer::failure(const ir::Guard& guard, std::string expected, std::string found) const {
  Failure result;
  result.guard = guard;
  result.path = pathText(*state_.trace, guard.source);
  result.expected = std::move(expected);
  result.found = std::move(found);
  if (guard.site.valid() && guard.site.index() < state_.trace->sites.size())
    result.site = state_.trace->sites[guard.site.index()];
  return result;
}

// The topmost step of the path that leads nowhere.
std::optional<Failure> Explainer::missing(const ir::Guard& guard, common::SourceId source) {
  common::SourceId at = source;
  while (state_.trace->sources[at.index()].parent.valid()) {
    common::SourceId parent = state_.trace->sources[at.index()].parent;
    if (objectAt(*state_.nodes.at(parent))) break;
    at = parent;
  }
  Failure result = failure(guard, "an object", "nothing");
  const bool pinned = state_.trace->sources[at.index()].step == ir::StepKind::Pinned;
  if (pinned) result.found = "it is gone";
  result.path = pathText(*state_.trace, at);
  return result;
}

std::optional<Failure> Explainer::ask(const ir::Guard& guard, const Predicate* predicate) {
  const Node& node = *state_.nodes.at(guard.source);
  PyObject* object = objectAt(node);
  if (!object) return missing(guard, guard.source);
  if (guard.kind == PredicateKind::SameAs || guard.kind == PredicateKind::NotSameAs) {
    PyObject* other = objectAt(*state_.nodes.at(guard.other));
    if (!other) return missing(guard, guard.other);
    const bool same = guard.kind == PredicateKind::SameAs;
    if ((object == other) == same) return std::nullopt;
    std::string path = pathText(*state_.trace, guard.other);
    return failure(guard, fmt::format("{} object as {}", same ? "the same" : "another", path),
                   same ? "another object" : "the same object");
  }
  if (!predicate) return failure(guard, "an object that is gone", ObjectTable::describe(object));
  if (!isAtFault(*predicate, object, bit_)) return std::nullopt;
  if (guard.kind == PredicateKind::TensorMeta)
    return failure(guard, state_.ops->metaText(guard.meta), foundText(*predicate, object, bit_));
  return failure(guard, expectedText(*predicate, bit_), foundText(*predicate, object, bit_));
}

}  // namespace

std::optional<Failure> explainTrace(const TraceState& state, const Call& call, Mask bit) {
  cpython::CollectionPause pause;
  return Explainer(state, call, bit).run();
}

}  // namespace glowplug::guard
