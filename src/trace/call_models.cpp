// Callables in C, by the kind of their row in callees.def: what they read is guarded before they
// run, what they write is noted, what they make is known.

#include <fmt/format.h>

#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::StepKind;

// The callable that takes all of args, where callee may be bound to the first of them; nothing when
// there is none to be found.
Ref Recorder::unboundFunction(PyObject* callee, const Arguments& args) {
  if (Py_IS_TYPE(callee, &_PyMethodWrapper_Type)) return Ref::borrow(unboundSlotWrapper(callee));
  bool bound = PyCFunction_Check(callee) && PyCFunction_GET_SELF(callee) && args.count() &&
               PyCFunction_GET_SELF(callee) == args.values[0];
  if (!bound) return Ref::borrow(callee);
  Ref name = Ref::steal(PyObject_GetAttrString(callee, "__name__"));
  return Ref::borrow(name ? _PyType_Lookup(Py_TYPE(args.values[0]), name.get()) : nullptr);
}

// What is known about a callee that a replay calls again.
Recorder::OpaqueKind Recorder::opaqueKind(const Callee& model, PyObject* first) const {
  if (model.kind == CalleeKind::Known) return OpaqueKind::Known;
  if (model.kind == CalleeKind::Keeps) return OpaqueKind::Keeps;
  if (model.kind == CalleeKind::NodeHook)
    return first && kept_.count(first) ? OpaqueKind::Keeps : OpaqueKind::Unknown;
  return OpaqueKind::Output;
}

PyObject* Recorder::callC(PyObject* callee, const Callee& model, const Arguments& args,
                          const Invoke& invoke) {
  PyObject* first = args.count() ? args.values[0] : nullptr;
  if (model.kind == CalleeKind::Pure || model.kind == CalleeKind::Shallow ||
      model.kind == CalleeKind::Iter || model.kind == CalleeKind::ListWrite)
    noteHanded(callee, args);
  switch (model.kind) {
    case CalleeKind::Unknown:
      return callUnknown(callee, args, invoke);
    case CalleeKind::Forbidden:
      refuse("opaque_call", calleeName(callee));
      return invoke();
    case CalleeKind::LogOnly:
    case CalleeKind::Clock:
    case CalleeKind::Collect:
    case CalleeKind::Known:
    case CalleeKind::Keeps:
    case CalleeKind::NodeHook:
      return callOpaque(callee, args, invoke, opaqueKind(model, first), "opaque_call");
    case CalleeKind::Print:
      return callPrint(callee, args, invoke);
    case CalleeKind::Skipped:
      return callSkipped(invoke);
    case CalleeKind::NodeName:
      return invoke();
    case CalleeKind::Function:
    case CalleeKind::SavedHooks:
    case CalleeKind::RetainGrad:
      return callAutograd(callee, model, args, invoke);
    case CalleeKind::Generator:
      return callGenerator(callee, args, invoke);
    case CalleeKind::Python:
      return callPython(first, invoke);
    default:
      return callRead(callee, model, args, invoke);
  }
}

