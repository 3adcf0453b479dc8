// Entries and segments as Python dicts: what reports, explain and graph backends read.

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "common/log.h"
#include "engine/entry.h"
#include "engine/python_values.h"
#include "ir/printer.h"
#include "ir/tables.h"

namespace glowplug::engine {

using common::Channel;
using common::Refusal;
using common::ValueId;
using cpython::Ref;

namespace {

std::string siteText(const ir::Trace& trace, common::SiteId id) {
  if (!id.valid()) return "";
  const ir::Site& site = trace.sites[id.index()];
  return fmt::format("{}:{}", site.file, site.line);
}

Ref refusalDict(const Refusal& refusal) {
  const common::ReasonInfo& info = common::info(refusal.reason);
  DictBuilder dict;
  dict.set("reason", info.id);
  dict.set("message", info.message);
  dict.set("hint", info.hint);
  dict.set("detail", refusal.detail);
  dict.set("file", refusal.file);
  dict.set("line", static_cast<int64_t>(refusal.line));
  return dict.take();
}

std::string guardText(const CompiledTrace& trace, const ir::Guard& guard) {
  const ir::Trace& t = trace.recording->trace;
  std::string text = fmt::format("{} {}", guard::pathText(t, guard.source), ir::nameOf(guard.kind));
  if (guard.object.valid())
    text += " " + cpython::ObjectTable::describe(trace.recording->objects.get(guard.object));
  if (guard.meta.valid()) text += " " + trace.recording->ops.metaText(guard.meta);
  if (guard.other.valid()) text += " " + guard::pathText(t, guard.other);
  if (guard.kind == ir::PredicateKind::Length) text += fmt::format(" {}", guard.number);
  return text;
}

// Which event makes what is found at a path in the result: "result[0].logits" -> "aten::add at
// f.py:3".
class ResultSites {
 public:
  explicit ResultSites(const CompiledTrace& trace)
      : trace_(trace.recording->trace), recording_(*trace.recording) {
    for (const ir::Event& event : trace_.events)
      for (ValueId id : event.results)
        if (id.valid()) makers_.emplace(id.value, &event);
    const ir::Event& last = trace_.events.back();
    if (last.kind == ir::EventKind::Return) add("result", last.recipes[0]);
  }
  Ref take() { return dict_.take(); }

 private:
  std::string object(common::RecipeId id) const {
    const ir::Recipe& recipe = trace_.recipes[id.index()];
    return recipe.object.valid()
               ? cpython::ObjectTable::describe(recording_.objects.get(recipe.object))
               : "...";
  }

  void add(const std::string& path, common::RecipeId id) {
    if (!id.valid() || !seen_.insert(id).second) return;
    const ir::Recipe& recipe = trace_.recipes[id.index()];
    auto child = [&](size_t i) { return recipe.children[i]; };
    switch (recipe.kind) {
      case ir::RecipeKind::Value:
        if (auto maker = makers_.find(recipe.value.value); maker != makers_.end())
          dict_.set(path, text(*maker->second));
        break;
      case ir::RecipeKind::List:
      case ir::RecipeKind::Tuple:
      case ir::RecipeKind::NamedTuple:
        for (size_t i = 0; i < recipe.children.size(); i++)
          add(fmt::format("{}[{}]", path, i), child(i));
        break;
      case ir::RecipeKind::Dict:
      case ir::RecipeKind::OrderedDict:
        for (size_t i = 0; i + 1 < recipe.children.size(); i += 2)
          add(fmt::format("{}[{}]", path, object(child(i))), child(i + 1));
        break;
      case ir::RecipeKind::Object:
        if (!child(0).valid()) break;
        addAttributes(path, trace_.recipes[child(0).index()]);
        break;
      default:
        break;
    }
  }

  void addAttributes(const std::string& path, const ir::Recipe& dict) {
    for (size_t i = 0; i + 1 < dict.children.size(); i += 2) {
      std::string name = object(dict.children[i]);
      if (name.size() > 2) name = name.substr(1, name.size() - 2);  // without its quotes
      add(path + "." + name, dict.children[i + 1]);
    }
  }

  std::string text(const ir::Event& event) const {
    std::string name(ir::nameOf(event.kind));
    if (event.kind == ir::EventKind::Op) name = recording_.ops.operatorName(event.op);
    return fmt::format("{} at {}", name, siteText(trace_, event.site));
  }

