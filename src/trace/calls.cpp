// Calls. Python functions need nothing: their frames come back through the evaluator. What is
// written in C reads and writes out of our sight, so each such callee has a model (callees.def)
// that guards what it reads before it runs; one without a model makes the recording refuse.

#include <fmt/format.h>

#include <cstring>

#include "trace/evaluator.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::StepKind;

namespace {

bool isBuiltinBase(PyTypeObject* type) {
  const WellKnown& known = wellKnown();
  return type == &PyBaseObject_Type || type == &PyDict_Type || type == &PyList_Type ||
         type == &PyTuple_Type || type == &PySet_Type || type == &PyFrozenSet_Type ||
         type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
         type == &PyType_Type || type == known.orderedDict || type == known.defaultDict ||
         type == known.deque || type == known.torchSize || type == &PyProperty_Type ||
         PyType_FastSubclass(type, Py_TPFLAGS_BASE_EXC_SUBCLASS);
}

// Constructing through this __new__ / __init__ runs Python code or the builtin base's, nothing
// else.
bool isKnownConstructor(PyObject* slot) {
  if (!slot) return true;
  Ref inner;
  if (Py_IS_TYPE(slot, &PyStaticMethod_Type) || Py_IS_TYPE(slot, &PyClassMethod_Type)) {
    inner = Ref::steal(PyObject_GetAttrString(slot, "__func__"));
    slot = inner.get();
  }
  if (!slot || PyFunction_Check(slot)) return true;
  if (Py_IS_TYPE(slot, &PyWrapperDescr_Type))
    return isBuiltinBase(reinterpret_cast<PyDescrObject*>(slot)->d_type);
  if (PyCFunction_Check(slot)) {
    PyObject* self = PyCFunction_GET_SELF(slot);
    return self && PyType_Check(self) && isBuiltinBase(reinterpret_cast<PyTypeObject*>(self));
  }
  return false;
}

}  // namespace

void Recorder::deepReadAll(const Arguments& args) {
  for (size_t i = 0; active_ && i < args.count(); i++) deepRead(args.values[i]);
}

// A tensor that came out of a C call must be one the dispatcher showed us.
void Recorder::noteTensorResult(PyObject* result, PyObject* callee) {
  if (!active_ || !result) return;
  if (aten::isTensor(result)) {
    if (!ops_->find(result).valid())
      refuse("unknown_tensor",
             fmt::format("returned by {}", callee ? calleeName(callee) : "an operator"));
  } else if (PyTuple_Check(result)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++)
      noteTensorResult(PyTuple_GET_ITEM(result, i), callee);
  } else if (PyList_CheckExact(result)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result); i++)
      noteTensorResult(PyList_GET_ITEM(result, i), callee);
  }
}

PyObject* Recorder::call(PyObject* callee, PyObject* const* args, size_t nargsf,
                         PyObject* kwnames) {
  if (!active_) return Operations::call(callee, args, nargsf, kwnames);
  Arguments arguments{args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames};
  PyObject* result =
      dispatch(callee, arguments, [&] { return Operations::call(callee, args, nargsf, kwnames); });
  return audited(result, "a call of", callee);
}

PyObject* Recorder::callEx(PyObject* callee, PyObject* tuple, PyObject* dict) {
  if (!active_) return Operations::callEx(callee, tuple, dict);
  readAll(tuple);
  if (dict) readAll(dict);
  std::vector<PyObject*> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
    values.push_back(PyTuple_GET_ITEM(tuple, i));
  Ref names;
  if (dict && PyDict_CheckExact(dict) && PyDict_GET_SIZE(dict)) {
    names = Ref::steal(PySequence_Tuple(dict));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) values.push_back(value);
  }
  Arguments arguments{values.data(), static_cast<size_t>(PyTuple_GET_SIZE(tuple)), names.get()};
  PyObject* result =
      dispatch(callee, arguments, [&] { return Operations::callEx(callee, tuple, dict); });
  return audited(result, "a call of", callee);
}

