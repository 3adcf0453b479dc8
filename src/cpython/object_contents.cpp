#include "cpython/object_contents.h"

#include "cpython/modules.h"
#include "cpython/object_fields.h"

namespace glowplug::cpython {

namespace {

bool isDeque(PyObject* object) {
  PyTypeObject* type = dequeType();
  return type && PyObject_TypeCheck(object, type);
}

bool callMethod(PyTypeObject* type, const char* name, PyObject* self, PyObject* argument) {
  Ref method = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  return method && Ref::steal(PyObject_CallFunctionObjArgs(method.get(), self, argument, NULL));
}

PyObject* twinOf(PyObject* object, const Twins& twins) {
  auto found = twins.find(object);
  return found == twins.end() ? object : found->second;
}

// The contents with every item's twin in its place.
Ref withTwins(PyObject* contents, const Twins& twins) {
  const bool dict = PyDict_Check(contents);
  Ref items = Ref::steal(dict ? PyMapping_Items(contents) : PySequence_List(contents));
  if (!items) return items;
  Ref made = Ref::steal(PyODict_Check(contents)    ? PyODict_New()
                        : dict                     ? PyDict_New()
                        : PyAnySet_Check(contents) ? PySet_New(nullptr)
                                                   : PyList_New(0));
  for (Py_ssize_t i = 0; made && i < PyList_GET_SIZE(items.get()); i++) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    int status = 0;
    if (dict)
      status = PyObject_SetItem(made.get(), twinOf(PyTuple_GET_ITEM(item, 0), twins),
                                twinOf(PyTuple_GET_ITEM(item, 1), twins));
    else if (PySet_Check(made.get()))
      status = PySet_Add(made.get(), twinOf(item, twins));
    else
      status = PyList_Append(made.get(), twinOf(item, twins));
    if (status < 0) return {};
  }
  return made;
}

bool takeContents(PyObject* container, PyObject* from, const Twins& twins) {
  Ref contents = contentsOf(from);
  if (contents) contents = withTwins(contents.get(), twins);
  return contents && putContents(container, contents.get());
}

void takeField(PyObject** field, PyObject* value, const Twins& twins) {
  PyObject* taken = value ? twinOf(value, twins) : nullptr;
  Py_XINCREF(taken);
  Py_XSETREF(*field, taken);
}

}  // namespace

bool isContainer(PyObject* object) {
  return PyDict_Check(object) || PyList_Check(object) || PySet_Check(object) || isDeque(object);
}

Ref contentsOf(PyObject* container) {
  if (PyODict_Check(container))
    return Ref::steal(
        PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyODict_Type), container, NULL));
  if (PyDict_Check(container)) return Ref::steal(PyDict_Copy(container));
  if (PyAnySet_Check(container)) return Ref::steal(PySet_New(container));
  return Ref::steal(PySequence_List(container));
}

bool putContents(PyObject* container, PyObject* contents) {
  if (PyODict_Check(container))
    return callMethod(&PyODict_Type, "clear", container, nullptr) &&
           callMethod(&PyODict_Type, "update", container, contents);
  if (PyDict_Check(container)) {
    PyDict_Clear(container);
    return PyDict_Update(container, contents) == 0;
  }
  if (PyList_Check(container))
    return PyList_SetSlice(container, 0, PyList_GET_SIZE(container), contents) == 0;
  PyTypeObject* type = PyAnySet_Check(container) ? &PySet_Type : dequeType();
  return type && callMethod(type, "clear", container, nullptr) &&
         callMethod(type, PyAnySet_Check(container) ? "update" : "extend", container, contents);
}

bool takeOver(PyObject* object, PyObject* from, const Twins& twins) {
  if (object == from || Py_TYPE(object) != Py_TYPE(from)) return true;
  if (isContainer(object) && !takeContents(object, from, twins)) return false;
  if (PyCell_Check(object)) takeField(cellAddress(object), PyCell_GET(from), twins);
  for (PyObject* name : slotNames(Py_TYPE(object))) {
    PyObject** field = slotAddress(object, name);
    if (field) takeField(field, *slotAddress(from, name), twins);
  }
  PyObject** dict = _PyObject_GetDictPtr(from);
  if (!dict || !*dict) return true;
  PyObject** own = instanceDictAddress(object);
  return !own || takeContents(*own, *dict, twins);
}

}  // namespace glowplug::cpython
