#include "aten_support.h"

#include <algorithm>
#include <functional>

const char* glowplug::testing::helpers() {
  return R"(
import gc, math, warnings, weakref, torch, torch.nn as nn, torch.nn.functional as F

def flat(o):
    if isinstance(o, torch.Tensor): return [o]
    if isinstance(o, dict): o = o.values()
    if isinstance(o, str) or not hasattr(o, '__iter__'): return []
    return [t for x in o for t in flat(x)]

def copies(tensors):
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]

def traits(t):
    strided = t.layout == torch.strided
    return (type(t), t.dtype, t.layout, tuple(t.shape), t.stride() if strided else None,
            t.requires_grad, t.is_inference(), t._is_view(), t.is_leaf,
            type(t.grad_fn), t.is_conj(), t.is_neg())

def difference(a, b):
    if len(a) != len(b): return f'{len(a)} results, {len(b)} from the replay'
    for i, (x, y) in enumerate(zip(a, b)):
        if y is None: return f'{i}: nothing'
        if traits(x) != traits(y): return f'{i}: {traits(x)} {traits(y)}'
        if repr(x.tolist()) != repr(y.tolist()): return f'{i}: {x} {y}'
    return ''
)";
}

namespace glowplug::aten::testing {

void Recorded::onScalar(ValueId value, PyObject* scalar) {
  scalars.emplace_back(value, Ref::borrow(scalar));
}

void Recorded::onRefuse(const char* reason, const std::string& detail) {
  EXPECT_EQ(refusal, "") << "refused twice";
  refusal = std::string(reason) + ": " + detail;
}

void Recorded::record(const std::string& function, const std::string& inputList) {
  OpRecorder recorder(trace, table, *this);
  Ref list = Python::eval(inputList);
  Ref arguments = Ref::steal(PySequence_Tuple(list.get()));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); ++i) {
    inputs.push_back(recorder.addInput(PyTuple_GET_ITEM(arguments.get(), i), {}));
  }
  Ref callee = Python::eval(function);
  recorder.start();
  result = Ref::steal(PyObject_CallObject(callee.get(), arguments.get()));
  recorder.syncState();
  if (result) {
    Python::set("_result", result.get());
    OpRecorder::Pause pause;
    Ref tensors = Python::eval("flat(_result)");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors.get()); ++i) {
      results.push_back(recorder.find(PyList_GET_ITEM(tensors.get(), i)));
    }
  }
  recorder.stop();
  EXPECT_EQ(inside, 0);
}

std::vector<std::vector<ValueId>> Recorded::lastUses() const {
  std::vector<std::vector<ValueId>> uses(trace.events.size());
  if (keepAll) return uses;
  std::vector<size_t> last(trace.values.size(), trace.events.size());
  std::function<void(const ir::Operand&, size_t)> visit = [&](const ir::Operand& operand,
                                                              size_t event) {
    if (operand.kind == ir::Operand::Kind::Value) last[operand.value.index()] = event;
    for (const ir::Operand& item : operand.items) visit(item, event);
  };
  for (size_t i = 0; i < trace.events.size(); ++i) {
    for (ValueId id : trace.events[i].results) last[id.index()] = i;
    for (const ir::Operand& operand : trace.events[i].operands) visit(operand, i);
  }
  for (size_t id = 0; id < last.size(); ++id) {
    bool needed = std::find(results.begin(), results.end(), ValueId(id)) != results.end();
    if (!needed && last[id] < uses.size()) uses[last[id]].push_back(ValueId(id));
  }
  return uses;
}

Ref Recorded::replay(const std::string& inputList) {
  Ref list = Python::eval(inputList);
  OpProgram program(trace, table, lastUses());
  Values values(trace.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.setTensor(inputs[i], PyList_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i)));
  }
  if (warnAtOnce) values.passWarningsOn();
  StateRestore restore;
  status = program.run(values, 0, trace.events.size(), &failed);
  if (status != OpProgram::Done) return {};
  restore.dismiss();
  warned = values.passWarningsOn();
  Ref flat = Ref::steal(PyList_New(0));
  for (ValueId id : results) {
    Ref object = id.valid() ? Ref::steal(values.object(id)) : Ref::borrow(Py_None);
    PyList_Append(flat.get(), object.get());
  }
  return flat;
}

const ir::Event& Recorded::only(const std::string& name) const {
  const ir::Event* found = nullptr;
  for (const ir::Event& event : trace.events) {
    if (event.kind != ir::EventKind::Op || trace.operatorNames.at(event.op.index()) != name)
      continue;
    EXPECT_EQ(found, nullptr) << "more than one " << name;
    found = &event;
  }
  EXPECT_NE(found, nullptr) << "no " << name << " in\n" << text();
  static const ir::Event none;
  return found ? *found : none;
}

bool Recorded::has(const std::string& name) const {
  return std::any_of(trace.events.begin(), trace.events.end(), [&](const ir::Event& event) {
    return event.kind == ir::EventKind::Op && trace.operatorNames.at(event.op.index()) == name;
  });
}

std::string Recorded::text() const {
  std::string text;
  for (const ir::Event& event : trace.events) {
    text += event.kind == ir::EventKind::State
                ? "state " + std::to_string(static_cast<int>(event.state.kind))
                : trace.operatorNames.at(event.op.index());
    for (ValueId id : event.results) {
      text += " %" + std::to_string(id.value);
      if (value(id).meta.valid()) text += ":" + trace.metaTexts.at(value(id).meta.index());
    }
    text += "\n";
  }
  return text + refusal;
}

}  // namespace glowplug::aten::testing