PyObject* Recorder::dispatch(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  if (!active_) return invoke();
  if (PyFunction_Check(callee)) {
    CalleeKind kind = pythonCalleeModel(callee);
    if (kind == CalleeKind::Python) return invoke();
    if (kind == CalleeKind::LogOnly) return callLogOnly(callee, args, invoke);
    refuse("disabled", calleeName(callee));
    return invoke();
  }
  if (PyMethod_Check(callee)) {
    std::vector<PyObject*> values{PyMethod_GET_SELF(callee)};
    values.insert(values.end(), args.values, args.values + args.count());
    return dispatch(PyMethod_GET_FUNCTION(callee),
                    {values.data(), args.positional + 1, args.kwnames}, invoke);
  }
  if (PyType_Check(callee)) return callType(reinterpret_cast<PyTypeObject*>(callee), args, invoke);
  Callee model = calleeModel(callee);
  if (PyCFunction_Check(callee) || model.kind != CalleeKind::Unknown ||
      Py_IS_TYPE(callee, &PyMethodDescr_Type) || Py_IS_TYPE(callee, &PyWrapperDescr_Type) ||
      Py_IS_TYPE(callee, &_PyMethodWrapper_Type)) {
    // Bound to an object: the object is the first argument of the model.
    PyObject* self = nullptr;
    if (PyCFunction_Check(callee)) {
      self = PyCFunction_GET_SELF(callee);
      if (self && (PyModule_Check(self) || isPinnable(callee))) self = nullptr;
    } else if (Py_IS_TYPE(callee, &_PyMethodWrapper_Type)) {
      Ref bound = Ref::steal(PyObject_GetAttrString(callee, "__self__"));
      self = bound.get();  // kept alive by the wrapper
    }
    if (!self) return callC(callee, model, args, invoke);
    std::vector<PyObject*> values{self};
    values.insert(values.end(), args.values, args.values + args.count());
    return callC(callee, model, {values.data(), args.positional + 1, args.kwnames}, invoke);
  }
  return callObject(callee, args, invoke);
}

// Objects that are called: partials, instances of classes with __call__, caches.
PyObject* Recorder::callObject(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  const WellKnown& known = wellKnown();
  PyTypeObject* type = Py_TYPE(callee);
  if (isTransparentCallable(type)) return invoke();
  if (PyObject_TypeCheck(callee, known.partial)) {
    SourceId source = provenance_.find(callee);
    auto part = [&](const char* name, StepKind step) {
      Ref value = Ref::steal(PyObject_GetAttrString(callee, name));
      if (value && source.valid()) noteLoad(child(source, step), value.get());
      return value;
    };
    Ref function = part("func", StepKind::PartialFunc);
    Ref before = part("args", StepKind::PartialArgs);
    Ref keywords = part("keywords", StepKind::PartialKwargs);
    if (!function || !before || !keywords) return nullptr;
    readAll(before.get());
    readAll(keywords.get());
    if (PyFunction_Check(function.get())) return invoke();
    std::vector<PyObject*> values;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(before.get()); i++)
      values.push_back(PyTuple_GET_ITEM(before.get(), i));
    size_t positional = values.size() + args.positional;
    values.insert(values.end(), args.values, args.values + args.count());
    if (PyDict_GET_SIZE(keywords.get())) {
      PyObject *key, *value;
      Py_ssize_t position = 0;
      while (PyDict_Next(keywords.get(), &position, &key, &value)) deepRead(value);
    }
    return dispatch(function.get(), {values.data(), positional, args.kwnames}, invoke);
  }
  if (std::strcmp(type->tp_name, "functools._lru_cache_wrapper") == 0) {
    deepReadAll(args);
    PyObject* result = invoke();
    if (result && active_ && !isConstant(result) && !isPinnable(result) && !isSourced(result))
      refuse("unguardable", calleeName(callee) + " returns a cached object");
    return result;
  }
  static PyObject* name = PyUnicode_InternFromString("__call__");
  PyObject* method = typeAttr(type, name);
  if (method && PyFunction_Check(method)) return invoke();  // evaluated
  return callUnknown(callee, args, invoke);
}

