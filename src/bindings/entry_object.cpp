// glowplug._C.Entry: engine::Entry as a Python object. It is called by vectorcall, takes attributes
// (__wrapped__ and the like), can be referred to weakly and takes part in garbage collection.

#include "bindings/entry_object.h"

#include <structmember.h>

#include <cmath>
#include <memory>
#include <unordered_set>

#include "bindings/entry_options.h"
#include "bindings/verify.h"
#include "engine/entry.h"
#include "trace/callees.h"

namespace glowplug::bindings {

using cpython::Ref;

namespace {

struct EntryObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  engine::Entry* entry;
};

std::unordered_set<EntryObject*>& living() {
  static auto* entries = new std::unordered_set<EntryObject*>();
  return *entries;
}

EntryObject* asEntry(PyObject* self) { return reinterpret_cast<EntryObject*>(self); }

// What the function returns; a C++ exception as a Python error.
template <class Function>
PyObject* guarded(Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "glowplug: %s", error.what());
    return nullptr;
  }
}

PyObject* callEntry(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  engine::Entry& entry = *asEntry(self)->entry;
  // Where the original itself runs there is nothing to compare.
  if (entry.options().verify && !isVerifying() && !engine::isRecording() &&
      !engine::Entry::bypassReason())
    return callVerified(self, args, PyVectorcall_NARGS(nargsf), kwnames);
  return guarded(
      [&] { return entry.call(args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames); });
}

PyObject* newEntry(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"callable", "name",    "backend",   "lower",
                                "options",  "dynamic", "fullgraph", nullptr};
  PyObject *callable, *lower = Py_None, *options = Py_None, *dynamic = Py_None, *backend = nullptr;
  const char* name = "";
  int fullgraph = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os|OOOOp", const_cast<char**>(names), &callable,
                                   &name, &backend, &lower, &options, &dynamic, &fullgraph))
    return nullptr;
  if (!PyCallable_Check(callable)) {
    PyErr_Format(PyExc_TypeError, "Entry needs a callable, not %.100s", Py_TYPE(callable)->tp_name);
    return nullptr;
  }
  engine::Backend target;
  const bool named = !backend || PyUnicode_Check(backend);
  if (backend && named) target.name = PyUnicode_AsUTF8(backend);
  common::Options parsed;
  if (readOptions(options, named && lower == Py_None ? target.name : "", &parsed) < 0)
    return nullptr;
  if (lower != Py_None) target.lower = Ref::borrow(lower);
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  EntryObject* object = asEntry(self);
  object->vectorcall = callEntry;
  object->entry = new engine::Entry(callable, name, std::move(target), parsed, fullgraph != 0);
  living().insert(object);
  return self;
}

int traverseEntry(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(asEntry(self)->dict);
  return asEntry(self)->entry ? asEntry(self)->entry->traverse(visit, arg) : 0;
}

int clearEntry(PyObject* self) {
  Py_CLEAR(asEntry(self)->dict);
  if (asEntry(self)->entry) asEntry(self)->entry->clear();
  return 0;
}

void deallocEntry(PyObject* self) {
  PyObject_GC_UnTrack(self);
  EntryObject* object = asEntry(self);
  living().erase(object);
  if (object->weakrefs) PyObject_ClearWeakRefs(self);
  Py_CLEAR(object->dict);
  delete object->entry;
  object->entry = nullptr;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// Bound like a function: a decorated method gets its object.
PyObject* bindEntry(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* describeEntry(PyObject* self, PyObject*) {
  return guarded([&] { return engine::describe(*asEntry(self)->entry); });
}

PyObject* toleranceOfEntry(PyObject* self, PyObject*) {
  const engine::Entry& entry = *asEntry(self)->entry;
  if (!entry.roundsOtherwise()) Py_RETURN_NONE;
  return PyFloat_FromDouble(std::pow(10, -static_cast<double>(entry.options().verifyDigits)));
}

PyObject* resetEntry(PyObject* self, PyObject*) {
  asEntry(self)->entry->reset();
  Py_RETURN_NONE;
}

PyObject* entryCallable(PyObject* self, void*) {
  PyObject* callable = asEntry(self)->entry->callable();
  return Py_NewRef(callable ? callable : Py_None);
}

PyMethodDef methods[] = {
    {"describe", describeEntry, METH_NOARGS,
     "describe() -> dict: the traces, their graphs, breaks and guards; why the "
     "last call that was not recorded was not, whether the entry stays eager "
     "for it, and whether it breaks the graph."},
    {"tolerance", toleranceOfEntry, METH_NOARGS,
     "tolerance() -> float | None: how far, relatively, float results of calls may be from the "
     "original's for verify mode; None while no trace has native code: equal to the bit."},
    {"reset", resetEntry, METH_NOARGS, "reset(): forgets all traces."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(EntryObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(EntryObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(EntryObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef getsets[] = {
    {"callable", entryCallable, nullptr, "What was compiled.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Entry(callable, name, backend=None, lower=None, options=None, "
                                  "dynamic=None, fullgraph=False): a compiled callable.")},
    {Py_tp_new, reinterpret_cast<void*>(newEntry)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocEntry)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverseEntry)},
    {Py_tp_clear, reinterpret_cast<void*>(clearEntry)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bindEntry)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getsets},
    {0, nullptr}};

PyType_Spec spec = {"glowplug._C.Entry", sizeof(EntryObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

}  // namespace

int addEntryType(PyObject* module) {
  Ref type = Ref::steal(PyType_FromSpec(&spec));
  if (!type) return -1;
  trace::addTransparentCallable(reinterpret_cast<PyTypeObject*>(type.get()));
  return PyModule_AddObjectRef(module, "Entry", type.get());
}

void resetAllEntries() {
  std::vector<Ref> entries;  // resetting may run destructors that make or drop entries
  for (EntryObject* object : living())
    entries.push_back(Ref::borrow(reinterpret_cast<PyObject*>(object)));
  for (const Ref& entry : entries) asEntry(entry.get())->entry->reset();
}

}  // namespace glowplug::bindings