// What is called at the recording alone, its operators and guards being the trace's.
PyObject* Recorder::callRead(PyObject* callee, const Callee& model, const Arguments& args,
                             const Invoke& invoke) {
  switch (model.kind) {
    case CalleeKind::Tensor:
    case CalleeKind::TensorQuery:
    case CalleeKind::TensorSizes:
    case CalleeKind::TensorContiguous:
    case CalleeKind::TensorData:
    case CalleeKind::TensorItem:
      return callTensor(callee, model, args, invoke);
    case CalleeKind::Pure:
    case CalleeKind::IsInstance:
    case CalleeKind::Shallow:
    case CalleeKind::Construct:
    case CalleeKind::Length:
    case CalleeKind::Iter:
    case CalleeKind::Next:
      return callReading(callee, model, args, invoke);
    case CalleeKind::State:
    case CalleeKind::AutocastClear:
    case CalleeKind::ContextGet:
    case CalleeKind::ContextSet:
    case CalleeKind::ContextReset:
      return callState(model, args, invoke);
    case CalleeKind::Identity:
      return args.count() ? callIdentity(args.values[0], invoke) : invoke();
    case CalleeKind::Reduce:
      return callReduce(callee, args, invoke);
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

// What reads or changes the thread's state.
PyObject* Recorder::callState(const Callee& model, const Arguments& args, const Invoke& invoke) {
  if (model.kind == CalleeKind::AutocastClear) return callAutocastClear(invoke);
  if (model.kind != CalleeKind::State) return callContextVariable(model, args, invoke);
  deepReadAll(args);
  return invoke();
}

// What enters something into autograd's graph.
PyObject* Recorder::callAutograd(PyObject* callee, const Callee& model, const Arguments& args,
                                 const Invoke& invoke) {
  switch (model.kind) {
    case CalleeKind::SavedHooks:
      return callSavedHooks(callee, args, invoke);
    case CalleeKind::RetainGrad:
      return callRetainGrad(args, invoke);
    default:
      return callFunction(callee, args, invoke);
  }
}

// Functions of C whose work is done by Python code that is evaluated.
PyObject* Recorder::callPython(PyObject* first, const Invoke& invoke) {
  if (first && PyGen_CheckExact(first) && isSourced(first)) refuse("generator_input", "generator");
  return invoke();
}

PyObject* Recorder::callAutocastClear(const Invoke& invoke) {
  PyObject* result = invoke();
  if (result && active_) ops_->addAutocastClear();
  return result;
}

// Functions that read their arguments, keep and change nothing.
PyObject* Recorder::callReading(PyObject* callee, const Callee& model, const Arguments& args,
                                const Invoke& invoke) {
  PyObject* first = args.count() ? args.values[0] : nullptr;
  bool looks = model.kind != CalleeKind::IsInstance && model.kind != CalleeKind::Construct;
  if (looks && anyForeign(args))
    return callOpaque(callee, args, invoke, foreignKind(args.values, args.count()), "opaque_call");
  switch (model.kind) {
    case CalleeKind::Pure:
      return callPure(callee, args, invoke);
    case CalleeKind::IsInstance: {
      if (args.count() != 2) {
        deepReadAll(args);
        return invoke();
      }
      static PyObject* name = PyUnicode_InternFromString("__instancecheck__");
      typeAttr(Py_TYPE(args.values[1]), name);
      readAll(args.values[1]);
      return invoke();
    }
    case CalleeKind::Length:
      if (first) {
        if (aten::isTensor(first)) useSizes(first);
        useScalar(first);
        readLength(first);
      }
      return invoke();
    case CalleeKind::Iter:
      return args.count() == 1 ? iter(first) : invoke();
    case CalleeKind::Next:
      if (first && isSourced(first) && iteratesInC(first))
        refuse("generator_input", Py_TYPE(first)->tp_name);
      return invoke();
    default:
      // zip(*rows), chain(*lists): the function iterates over what it is given, no deeper.
      for (size_t i = 0; i < args.count(); i++) {
        PyObject* argument = args.values[i];
        readAll(argument);
        if (isSourced(argument) && iteratesInC(argument))
          refuse("generator_input", Py_TYPE(argument)->tp_name);
      }
      return invoke();
  }
}

PyObject* Recorder::callPure(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  bool number = callee == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
                callee == reinterpret_cast<PyObject*>(&PyLong_Type);
  if (number && args.count() == 1 && aten::isTensor(args.values[0])) return callItem(invoke);
  if (computesScalar(args.values, args.count())) {
    Ref function = unboundFunction(callee, args);
    PyObject* result = invoke();
    return noteComputed(function.get(), args.values, args.count(), args.kwnames, result);
  }
  deepReadAll(args);
  PyObject* result = invoke();
  noteTensorResult(result, callee);
  return result;
}

// id() and hash() by address. The number differs from call to call; what a program does with it
// depends only on which of the objects it asked about are the same, so that is what is guarded. The
// number itself must not leave the call.
PyObject* Recorder::callIdentity(PyObject* object, const Invoke& invoke) {
  SourceId source = provenance_.find(object);
  useScalar(object);
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
      bool noted = !evaluated && beforeAttrWrite(target, name, value);
      PyObject* result = invoke();
      if (noted && result) afterAttrWrite(target, name, value);
      return result;
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
      return callOpaque(callee, args, invoke, OpaqueKind::Known, "data_value");
    case CalleeKind::TensorItem:
      return callItem(invoke);
    default:
      break;
  }
  // Arrays go into tensors by memory that they share.
  if (anyForeign(args)) return callOpaque(callee, args, invoke, OpaqueKind::Known, "opaque_call");
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
  switch (model.kind) {
    case CalleeKind::DictGetItem:
      if (key && PyDict_Check(self)) return dictItem(self, key, invoke);
      return invoke();
    case CalleeKind::DictGet:
    case CalleeKind::DictContains:
      if (key && PyDict_Check(self)) readKey(self, key);
      if (key) useScalar(key);
      return invoke();
    case CalleeKind::DictRead:
    case CalleeKind::ListRead:
    case CalleeKind::SetRead:
    case CalleeKind::DequeRead:
      if (provenance_.find(self).valid() || !scalars_.empty()) deepReadAll(args);
      for (size_t i = 1; i < args.count(); i++) deepRead(args.values[i]);
      return invoke();
    case CalleeKind::ListGetItem:
      if (key) readItem(self, key);
      return invoke();
    default:
      break;
  }
  bool sourced = provenance_.find(self).valid();
  if (!beforeContainerWrite(model, args, sourced) || !sourced || !active_) return invoke();
  Ref method = unboundFunction(callee, args);
  if (!method) return callUnknown(callee, args, invoke);
  std::vector<Ref> given;  // the call may drop the last reference to what it is given
  for (size_t i = 0; i < args.count(); i++) given.push_back(Ref::borrow(args.values[i]));
  // Described before it runs: an argument that is taken over may be changed by it.
  ir::Event event;
  PendingEffect pending = describeEffect(event, method.get(), args);
  PyObject* result = invoke();
  if (result)
    emitEffect(std::move(event), std::move(pending));
  else if (changedBefore(self))
    refuse("unsupported_write", "a method changed a container and raised");
  return result;
}

// Guards what the method's work depends on, and keeps what was there. False: nothing is written.
bool Recorder::beforeContainerWrite(const Callee& model, const Arguments& args, bool sourced) {
  PyObject* self = args.values[0];
  PyObject* key = args.count() > 1 ? args.values[1] : nullptr;
  switch (model.kind) {
    case CalleeKind::DictSetItem:
    case CalleeKind::DictDelItem:
      if (!key) return false;
      useScalar(key);
      if (!sourced) return true;
      if (!pinKey(key)) refuse("unguardable", "a dict key that is a tensor or hashes by address");
      beforeWrite(self);
      if (model.kind == CalleeKind::DictDelItem) readKey(self, key);
      wroteKey(self, key);
      return true;
    case CalleeKind::DictPop:
    case CalleeKind::DictSetDefault: {
      if (!key) return false;
      useScalar(key);
      if (!sourced) return true;
      readKey(self, key);
      bool present = PyDict_Contains(self, key) == 1;
      if (present == (model.kind == CalleeKind::DictSetDefault)) return false;
      beforeWrite(self);
      wroteKey(self, key);
      return true;
    }
    case CalleeKind::ListAppend:
      if (sourced) beforeWrite(self);
      return true;
    case CalleeKind::SetWrite:
      for (size_t i = 1; i < args.count(); i++) deepRead(args.values[i]);
      break;
    default:
      break;
  }
  // Whole-container writes: what they do depends on what is there.
  for (size_t i = 1; i < args.count(); i++) readAll(args.values[i]);
  if (!sourced) return true;
  readAll(self);
  beforeWrite(self);
  if (!active_) return true;
  if (Provenance::Written* entry = written(self)) entry->whole = true;
  return true;
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

namespace {

// numpy's shuffle writes into what it is given, a list as well.
bool shufflesObject(PyObject* callee, PyObject* given) {
  Ref name = Ref::steal(PyObject_GetAttrString(callee, "__name__"));
  if (!name) PyErr_Clear();
  return name && PyUnicode_Check(name.get()) && !isForeign(given) &&
         PyUnicode_CompareWithASCIIString(name.get(), "shuffle") == 0;
}

}  // namespace

// What has no model. The arrays of numpy and what else keeps to itself are told from the rest by
// the classes of what the call is about.
PyObject* Recorder::callUnknown(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  OpaqueKind kind = OpaqueKind::Unknown;
  if (isKnownModule(callee) || (args.count() && isForeign(args.values[0])))
    kind = foreignKind(args.values, args.count());
  if (kind == OpaqueKind::Known && args.count() == 2 && shufflesObject(callee, args.values[1]))
    kind = OpaqueKind::Unknown;
  return callOpaque(callee, args, invoke, kind, "opaque_call");
}

}  // namespace glowplug::trace