PyObject* Recorder::callType(PyTypeObject* type, const Arguments& args, const Invoke& invoke) {
  PyObject* callee = reinterpret_cast<PyObject*>(type);
  if (type == &PyType_Type && args.count() == 1) return invoke();
  Callee model = calleeModel(callee);
  if (model.kind != CalleeKind::Unknown) return callC(callee, model, args, invoke);
  PyTypeObject* meta = Py_TYPE(callee);
  static PyObject* callName = PyUnicode_InternFromString("__call__");
  static PyObject* newName = PyUnicode_InternFromString("__new__");
  static PyObject* initName = PyUnicode_InternFromString("__init__");
  PyObject* metaCall = typeAttr(meta, callName);
  bool known = metaCall && (PyFunction_Check(metaCall) ||
                            (Py_IS_TYPE(metaCall, &PyWrapperDescr_Type) &&
                             reinterpret_cast<PyDescrObject*>(metaCall)->d_type == &PyType_Type));
  PyObject* made = typeAttr(type, newName);
  PyObject* init = typeAttr(type, initName);
  known = known && isKnownConstructor(made) && isKnownConstructor(init);
  if (!known && !PyType_IsSubtype(type, &PyTuple_Type)) return callUnknown(callee, args, invoke);
  // A container's own constructor reads its arguments.
  bool container = PyType_IsSubtype(type, &PyDict_Type) || PyType_IsSubtype(type, &PyList_Type) ||
                   PyType_IsSubtype(type, &PyTuple_Type) || PyType_IsSubtype(type, &PySet_Type);
  if (container)
    for (size_t i = 0; i < args.count(); i++) readAll(args.values[i]);
  if (PyType_IsSubtype(type, &PyLong_Type) || PyType_IsSubtype(type, &PyFloat_Type) ||
      PyType_IsSubtype(type, &PyUnicode_Type))
    deepReadAll(args);
  return invoke();
}

