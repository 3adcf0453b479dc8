// Fallback by frame: what a frame that cannot be recorded calls is compiled by itself.

#include "engine/callee_entries.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "aten/op_table.h"
#include "cpython/modules.h"
#include "insight/counters.h"
#include "trace/evaluator.h"

namespace glowplug::engine {

using cpython::Ref;

namespace {

// Entries below entries below entries...: where functions call themselves.
constexpr size_t kDeepest = 12;
// A replay costs about as much as Python around one operator.
constexpr size_t kLeastOperators = 2;

// What the running frame is called on; of this thread.
thread_local PyObject* ownModule = nullptr;

PyTypeObject* moduleClass() {
  static PyTypeObject* type = cpython::moduleType("torch.nn", "Module");
  return type;
}

bool isModule(PyObject* object) {
  return moduleClass() && PyObject_TypeCheck(object, moduleClass());
}

// Called like any module: not an entry, and not with a __call__ of its own.
bool callsForward(PyObject* module) {
  static PyObject* name = PyUnicode_InternFromString("__call__");
  return _PyType_Lookup(Py_TYPE(module), name) == _PyType_Lookup(moduleClass(), name);
}

PyCodeObject* codeOf(PyObject* function) {
  return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
}

std::string_view textOf(PyObject* text) {
  const char* chars = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (!chars) PyErr_Clear();
  return chars ? chars : "";
}

// The function is part of the frame that calls it.
bool belongsToFrame(PyObject* function, PyObject* self) {
  const PyCodeObject* code = codeOf(function);
  const std::string_view name = textOf(code->co_name);
  if (name == "<listcomp>" || name == "<setcomp>" || name == "<dictcomp>") return true;
  if (!self || self != ownModule) return false;
  if (name == "forward") return true;
  static PyObject* callModule =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(moduleClass()), "_call_impl");
  return callModule && PyFunction_Check(callModule) &&
         PyUnicode_Compare(code->co_filename, codeOf(callModule)->co_filename) == 0 &&
         (name == "_wrapped_call_impl" || name == "_call_impl" || name == "inner");
}

bool isOfTorch(PyObject* function) {
  const std::string_view module =
      textOf(reinterpret_cast<PyFunctionObject*>(function)->func_module);
  return module == "torch" || module.substr(0, 6) == "torch.";
}

bool givesTensor(const guard::Call& call) {
  const size_t named = call.kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(call.kwnames)) : 0;
  for (size_t i = 0; i < call.positional + named; i++)
    if (aten::isTensor(call.args[i])) return true;
  return false;
}

// A Python function or a module that may be an entry: not a generator, not one of torch's own.
bool isCandidate(const guard::Call& call) {
  if (!givesTensor(call)) return false;
  if (!PyFunction_Check(call.callee)) return isModule(call.callee) && callsForward(call.callee);
  constexpr int kSuspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return !(codeOf(call.callee)->co_flags & kSuspends) && !isOfTorch(call.callee);
}

Ref weakly(PyObject* object) {
  Ref weak = Ref::steal(PyWeakref_NewRef(object, nullptr));
  if (!weak) PyErr_Clear();
  return weak;
}

bool isAlive(const Ref& weak) { return PyWeakref_GET_OBJECT(weak.get()) != Py_None; }

std::string nameOf(PyObject* callee) {
  if (PyFunction_Check(callee)) return std::string(textOf(codeOf(callee)->co_qualname));
  return Py_TYPE(callee)->tp_name;
}

}  // namespace

CalleeEntries::CalleeEntries(Backend backend, common::Options options, size_t depth)
    : backend_(std::move(backend)), options_(options), depth_(depth) {}
CalleeEntries::~CalleeEntries() = default;

PyObject* CalleeEntries::run(const guard::Call& call) {
  struct Own {
    explicit Own(PyObject* self) : outer(std::exchange(ownModule, self)) {}
    ~Own() { ownModule = outer; }
    PyObject* outer;
  };
  runs_++;
  PyObject* self = PyMethod_Check(call.callee) ? PyMethod_GET_SELF(call.callee)
                   : PyFunction_Check(call.callee) && call.positional > 0 ? call.args[0]
                                                                          : call.callee;
  Own own(isModule(self) ? self : nullptr);
  trace::EvaluationScope scope(*this);
  return PyObject_Vectorcall(call.callee, call.args, call.positional, call.kwnames);
}

std::vector<std::shared_ptr<Entry>> CalleeEntries::entries() const {
  std::vector<std::shared_ptr<Entry>> found;
  for (const auto& [key, callee] : callees_)
    if (callee.entry) found.push_back(callee.entry);
  return found;
}

int CalleeEntries::traverse(visitproc visit, void* arg) const {
  for (const auto& [key, callee] : callees_) {
    Py_VISIT(callee.function.get());
    Py_VISIT(callee.self.get());
    if (!callee.entry) continue;
    if (int status = callee.entry->traverse(visit, arg)) return status;
  }
  return 0;
}

