#include "cpython/lru_cache.h"

#include "common/check.h"
#include "cpython/modules.h"

namespace glowplug::cpython {

namespace {

// As in CPython 3.11's Modules/_functoolsmodule.c, which has no header.
struct Cache {
  PyObject head;
  void* previous;
  void* next;
  Py_hash_t hash;
  PyObject* key;
  PyObject* result;
  void* wrapper;
  int typed;
  PyObject* cache;
  Py_ssize_t hits;
  PyObject* function;
  Py_ssize_t most;
  Py_ssize_t misses;
};

Py_ssize_t reported(PyObject* cache, const char* field) {
  Ref info = Ref::steal(PyObject_CallMethod(cache, "cache_info", nullptr));
  Ref number = info ? Ref::steal(PyObject_GetAttrString(info.get(), field)) : Ref();
  return number ? PyLong_AsSsize_t(number.get()) : -1;
}

// Whether the struct is what this interpreter has: asked of a cache with three misses and a hit. It
// is made by the class, without functools.lru_cache: that is Python, and would be recorded.
bool structFits() {
  Ref functools = importModule("functools");
  Ref info = functools ? Ref::steal(PyObject_GetAttrString(functools.get(), "_CacheInfo")) : Ref();
  Ref cache = info ? Ref::steal(PyObject_CallMethod(functools.get(), "_lru_cache_wrapper", "OiOO",
                                                    &PyLong_Type, 8, Py_False, info.get()))
                   : Ref();
  for (int argument : {1, 2, 3, 3}) {
    Ref called = cache ? Ref::steal(PyObject_CallFunction(cache.get(), "i", argument)) : Ref();
    if (!called) return false;
  }
  auto* fields = reinterpret_cast<Cache*>(cache.get());
  return isLruCache(cache.get()) && reported(cache.get(), "misses") == 3 && fields->misses == 3 &&
         reported(cache.get(), "hits") == 1 && fields->hits == 1;
}

// Made before it is needed: it must not be made while another error is set.
PyObject* missedError = nullptr;

PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  PyObject* cache = args[0];
  const Py_ssize_t misses = cacheMisses(cache);
  Ref result =
      Ref::steal(PyObject_Vectorcall(cache, args + 1, static_cast<size_t>(count - 1), kwnames));
  if (!result || cacheMisses(cache) == misses) return result.release();
  Ref carried = Ref::steal(PyTuple_Pack(1, result.get()));
  if (carried) PyErr_SetObject(missedError, carried.get());
  return nullptr;
}

}  // namespace

bool isLruCache(PyObject* object) {
  static PyTypeObject* type = moduleType("functools", "_lru_cache_wrapper");
  return type && Py_IS_TYPE(object, type);
}

Py_ssize_t cacheMisses(PyObject* cache) {
  static const bool fits = structFits();
  GP_CHECK(fits, "fields of functools.lru_cache");
  return reinterpret_cast<Cache*>(cache)->misses;
}

PyObject* cachedCall() {
  static PyMethodDef definition = {
      "cached_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
      METH_FASTCALL | METH_KEYWORDS, nullptr};
  if (!missedError)
    missedError = PyErr_NewException("glowplug.CacheMissed", PyExc_BaseException, nullptr);
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return missedError ? function : nullptr;
}

Ref takeMissedResult() {
  if (!missedError || !PyErr_Occurred() || !PyErr_ExceptionMatches(missedError)) return Ref();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref owned[] = {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
  Ref args = Ref::steal(PyObject_GetAttrString(value, "args"));
  return args ? Ref::borrow(PyTuple_GET_ITEM(args.get(), 0)) : Ref();
}

}  // namespace glowplug::cpython
