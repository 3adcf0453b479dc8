// Calls. Python functions need nothing: their frames come back through the evaluator. What is
// written in C reads and writes out of our sight, so each such callee has a model (callees.def)
// that guards what it reads before it runs; one without a model makes the recording refuse.

#include <fmt/format.h>

#include <cstring>

#include "cpython/lru_cache.h"
#include "cpython/modules.h"
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
  if (!active_) letResultsGo();
  if (!active_ && !follow_ && !stopping_) return Operations::call(callee, args, nargsf, kwnames);
  Arguments arguments{args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames};
  PyObject* result =
      dispatch(callee, arguments, [&] { return Operations::call(callee, args, nargsf, kwnames); });
  if (result && active_ && PyType_Check(result)) noteClass(callee, result);
  return audited(result, "a call of", callee);
}

// A class that a call gives is new if a class statement or a metaclass made it.
void Recorder::noteClass(PyObject* callee, PyObject* result) {
  static PyObject* build = cpython::moduleAttribute("builtins", "__build_class__");
  bool meta = PyType_Check(callee) &&
              PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(callee), &PyType_Type);
  if (callee == build || (meta && Py_TYPE(result) == reinterpret_cast<PyTypeObject*>(callee) &&
                          !provenance_.find(result).valid()))
    provenance_.addFresh(result);
}

PyObject* Recorder::callEx(PyObject* callee, PyObject* tuple, PyObject* dict) {
  if (!active_) letResultsGo();
  if (!active_ && !follow_ && !stopping_) return Operations::callEx(callee, tuple, dict);
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
  if (result && active_ && PyType_Check(result)) noteClass(callee, result);
  return audited(result, "a call of", callee);
}

PyObject* Recorder::dispatch(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  if (active_) endResults();
  if (!active_) return callAfterRefusal(invoke);
  if (PyFunction_Check(callee)) {
    switch (pythonCalleeModel(callee)) {
      case CalleeKind::Forbidden:
        return callOpaque(callee, args, invoke, OpaqueKind::Unknown, "disabled");
      case CalleeKind::LogOnly:
        return callOpaque(callee, args, invoke, OpaqueKind::Output, "opaque_call");
      case CalleeKind::Known:
        return callOpaque(callee, args, invoke, OpaqueKind::Known, "opaque_call");
      case CalleeKind::Backward:
        return callBackward(callee, args, invoke);
      case CalleeKind::CheckMethods: {
        if (!args.count() || !PyType_Check(args.values[0])) return invoke();
        auto* type = reinterpret_cast<PyTypeObject*>(args.values[0]);
        for (size_t i = 1; i < args.count(); i++) typeAttr(type, args.values[i]);
        return callSkipped(invoke);
      }
      case CalleeKind::Hook:
        return callHook(callee, args, invoke);
      case CalleeKind::Skipped:
        return callSkipped(invoke);
      case CalleeKind::Unwrapped: {
        Ref wrapped = Ref::steal(PyObject_GetAttrString(callee, "__wrapped__"));
        if (!wrapped) return nullptr;
        return PyObject_Vectorcall(wrapped.get(), args.values, args.positional, args.kwnames);
      }
      default:
        return invoke();
    }
  }
  noteBound(callee);
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
    PyObject* self = boundTo(callee);
    if (!self) return callC(callee, model, args, invoke);
    std::vector<PyObject*> values{self};
    values.insert(values.end(), args.values, args.values + args.count());
    return callC(callee, model, {values.data(), args.positional + 1, args.kwnames}, invoke);
  }
  return callObject(callee, args, invoke);
}

PyObject* Recorder::callSkipped(const Invoke& invoke) {
  EvaluationPause pause;
  aten::OpRecorder::Pause opsPause;
  return invoke();
}

// What a replay has done must not be done again, although nothing can be recorded any more.
PyObject* Recorder::callAfterRefusal(const Invoke& invoke) {
  if (stopping_) return stop(), nullptr;
  if (!follow_ || !(follow_->opaquePending() || follow_->operators().pending())) return invoke();
  PyErr_Format(PyExc_RuntimeError,
               "glowplug: the program took another way when it was run again up to where its "
               "replay had stopped: %s",
               refusal_ ? refusal_->text().c_str() : "");
  return nullptr;
}

// What a callable in C is bound to and passes on as its first argument; borrowed, or nullptr.
PyObject* Recorder::boundTo(PyObject* callee) {
  if (PyCFunction_Check(callee)) {
    PyObject* self = PyCFunction_GET_SELF(callee);
    return self && (PyModule_Check(self) || isPinnable(callee)) ? nullptr : self;
  }
  if (!Py_IS_TYPE(callee, &_PyMethodWrapper_Type)) return nullptr;
  Ref bound = Ref::steal(PyObject_GetAttrString(callee, "__self__"));
  return bound.get();  // kept alive by the wrapper
}

