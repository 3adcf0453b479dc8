#define Py_BUILD_CORE
#include <Python.h>
#undef HAVE_STD_ATOMIC
#include <internal/pycore_dict.h>

#include "cpython/version_tags.h"

#include <cstddef>

#include "cpython/constant.h"

namespace glowplug::cpython {

namespace {

// Objects/odictobject.c of 3.11 (the struct is in no header).
struct OrderedNode {
  PyObject* key;
  Py_hash_t hash;
  OrderedNode* next;
  OrderedNode* previous;
};
struct OrderedDictObject {
  PyDictObject dict;
  OrderedNode* first;
  OrderedNode* last;
  OrderedNode** fastNodes;
  Py_ssize_t fastNodesSize;
  void* resizeSentinel;
  size_t state;  // counts changes of the linked list
};

Py_ssize_t indexAt(const PyDictKeysObject* keys, size_t slot) {
  const char* indices = keys->dk_indices;
  if (keys->dk_log2_size < 8) return reinterpret_cast<const int8_t*>(indices)[slot];
  if (keys->dk_log2_size < 16) return reinterpret_cast<const int16_t*>(indices)[slot];
  if (keys->dk_log2_size < 32) return reinterpret_cast<const int32_t*>(indices)[slot];
  return reinterpret_cast<const int64_t*>(indices)[slot];
}

Found compareKeys(PyObject* stored, PyObject* key) {
  if (stored == key) return Found::Yes;
  if (!isPlainValue(stored) || !isPlainValue(key)) return Found::Unknown;
  int equal = PyObject_RichCompareBool(stored, key, Py_EQ);
  if (equal < 0) {
    PyErr_Clear();
    return Found::Unknown;
  }
  return equal ? Found::Yes : Found::No;
}

}  // namespace

const uint64_t* dictVersionAddress(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}

PyObject* dictOfVersionAddress(const uint64_t* address) {
  auto* bytes = reinterpret_cast<const char*>(address) - offsetof(PyDictObject, ma_version_tag);
  return reinterpret_cast<PyObject*>(const_cast<char*>(bytes));
}

bool isOrderedDict(PyObject* dict) { return PyODict_Check(dict); }

const uint64_t* orderStateAddress(PyObject* orderedDict) {
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  return reinterpret_cast<const uint64_t*>(
      &reinterpret_cast<OrderedDictObject*>(orderedDict)->state);
}

const uint32_t* typeVersionAddress(PyTypeObject* type) {
  static_assert(sizeof(type->tp_version_tag) == sizeof(uint32_t));
  return reinterpret_cast<const uint32_t*>(&type->tp_version_tag);
}

uint32_t assignTypeVersion(PyTypeObject* type) {
  // Any look-up of a short name assigns the version.
  static PyObject* name = PyUnicode_InternFromString("__class__");
  _PyType_Lookup(type, name);
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) ? typeVersion(type) : 0;
}

// dictobject.c's probing, except that a comparison that would run Python code is not made.
Found dictFind(PyObject* object, PyObject* key, Py_hash_t hash, PyObject** value) {
  auto* dict = reinterpret_cast<PyDictObject*>(object);
  PyDictKeysObject* keys = dict->ma_keys;
  const size_t mask = (size_t{1} << keys->dk_log2_size) - 1;
  size_t perturb = static_cast<size_t>(hash);
  size_t slot = perturb & mask;
  *value = nullptr;
  for (;;) {
    Py_ssize_t index = indexAt(keys, slot);
    if (index == DKIX_EMPTY) return Found::No;
    if (index >= 0) {
      PyObject* stored;
      PyObject* found;
      Py_hash_t storedHash;
      if (keys->dk_kind == DICT_KEYS_GENERAL) {
        const PyDictKeyEntry& entry = DK_ENTRIES(keys)[index];
        stored = entry.me_key, found = entry.me_value, storedHash = entry.me_hash;
      } else {
        const PyDictUnicodeEntry& entry = DK_UNICODE_ENTRIES(keys)[index];
        stored = entry.me_key, found = entry.me_value;
        storedHash = reinterpret_cast<PyASCIIObject*>(stored)->hash;
      }
      if (stored == key || storedHash == hash) {
        Found same = compareKeys(stored, key);
        if (same == Found::Unknown) return same;
        if (same == Found::Yes) {
          if (dict->ma_values) found = dict->ma_values->values[index];
          *value = found;
          return found ? Found::Yes : Found::No;
        }
      }
    }
    perturb >>= 5;
    slot = mask & (slot * 5 + perturb + 1);
  }
}

// setobject.c's probing.
Found setFind(PyObject* object, PyObject* item, Py_hash_t hash) {
  constexpr size_t kLinearProbes = 9;
  auto* set = reinterpret_cast<PySetObject*>(object);
  const size_t mask = static_cast<size_t>(set->mask);
  size_t perturb = static_cast<size_t>(hash);
  size_t slot = perturb & mask;
  for (;;) {
    const size_t probes = slot + kLinearProbes <= mask ? kLinearProbes : 0;
    for (size_t i = slot; i <= slot + probes; i++) {
      const setentry& entry = set->table[i];
      if (!entry.key) return Found::No;
      if (entry.hash != hash) continue;  // removed items have a hash that no object has
      Found same = compareKeys(entry.key, item);
      if (same != Found::No) return same;
    }
    perturb >>= 5;
    slot = (slot * 5 + 1 + perturb) & mask;
  }
}

DictKeys::DictKeys(PyObject* dict) : dict_(dict), ordered_(isOrderedDict(dict)) {
  if (ordered_) node_ = reinterpret_cast<OrderedDictObject*>(dict)->first;
}

PyObject* DictKeys::next() {
  if (ordered_) {
    if (!node_) return nullptr;
    auto* node = static_cast<const OrderedNode*>(node_);
    node_ = node->next;
    return node->key;
  }
  PyObject* key;
  return PyDict_Next(dict_, &position_, &key, nullptr) ? key : nullptr;
}

}  // namespace glowplug::cpython