  const ir::Trace& trace_;
  const trace::Recording& recording_;
  std::unordered_map<uint32_t, const ir::Event*> makers_;
  std::unordered_set<common::RecipeId> seen_;
  DictBuilder dict_;
};

// What native code does of the trace: None without any, or while it is being made.
Ref nativeDict(const CompiledTrace& trace) {
  const std::shared_ptr<const NativeReport> report =
      trace.native ? trace.native->report() : nullptr;
  if (!report) return Ref::borrow(Py_None);
  const ir::Trace& t = trace.recording->trace;
  ListBuilder operators, kernels;
  for (const OperatorFate& fate : report->operators) {
    const ir::Event& event = t.events[fate.event];
    const bool kernel = fate.kind == OperatorFate::Kind::Kernel;
    DictBuilder dict;
    dict.set("op", trace.recording->ops.operatorName(event.op));
    dict.set("site", siteText(t, event.site));
    dict.set("kernel", kernel ? static_cast<int64_t>(fate.kernel) : -1);
    dict.set("packed", static_cast<int64_t>(fate.kind == OperatorFate::Kind::Packed));
    dict.set("attention", static_cast<int64_t>(fate.kind == OperatorFate::Kind::Attention));
    dict.set("removed", static_cast<int64_t>(fate.kind == OperatorFate::Kind::Removed));
    dict.set("reason", fate.reason ? common::info(*fate.reason).id : "");
    operators.add(dict.take());
  }
  for (const std::string& text : report->kernels) kernels.add(text);
  DictBuilder dict;
  dict.set("operators", operators.take());
  dict.set("kernels", kernels.take());
  dict.set("failure", report->failure);
  dict.set("mismatches", static_cast<int64_t>(report->mismatches));
  return dict.take();
}

Ref traceDict(const CompiledTrace& trace) {
  const ir::Trace& t = trace.recording->trace;
  fillTexts(trace);
  ListBuilder ops, names, breaks, guards;
  for (const replay::Segment& segment : trace.plan->segments()) {
    ops.add(static_cast<int64_t>(segment.operators));
    ListBuilder inSegment;
    for (size_t e = segment.begin; e < segment.end; e++)
      if (t.events[e].kind == ir::EventKind::Op)
        inSegment.add(trace.recording->ops.operatorName(t.events[e].op));
    names.add(inSegment.take());
  }
  for (const Refusal& refusal : trace.breaks) breaks.add(refusalDict(refusal));
  for (const ir::Guard& guard : t.guards) {
    DictBuilder dict;
    dict.set("text", guardText(trace, guard));
    dict.set("kind", ir::nameOf(guard.kind));
    dict.set("site", siteText(t, guard.site));
    guards.add(dict.take());
  }
  int64_t forks = 0;
  for (const ir::Event& event : t.events) forks += event.kind == ir::EventKind::Fork;
  DictBuilder dict;
  dict.set("graphs", static_cast<int64_t>(graphCount(trace)));
  dict.set("segments", static_cast<int64_t>(trace.plan->segments().size()));
  dict.set("ops", ops.take());
  dict.set("op_names", names.take());
  dict.set("breaks", breaks.take());
  dict.set("forks", forks);
  dict.set("guards", guards.take());
  dict.set("record_s", trace.recordSeconds);
  dict.set("result_sites", ResultSites(trace).take());
  dict.set("text", ir::print(t));
  dict.set("native", nativeDict(trace));
  return dict.take();
}

// Operands as nested Python values; ("v", id) stands for a value.
Ref operandValue(const CompiledTrace& trace, const ir::Operand& operand) {
  switch (operand.kind) {
    case ir::Operand::Kind::None:
      return Ref::borrow(Py_None);
    case ir::Operand::Kind::Value:
      return Ref::steal(Py_BuildValue("(sI)", "v", operand.value.value));
    case ir::Operand::Kind::Const:
      return Ref::steal(trace.recording->ops.toPython(operand.constant));
    case ir::Operand::Kind::List: {
      ListBuilder list;
      for (const ir::Operand& item : operand.items) list.add(operandValue(trace, item));
      return list.take();
    }
  }
  return Ref();
}

// A number for Python: the plan runs such an operator itself.
bool givesScalar(const ir::Trace& trace, const ir::Event& event) {
  for (ValueId id : event.results)
    if (id.valid() && trace.values[id.index()].kind == ir::ValueKind::Scalar) return true;
  return false;
}

Ref opDict(const CompiledTrace& trace, const ir::Event& event) {
  ListBuilder args, results, lengths;
  for (const ir::Operand& operand : event.operands) args.add(operandValue(trace, operand));
  for (ValueId id : event.results) results.add(id.valid() ? static_cast<int64_t>(id.value) : -1);
  for (int32_t length : event.resultLengths) lengths.add(static_cast<int64_t>(length));
  DictBuilder dict;
  dict.set("target", trace.recording->ops.operatorName(event.op));
  dict.set("args", args.take());
  dict.set("kwargs", Ref::steal(PyDict_New()));
  dict.set("results", results.take());
  dict.set("result_lengths", lengths.take());
  dict.set("site", siteText(trace.recording->trace, event.site));
  return dict.take();
}

}  // namespace

void logTrace(const std::string& name, const CompiledTrace& trace) {
  const ir::Trace& t = trace.recording->trace;
  if (common::logs(Channel::Events)) common::log(Channel::Events, "{}:\n{}", name, ir::print(t));
  if (common::logs(Channel::Guards))
    for (const ir::Guard& guard : t.guards)
      common::log(Channel::Guards, "{}: {}", name, guardText(trace, guard));
  if (common::logs(Channel::Plans)) {
    std::string sizes;
    for (const auto& segment : trace.plan->segments())
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", segment.operators);
    common::log(Channel::Plans, "{}: trace {}, {} segments of [{}] operators", name, trace.number,
                trace.plan->segments().size(), sizes);
  }
}

void fillTexts(const CompiledTrace& trace) {
  ir::Trace& t = trace.recording->trace;
  const cpython::ObjectTable& objects = trace.recording->objects;
  while (t.objectTexts.size() < objects.size()) {
    size_t next = t.objectTexts.size();
    std::string text = cpython::ObjectTable::describe(objects.get(common::ObjectId(next)));
    // Another thread may have come in between.
    if (next == t.objectTexts.size()) t.objectTexts.push_back(std::move(text));
  }
}

size_t graphCount(const CompiledTrace& trace) {
  size_t graphs = 0;
  bool open = false;
  for (const ir::Event& event : trace.recording->trace.events) {
    if (ir::breaksGraph(event)) open = false;
    if (event.kind != ir::EventKind::Op || open) continue;
    open = true;
    graphs++;
  }
  return graphs;
}

bool Entry::roundsOtherwise() const {
  for (const auto& group : groups_)
    for (const auto& trace : group->traces)
      if (trace->native && trace->native->roundsOtherwise()) return true;
  return false;
}

PyObject* describe(const Entry& entry) {
  // Of one moment: while Python objects are made other threads record and reset.
  std::vector<std::shared_ptr<CompiledTrace>> now;
  for (const auto& group : entry.groups())
    now.insert(now.end(), group->traces.begin(), group->traces.end());
  std::optional<Refusal> refused = entry.eager() ? entry.eager() : entry.lastRefusal();
  const bool eager = entry.eager().has_value();
  ListBuilder traces;
  for (const auto& trace : now) traces.add(traceDict(*trace));
  ListBuilder callees;
  for (const auto& callee : entry.callees()) callees.add(Ref::steal(describe(*callee)));
  DictBuilder dict;
  dict.set("name", entry.name());
  dict.set("callees", callees.take());
  dict.set("traces", traces.take());
  dict.set("refused", refused ? refusalDict(*refused) : Ref::borrow(Py_None));
  dict.set("eager", Ref::borrow(eager ? Py_True : Py_False));
  dict.set("breaks",
           Ref::borrow(refused && !common::mayPass(refused->reason) ? Py_True : Py_False));
  return dict.take().release();
}

PyObject* graphOf(const CompiledTrace& trace, size_t index, const std::vector<Ref>& fetched) {
  const ir::Trace& t = trace.recording->trace;
  const replay::Segment& segment = trace.plan->segments()[index];
  const auto& wanted = trace.plan->wanted();
  auto example = [&](ValueId id) -> PyObject* {
    common::SourceId source = t.values[id.index()].source;
    for (size_t i = 0; !fetched.empty() && source.valid() && i < wanted.size(); i++)
      if (wanted[i] == source) return fetched[i].get();
    return Py_None;
  };
  ListBuilder inputs, ops, outputs;
  for (ValueId id : segment.inputs)
    inputs.add(Ref::steal(Py_BuildValue("(IO)", id.value, example(id))));
  for (size_t e = segment.begin; e < segment.end; e++)
    if (t.events[e].kind == ir::EventKind::Op && !givesScalar(t, t.events[e]))
      ops.add(opDict(trace, t.events[e]));
  for (ValueId id : segment.outputs) outputs.add(static_cast<int64_t>(id.value));
  DictBuilder dict;
  dict.set("inputs", inputs.take());
  dict.set("ops", ops.take());
  dict.set("outputs", outputs.take());
  return dict.take().release();
}

}  // namespace glowplug::engine