// What a method is bound to, where the method itself came from outside.
void Recorder::noteBound(PyObject* callee) {
  bool method = PyMethod_Check(callee);
  bool builtin = PyCFunction_Check(callee) && PyCFunction_GET_SELF(callee);
  if (!method && !builtin && !Py_IS_TYPE(callee, &_PyMethodWrapper_Type)) return;
  SourceId source = provenance_.find(callee);
  if (!source.valid()) return;
  if (!method && !builtin) {
    static PyObject* name = PyUnicode_InternFromString("__self__");
    Ref bound = Ref::steal(PyObject_GetAttr(callee, name));
    if (bound) noteLoad(child(source, StepKind::GetAttr, name), bound.get());
    return;
  }
  noteLoad(child(source, StepKind::MethodSelf),
           method ? PyMethod_GET_SELF(callee) : PyCFunction_GET_SELF(callee));
  if (method) noteLoad(child(source, StepKind::MethodFunc), PyMethod_GET_FUNCTION(callee));
}

// A compiled function hands the call on to what it was made of.
void Recorder::noteWrapped(SourceId entry, PyObject* object) {
  static PyObject* field = PyUnicode_InternFromString("callable");
  Ref inner = Ref::steal(PyObject_GetAttr(object, field));
  if (!inner) return PyErr_Clear();
  if (!entry.valid()) return;
  noteLoad(child(entry, StepKind::GetAttr, field), inner.get());
}

// What a partial holds, where it came from outside: the function, and all that it hands on.
bool Recorder::notePartial(PyObject* partial) {
  SourceId source = provenance_.find(partial);
  auto part = [&](const char* name, StepKind step) {
    Ref value = Ref::steal(PyObject_GetAttrString(partial, name));
    if (value && source.valid()) noteLoad(child(source, step), value.get());
    return value;
  };
  Ref function = part("func", StepKind::PartialFunc);
  Ref before = part("args", StepKind::PartialArgs);
  Ref keywords = part("keywords", StepKind::PartialKwargs);
  if (!function || !before || !keywords) return false;
  readAll(before.get());
  readAll(keywords.get());
  return true;
}

PyObject* Recorder::callPartial(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  if (!notePartial(callee)) return nullptr;
  Ref function = Ref::steal(PyObject_GetAttrString(callee, "func"));
  Ref before = Ref::steal(PyObject_GetAttrString(callee, "args"));
  Ref keywords = Ref::steal(PyObject_GetAttrString(callee, "keywords"));
  if (!function || !before || !keywords) return nullptr;
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

// functools.lru_cache: the cache is asked again at each replay. Where it has no answer the
// program's function runs, of which nothing is known, and the call is not recorded: the next one
// finds it.
PyObject* Recorder::callCached(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  PyObject* helper = cpython::cachedCall();
  if (!helper) return nullptr;
  deepReadAll(args);
  std::vector<PyObject*> values{callee};
  values.insert(values.end(), args.values, args.values + args.count());
  const Py_ssize_t misses = cpython::cacheMisses(callee);
  Ref result = Ref::steal(callOpaque(helper, {values.data(), args.positional + 1, args.kwnames},
                                     invoke, OpaqueKind::Output, "opaque_call"));
  if (result && cpython::cacheMisses(callee) != misses) refuse("cache_filled", calleeName(callee));
  return result.release();
}

// Objects that are called: partials, instances of classes with __call__, caches.
PyObject* Recorder::callObject(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  const WellKnown& known = wellKnown();
  PyTypeObject* type = Py_TYPE(callee);
  if (isTransparentCallable(type)) {
    noteWrapped(sourceOf(callee), callee);
    return invoke();
  }
  if (PyWeakref_CheckRef(callee) && args.count() == 0) {
    PyObject* result = invoke();
    SourceId source = provenance_.find(callee);
    if (result && source.valid()) noteLoad(child(source, StepKind::Referent), result);
    return result;
  }
  if (PyObject_TypeCheck(callee, known.partial)) return callPartial(callee, args, invoke);
  if (cpython::isLruCache(callee)) return callCached(callee, args, invoke);
  static PyObject* name = PyUnicode_InternFromString("__call__");
  PyObject* method = typeAttr(type, name);
  if (method && PyFunction_Check(method)) return invoke();  // evaluated
  if (method && Py_IS_TYPE(method, &PyStaticMethod_Type)) {
    // A compiled module: its call is an entry.
    static PyObject* field = PyUnicode_InternFromString("__func__");
    Ref entry = Ref::steal(PyObject_GetAttr(method, field));
    if (entry && isTransparentCallable(Py_TYPE(entry.get()))) {
      SourceId place = child(pinned(reinterpret_cast<PyObject*>(type)), StepKind::TypeAttr, name);
      noteWrapped(child(place, StepKind::GetAttr, field), entry.get());
      return invoke();
    }
    PyErr_Clear();
  }
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

}  // namespace glowplug::trace
