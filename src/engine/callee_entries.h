#pragma once

#include <Python.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "common/options.h"
#include "cpython/ref.h"
#include "engine/entry.h"
#include "guard/guard_tree.h"
#include "trace/operations.h"

namespace glowplug::engine {

// What an entry that stays eager does: its own frame runs as the program, and the modules and
// functions that this frame calls with tensors are entries of their own, made when they are called
// a second time. An entry's guards say all that its traces depend on, so it may be called from
// anywhere; whether it is one changes nothing that the program does.
//
// The frame is evaluated by trace/ with plain Operations that look at calls only. The parts of a
// frame that are frames to CPython (comprehensions, what torch puts between the call of a module
// and its forward) are evaluated the same way; all other code is CPython's to run.
//
// Callees are known by address and weak reference, and their entries hold nothing of them.
class CalleeEntries final : public trace::Operations {
 public:
  CalleeEntries(Backend backend, common::Options options, size_t depth);
  ~CalleeEntries() override;
  CalleeEntries(const CalleeEntries&) = delete;

  // As Entry::call for an entry that stays eager.
  PyObject* run(const guard::Call& call);
  // After some runs in which nothing was met that is worth an entry, there is no need to look.
  bool useful() const { return runs_ < kRunsToLook || entries_ > 0; }
  std::vector<std::shared_ptr<Entry>> entries() const;
  int traverse(visitproc visit, void* arg) const;

  PyObject* call(PyObject* callee, PyObject* const* args, size_t nargsf,
                 PyObject* kwnames) override;
  PyObject* callEx(PyObject* callee, PyObject* tuple, PyObject* dict) override;

 private:
  static constexpr size_t kRunsToLook = 4;
  struct Callee {
    cpython::Ref function, self;  // weak references; self of methods of modules only
    std::shared_ptr<Entry> entry;
    bool direct = false;  // too little work to be worth an entry
  };
  struct Key {
    PyObject* function;
    PyObject* self;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return reinterpret_cast<size_t>(key.function) * 31 + reinterpret_cast<size_t>(key.self);
    }
  };

  // The entry that is to take a call, or nothing.
  std::shared_ptr<Entry> entryOf(Key key);
  std::shared_ptr<Entry> made(Key key);
  void judge(Key key, const Entry& entry);
  void dropDead();

  Backend backend_;
  common::Options options_;
  size_t depth_;
  std::unordered_map<Key, Callee, KeyHash> callees_;
  size_t runs_ = 0;
  size_t entries_ = 0;    // callees that have one and keep it
  size_t purgeAt_ = 256;  // callees there may be before the dead ones are dropped
};

}  // namespace glowplug::engine