PyObject* CalleeEntries::call(PyObject* callee, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  const auto positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  if (PyMethod_Check(callee)) {
    std::vector<PyObject*> values{PyMethod_GET_SELF(callee)};
    const size_t named = kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0;
    values.insert(values.end(), args, args + positional + named);
    Ref function = Ref::borrow(PyMethod_GET_FUNCTION(callee));
    return call(function.get(), values.data(), positional + 1, kwnames);
  }
  if (PyFunction_Check(callee) && belongsToFrame(callee, positional ? args[0] : nullptr))
    return Operations::call(callee, args, nargsf, kwnames);
  const guard::Call given{callee, args, positional, kwnames};
  const bool candidate = depth_ < kDeepest && isCandidate(given);
  const bool method = PyFunction_Check(callee) && positional && isModule(args[0]);
  const Key key{callee, method ? args[0] : nullptr};
  std::shared_ptr<Entry> entry = candidate ? entryOf(key) : nullptr;
  trace::EvaluationPause pause;
  if (!entry) return Operations::call(callee, args, nargsf, kwnames);
  Ref result = Ref::steal(entry->callAs(given));
  if (result) judge(key, *entry);
  return result.release();
}

PyObject* CalleeEntries::callEx(PyObject* callee, PyObject* tuple, PyObject* dict) {
  const bool known = PyFunction_Check(callee) || PyMethod_Check(callee) || isModule(callee);
  if (!known || (dict && !PyDict_CheckExact(dict))) {
    trace::EvaluationPause pause;
    return Operations::callEx(callee, tuple, dict);
  }
  std::vector<PyObject*> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
    values.push_back(PyTuple_GET_ITEM(tuple, i));
  Ref names;
  if (dict && PyDict_GET_SIZE(dict)) {
    names = Ref::steal(PySequence_Tuple(dict));
    if (!names) return nullptr;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
      if (!PyUnicode_Check(key)) {  // raises
        trace::EvaluationPause pause;
        return Operations::callEx(callee, tuple, dict);
      }
      values.push_back(value);
    }
  }
  // What is called may change the dict that the values stand in.
  std::vector<Ref> held;
  for (PyObject* value : values) held.push_back(Ref::borrow(value));
  return call(callee, values.data(), static_cast<size_t>(PyTuple_GET_SIZE(tuple)), names.get());
}

// Known from its second call on: functions that are made anew at each call are never worth it.
std::shared_ptr<Entry> CalleeEntries::entryOf(Key key) {
  auto found = callees_.find(key);
  if (found != callees_.end()) {
    Callee& callee = found->second;
    if (isAlive(callee.function) && (!callee.self || isAlive(callee.self))) {
      if (callee.direct) return nullptr;
      return callee.entry ? callee.entry : made(key);
    }
  }
  // Making weak references and dropping entries may run code that comes back here.
  Callee fresh{weakly(key.function), key.self ? weakly(key.self) : Ref(), nullptr, false};
  if (!fresh.function || (key.self && !fresh.self)) return nullptr;
  if (callees_.size() >= purgeAt_) dropDead();
  Callee& place = callees_[key];
  if (place.entry && !place.direct) entries_--;
  std::swap(place, fresh);
  return nullptr;
}

std::shared_ptr<Entry> CalleeEntries::made(Key key) {
  auto entry =
      std::make_shared<Entry>(nullptr, nameOf(key.function), backend_, options_, depth_ + 1);
  callees_.at(key).entry = entry;
  entries_++;
  insight::counters().add(insight::Stat::callee_entries);
  return entry;
}

// An entry whose recording has next to nothing in it costs more than it gives.
void CalleeEntries::judge(Key key, const Entry& entry) {
  if (entry.groups().size() != 1 || entry.groups()[0]->traces.size() != 1) return;
  const CompiledTrace& trace = *entry.groups()[0]->traces[0];
  if (trace.fork || !trace.recording) return;
  size_t operators = 0;
  for (const auto& segment : trace.plan->segments()) operators += segment.operators;
  const size_t least = options_.native ? 1 : kLeastOperators;
  if (operators >= least) return;
  auto found = callees_.find(key);
  if (found == callees_.end() || found->second.entry.get() != &entry || found->second.direct)
    return;
  found->second.direct = true;
  entries_--;
  std::shared_ptr<Entry> dropped = std::move(found->second.entry);
}

void CalleeEntries::dropDead() {
  std::vector<Callee> dropped;  // they go when the table is in order again
  for (auto at = callees_.begin(); at != callees_.end();) {
    Callee& callee = at->second;
    if (isAlive(callee.function) && (!callee.self || isAlive(callee.self))) {
      ++at;
      continue;
    }
    if (callee.entry && !callee.direct) entries_--;
    dropped.push_back(std::move(callee));
    at = callees_.erase(at);
  }
  purgeAt_ = std::max<size_t>(256, callees_.size() * 2);
}

}  // namespace glowplug::engine