PyObject* Recorder::callC(PyObject* callee, const Callee& model, const Arguments& args,
                          const Invoke& invoke) {
  PyObject* first = args.count() ? args.values[0] : nullptr;
  switch (model.kind) {
    case CalleeKind::Unknown:
      return callUnknown(callee, args, invoke);
    case CalleeKind::Forbidden:
      refuse("opaque_call", calleeName(callee));
      return invoke();
    case CalleeKind::Python:
      if (first && PyGen_CheckExact(first) && isSourced(first))
        refuse("generator_input", "generator");
      return invoke();
    case CalleeKind::Tensor:
    case CalleeKind::TensorQuery:
    case CalleeKind::TensorSizes:
    case CalleeKind::TensorContiguous:
    case CalleeKind::TensorData:
    case CalleeKind::TensorItem:
      return callTensor(callee, model, args, invoke);
    case CalleeKind::Pure:
    case CalleeKind::IsInstance: {
      if (model.kind == CalleeKind::IsInstance && args.count() == 2) {
        static PyObject* name = PyUnicode_InternFromString("__instancecheck__");
        typeAttr(Py_TYPE(args.values[1]), name);
        if (!scalars_.empty() && scalars_.count(first)) return invoke();
        readAll(args.values[1]);
        return invoke();
      }
      deepReadAll(args);
      PyObject* result = invoke();
      noteTensorResult(result, callee);
      return result;
    }
    case CalleeKind::Shallow:
    case CalleeKind::Construct:
      for (size_t i = 0; i < args.count(); i++) {
        PyObject* argument = args.values[i];
        readAll(argument);
        if (isSourced(argument) && PyIter_Check(argument) &&
            !(Py_TYPE(argument)->tp_flags & Py_TPFLAGS_HEAPTYPE))
          refuse("generator_input", Py_TYPE(argument)->tp_name);
        // zip(*rows), chain(*lists): the function iterates over what it is given, no deeper.
      }
      return invoke();
    case CalleeKind::State:
      deepReadAll(args);
      return invoke();
    case CalleeKind::AutocastClear: {
      PyObject* result = invoke();
      if (result && active_) ops_->addAutocastClear();
      return result;
    }
    case CalleeKind::ContextGet:
    case CalleeKind::ContextSet:
    case CalleeKind::ContextReset:
      return callContextVariable(model, args, invoke);
    case CalleeKind::LogOnly:
    case CalleeKind::Clock:
      return callLogOnly(callee, args, invoke);
    case CalleeKind::Length:
      if (first) {
        if (aten::isTensor(first)) useSizes(first);
        readLength(first);
      }
      return invoke();
    case CalleeKind::Iter:
      if (args.count() == 1) return iter(first);
      return invoke();
    case CalleeKind::Next:
      if (first && isSourced(first) && !(Py_TYPE(first)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        refuse("generator_input", Py_TYPE(first)->tp_name);
      return invoke();
    case CalleeKind::Identity:
      return first ? callIdentity(first, invoke) : invoke();
    case CalleeKind::GetAttr:
    case CalleeKind::HasAttr:
    case CalleeKind::SetAttr:
    case CalleeKind::DelAttr:
    case CalleeKind::GenericGetAttr:
    case CalleeKind::GenericSetAttr:
    case CalleeKind::GenericDelAttr:
      return callAttribute(model, args, invoke);
    default:
      return callContainer(callee, model, args, invoke);
  }
}

// id() and hash() by address. The number differs from call to call; what a program does with it
// depends only on which of the objects it asked about are the same, so that is what is guarded. The
// number itself must not leave the call.
PyObject* Recorder::callIdentity(PyObject* object, const Invoke& invoke) {
  SourceId source = provenance_.find(object);
  if (PyTuple_Check(object)) deepRead(object);
  if (source.valid() && !isConstant(object) && !isPinnable(object)) {
    constexpr size_t kMostObjects = 200;
    if (identified_.size() >= kMostObjects)
      refuse("unguardable", "the addresses (id, hash) of very many objects");
    bool known = false;
    for (PyObject* other : identified_) {
      known |= other == object;
      if (other != object && Py_TYPE(other) == Py_TYPE(object))
        guardOther(ir::PredicateKind::NotSameAs, source, provenance_.find(other));
    }
    if (!known) identified_.push_back(object);
  }
  PyObject* result = invoke();
  if (result && PyLong_CheckExact(result) && !isConstant(object))
    addresses_.insert(PyLong_AsUnsignedLongLongMask(result));
  return result;
}

PyObject* Recorder::callAttribute(const Callee& model, const Arguments& args,
                                  const Invoke& invoke) {
  if (args.count() < 2 || !PyUnicode_Check(args.values[1])) return invoke();
  PyObject* target = args.values[0];
  PyObject* name = args.values[1];
  switch (model.kind) {
    case CalleeKind::SetAttr:
    case CalleeKind::DelAttr: {
      PyObject* value =
          model.kind == CalleeKind::SetAttr && args.count() == 3 ? args.values[2] : nullptr;
      if (storeAttr(target, name, value) < 0) return nullptr;
      return Py_NewRef(Py_None);
    }
    case CalleeKind::GenericSetAttr:
    case CalleeKind::GenericDelAttr: {
      PyObject* value = args.count() == 3 ? args.values[2] : nullptr;
      if (aten::isTensor(target)) {
        if (storeTensorAttr(target, name, value) < 0) return nullptr;
        return Py_NewRef(Py_None);
      }
      PyObject* descriptor = typeAttr(Py_TYPE(target), name);
      bool evaluated = descriptor && Py_TYPE(descriptor)->tp_descr_set &&
                       (Py_IS_TYPE(descriptor, &PyProperty_Type) ||
                        (Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_HEAPTYPE));
      if (!evaluated) writeAttr(target, name, value);
      return invoke();
    }
    default:
      break;
  }
  if (aten::isTensor(target)) {
    Ref value = Ref::steal(tensorAttr(target, name));
    if (!value) PyErr_Clear();
    return invoke();
  }
  bool direct = model.kind == CalleeKind::GenericGetAttr && !PyType_Check(target);
  SourceId place =
      direct ? readGenericAttr(target, sourceOf(target), name) : readAttr(target, name);
  PyObject* result = invoke();
  if (!result || !active_ || !place.valid()) return result;
  if (model.kind == CalleeKind::HasAttr) {
    // What it found stands at the place itself: no Python code is run again to see it.
    Ref value = PyType_Check(target)
                    ? Ref::borrow(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(target), name))
                    : Ref::steal(PyObject_GenericGetAttr(target, name));
    if (value)
      noteLoad(place, value.get());
    else
      PyErr_Clear();
  } else {
    noteLoad(place, result);  // there is a place only where the attribute was found
  }
  return result;
}

PyObject* Recorder::callTensor(PyObject* callee, const Callee& model, const Arguments& args,
                               const Invoke& invoke) {
  PyObject* self = args.count() ? args.values[0] : nullptr;
  bool onTensor = self && aten::isTensor(self);
  switch (model.kind) {
    case CalleeKind::TensorQuery:
      return invoke();
    case CalleeKind::TensorSizes:
    case CalleeKind::TensorContiguous:
      if (onTensor) useSizes(self);
      return invoke();
    case CalleeKind::TensorData:
      refuse("data_value", calleeName(callee));
      return invoke();
    case CalleeKind::TensorItem: {
      expectScalar_ = true;
      PyObject* result = invoke();
      expectScalar_ = false;
      if (!active_ || !result) return result;
      if (PyFloat_CheckExact(result) && pendingScalars_.size() == 1) {
        // The float object is new: its identity carries the value on to where it is used.
        scalars_[result] = pendingScalars_[0].first;
        scalarObjects_.push_back(Ref::borrow(result));
        pendingScalars_.clear();
      } else {
        pinPending();
      }
      return result;
    }
    default:
      break;
  }
  deepReadAll(args);
  PyObject* result = invoke();
  noteTensorResult(result, callee);
  return result;
}

// Methods of builtin containers.
PyObject* Recorder::callContainer(PyObject* callee, const Callee& model, const Arguments& args,
                                  const Invoke& invoke) {
  if (!args.count()) return invoke();
  PyObject* self = args.values[0];
  PyObject* key = args.count() > 1 ? args.values[1] : nullptr;
  bool sourced = provenance_.find(self).valid();
  switch (model.kind) {
    case CalleeKind::DictGet:
    case CalleeKind::DictContains:
    case CalleeKind::DictGetItem:
      if (key && PyDict_Check(self)) readKey(self, key);
      return invoke();
    case CalleeKind::DictRead:
    case CalleeKind::ListRead:
    case CalleeKind::SetRead:
    case CalleeKind::DequeRead:
      if (sourced || !scalars_.empty()) deepReadAll(args);
      for (size_t i = 1; i < args.count(); i++) deepRead(args.values[i]);
      return invoke();
    case CalleeKind::ListGetItem:
      if (key) readItem(self, key);
      return invoke();
    case CalleeKind::DictSetItem:
    case CalleeKind::DictDelItem:
      if (!key) return invoke();
      if (sourced) {
        if (!pinKey(key)) refuse("unguardable", "a dict key that is a tensor or hashes by address");
        beforeWrite(self);
        if (model.kind == CalleeKind::DictDelItem) readKey(self, key);
        wroteKey(self, key);
      }
      break;
    case CalleeKind::DictPop:
    case CalleeKind::DictSetDefault:
      if (!key) return invoke();
      if (sourced) {
        readKey(self, key);
        bool present = PyDict_Contains(self, key) == 1;
        if (present == (model.kind == CalleeKind::DictSetDefault)) return invoke();  // no write
        beforeWrite(self);
        wroteKey(self, key);
      }
      break;
    case CalleeKind::ListAppend:
      if (sourced) beforeWrite(self);
      break;
    default:  // whole-container writes: what they do depends on what is there
      for (size_t i = 1; i < args.count(); i++) readAll(args.values[i]);
      if (sourced) {
        readAll(self);
        beforeWrite(self);
        if (active_) provenance_.written(self)->whole = true;
      }
      break;
  }
  if (!sourced || !active_) return invoke();
  PyObject* method = callee;
  Ref unbound;
  if (!Py_IS_TYPE(callee, &PyMethodDescr_Type) && !Py_IS_TYPE(callee, &PyWrapperDescr_Type)) {
    if (Py_IS_TYPE(callee, &_PyMethodWrapper_Type)) {
      unbound = Ref::borrow(unboundSlotWrapper(callee));
    } else {
      Ref name = Ref::steal(PyObject_GetAttrString(callee, "__name__"));
      unbound = Ref::borrow(name ? _PyType_Lookup(Py_TYPE(self), name.get()) : nullptr);
    }
    if (!unbound) return callUnknown(callee, args, invoke);
    method = unbound.get();
  }
  emitCall(method, args);
  return invoke();
}

// A context variable may be read, and set as long as the call puts back what was there.
PyObject* Recorder::callContextVariable(const Callee& model, const Arguments& args,
                                        const Invoke& invoke) {
  PyObject* variable = args.values[0];
  bool known = false;
  for (const auto& [set, before] : contextVariables_) known |= set.get() == variable;
  if (model.kind == CalleeKind::ContextSet && !known) {
    PyObject* before = nullptr;
    if (PyContextVar_Get(variable, nullptr, &before) < 0) return nullptr;
    contextVariables_.emplace_back(Ref::borrow(variable), Ref::steal(before));
  }
  PyObject* result = invoke();
  if (model.kind != CalleeKind::ContextGet || known || !active_ || !result) return result;
  SourceId source = sourceOf(variable);
  PyObject* value = nullptr;
  if (!source.valid() || PyContextVar_Get(variable, nullptr, &value) < 0) return result;
  Ref found = Ref::steal(value);
  if (found && found.get() == result)
    noteLoad(child(source, StepKind::ContextValue), result);
  else
    refuse("unguardable", "a context variable without a value");
  return result;
}

// Output that the program cannot see, and clocks: called again at each replay, in order.
PyObject* Recorder::callLogOnly(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  ir::Event event;
  event.kind = ir::EventKind::Opaque;
  event.logOnly = true;
  // What is printed is a snapshot: the objects may change later.
  std::unordered_map<PyObject*, common::RecipeId> outer;
  std::swap(outer, recipes_);
  event.recipes.push_back(recipe(callee));
  for (size_t i = 0; i < args.count(); i++) event.recipes.push_back(recipe(args.values[i]));
  std::swap(outer, recipes_);
  if (args.kwnames && PyTuple_GET_SIZE(args.kwnames)) event.keywords = objectId(args.kwnames);
  ops_->syncState();
  PyObject* result;
  {
    EvaluationPause pause;
    aten::OpRecorder::Pause opsPause;
    result = invoke();
  }
  ops_->acceptState();
  if (!result || !active_) return result;
  if (PyFloat_CheckExact(result)) {
    common::ValueId value(trace().values.size());
    trace().values.push_back({ir::ValueKind::Object, SourceId(), common::MetaId(), false});
    event.results.push_back(value);
    scalars_[result] = value;
    clocks_.insert(value.value);
    scalarObjects_.push_back(Ref::borrow(result));
  } else if (result != Py_None) {
    refuse("opaque_call", calleeName(callee));
  }
  emit(std::move(event));
  return result;
}

PyObject* Recorder::callUnknown(PyObject* callee, const Arguments&, const Invoke& invoke) {
  refuse("opaque_call", calleeName(callee));
  return invoke();
}

}  // namespace glowplug::trace
