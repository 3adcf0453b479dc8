#include "aten/unversioned.h"

#include <array>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "aten/torch.h"

namespace glowplug::aten {
namespace {

using Flag = std::weak_ptr<std::atomic<HandedOut>>;

std::mutex watchLock;
std::unordered_multimap<const c10::StorageImpl*, Flag> watched;
std::atomic<bool> any{false};
bool installed = false;

void handedOut(PyObject* self, HandedOut what) {
  if (!any.load(std::memory_order_acquire) || !THPVariable_Check(self)) return;
  const at::Tensor& tensor = THPVariable_Unpack(self);
  if (!tensor.defined() || !tensor.has_storage()) return;
  const std::lock_guard held(watchLock);
  const auto [first, last] =
      watched.equal_range(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  for (auto entry = first; entry != last; ++entry) {
    const auto flag = entry->second.lock();
    if (flag && flag->load() != HandedOut::Memory) flag->store(what);
  }
}

getter ownData = nullptr;

PyObject* data(PyObject* self, void* closure) {
  PyObject* made = ownData(self, closure);
  handedOut(self, HandedOut::Alias);
  return made;
}

// Torch's methods, in the order of kMethods.
constexpr std::array kMethods = {"numpy", "data_ptr", "untyped_storage"};
std::array<PyCFunction, kMethods.size()> ownMethods;

template <size_t I>
PyObject* plainMethod(PyObject* self, PyObject* none) {
  handedOut(self, HandedOut::Memory);
  return ownMethods[I](self, none);
}
template <size_t I>
PyObject* keywordMethod(PyObject* self, PyObject* args, PyObject* keywords) {
  handedOut(self, HandedOut::Memory);
  return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(ownMethods[I]))(
      self, args, keywords);
}

template <size_t I>
bool replace(PyObject* dict) {
  PyObject* found = PyDict_GetItemString(dict, kMethods[I]);
  if (!found || !PyObject_TypeCheck(found, &PyMethodDescr_Type)) return false;
  PyMethodDef& method = *reinterpret_cast<PyMethodDescrObject*>(found)->d_method;
  const int flags = method.ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_NOARGS);
  ownMethods[I] = method.ml_meth;
  if (flags == (METH_VARARGS | METH_KEYWORDS)) {
    method.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&keywordMethod<I>));
  } else if (flags == METH_NOARGS || flags == METH_VARARGS) {
    method.ml_meth = &plainMethod<I>;
  } else {
    return false;
  }
  return true;
}

}  // namespace

void hearOfUnversioned() {
  if (installed) return;
  auto* base = reinterpret_cast<PyTypeObject*>(THPVariableClass)->tp_base;
  PyObject* found = base ? PyDict_GetItemString(base->tp_dict, "data") : nullptr;
  if (!found || !PyObject_TypeCheck(found, &PyGetSetDescr_Type)) return;
  PyGetSetDef& field = *reinterpret_cast<PyGetSetDescrObject*>(found)->d_getset;
  PyObject* methods = base->tp_dict;
  if (!replace<0>(methods) || !replace<1>(methods) || !replace<2>(methods)) return;
  ownData = std::exchange(field.get, &data);
  installed = true;
}

bool hearsOfUnversioned() { return installed; }

void watchUnversioned(const c10::StorageImpl* storage,
                      const std::shared_ptr<std::atomic<HandedOut>>& dirty) {
  const std::lock_guard held(watchLock);
  std::erase_if(watched, [&](const auto& entry) {
    return entry.second.expired() || (entry.first == storage && entry.second.lock() == dirty);
  });
  watched.emplace(storage, dirty);
  any.store(true, std::memory_order_release);
}

}  // namespace glowplug::aten
