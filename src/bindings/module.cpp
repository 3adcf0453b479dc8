// glowplug._C: what the Python package calls.

#include <Python.h>

#include "aten/buffer_pool.h"
#include "aten/packed_weight.h"
#include "aten/unversioned.h"
#include "bindings/entry_object.h"
#include "bindings/evaluate.h"
#include "bindings/verify.h"
#include "common/events.h"
#include "engine/background.h"
#include "engine/entry.h"
#include "engine/kernel_library.h"
#include "engine/python_values.h"
#include "insight/counters.h"
#include "trace/callees.h"
#include "trace/well_known.h"

namespace {

using glowplug::cpython::Ref;
using glowplug::engine::DictBuilder;
using glowplug::engine::ListBuilder;
using namespace glowplug;

Ref tallyDict(const insight::Tally& tally) {
  DictBuilder dict;
  for (const auto& [name, count] : tally) dict.set(name, static_cast<int64_t>(count));
  return dict.take();
}

Ref cacheDict() {
  const cache::DiskStore::Counts counts = engine::KernelLibrary::shared().disk().counts();
  insight::Tally out{{"hits", counts.hits},
                     {"misses", counts.misses},
                     {"writes", counts.writes},
                     {"evicted", counts.evicted}};
  uint64_t rejected = 0;
  for (const auto& [reason, count] : counts.rejected) {
    out["rejected_" + reason] = count;
    rejected += count;
  }
  out["rejected"] = rejected;
  return tallyDict(out);
}

Ref poolDict() {
  const aten::PoolCounts counts = aten::poolCounts();
  return tallyDict({{"reused", counts.reused},
                    {"fresh", counts.fresh},
                    {"bytes_idle", counts.bytesIdle},
                    {"bytes_used", counts.bytesUsed}});
}

PyObject* counters(PyObject*, PyObject*) {
  insight::Counters::Snapshot snapshot = insight::counters().snapshot();
  DictBuilder dict;
  dict.set("stats", tallyDict(snapshot.stats));
  dict.set("graph_break", tallyDict(snapshot.graphBreak));
  dict.set("recompiles", tallyDict(snapshot.recompiles));
  dict.set("refusals", tallyDict(snapshot.refusals));
  const aten::PackedCounts packed = aten::packedCounts();
  snapshot.native["packed_weight_bytes"] = packed.bytes;
  const auto count = [&](common::Reason reason, uint64_t times) {
    if (times > 0) snapshot.native[common::info(reason).id] = times;
  };
  count(common::Reason::native_budget, packed.refused);
  count(common::Reason::native_onednn, packed.failed);
  dict.set("native", tallyDict(snapshot.native));
  dict.set("cache", cacheDict());
  dict.set("pool", poolDict());
  return dict.take().release();
}

PyObject* reset(PyObject*, PyObject*) {
  bindings::resetAllEntries();
  engine::cancelJobs();
  insight::counters().reset();
  aten::resetPackedCounts();
  engine::KernelLibrary::shared().disk().resetCounts();
  engine::resetPhaseTimes();
  aten::emptyPool();
  Py_RETURN_NONE;
}

PyObject* wait(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS;
  engine::waitForJobs();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

// Before Python is finalised: a job may hold a tensor, whose end needs the GIL.
PyObject* stopBackground(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS;
  engine::stopJobs();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* compileTimes(PyObject*, PyObject*) {
  ListBuilder list;
  for (const engine::PhaseTime& time : engine::phaseTimes())
    list.add(Ref::steal(Py_BuildValue("(sdK)", time.phase.c_str(), time.seconds,
                                      static_cast<unsigned long long>(time.count))));
  return list.take().release();
}

PyObject* setStance(PyObject*, PyObject* name) {
  const std::pair<const char*, engine::Stance> known[] = {
      {"default", engine::Stance::Default},
      {"force_eager", engine::Stance::ForceEager},
      {"eager_on_recompile", engine::Stance::EagerOnRecompile},
      {"fail_on_recompile", engine::Stance::FailOnRecompile}};
  if (PyUnicode_Check(name))
    for (auto [text, value] : known)
      if (PyUnicode_CompareWithASCIIString(name, text) == 0) {
        engine::setStance(value);
        Py_RETURN_NONE;
      }
  return PyErr_Format(PyExc_ValueError,
                      "unknown stance %R; known: default, force_eager, eager_on_recompile, "
                      "fail_on_recompile",
                      name);
}

PyObject* isRecording(PyObject*, PyObject*) { return PyBool_FromLong(engine::isRecording()); }

PyObject* profileStart(PyObject*, PyObject*) {
  common::startListening();
  Py_RETURN_NONE;
}

PyObject* profileStop(PyObject*, PyObject*) {
  ListBuilder list;
  for (const common::CallRecord& record : common::take()) {
    DictBuilder dict;
    dict.set("entry", static_cast<int64_t>(record.entry));
    dict.set("kind", common::nameOf(record.kind));
    dict.set("start_ns", record.start_ns);
    dict.set("guard_ns", record.guard_ns);
    dict.set("record_ns", record.record_ns);
    dict.set("execute_ns", record.execute_ns);
    dict.set("total_ns", record.total_ns);
    dict.set("trace", static_cast<int64_t>(record.trace));
    dict.set("thread", static_cast<int64_t>(record.thread));
    dict.set("reason", record.reason ? engine::toPython(record.reason) : Ref::borrow(Py_None));
    list.add(dict.take());
  }
  common::stopListening();
  return list.take().release();
}

PyMethodDef functions[] = {
    {"counters", counters, METH_NOARGS, "counters() -> dict of dicts of int"},
    {"reset", reset, METH_NOARGS,
     "reset(): all entries forget their traces; counters are set to 0"},
    {"wait", wait, METH_NOARGS, "wait(): until no compilation waits or runs in the background"},
    {"stop_background", stopBackground, METH_NOARGS,
     "stop_background(): no compilation runs or will run in this process"},
    {"compile_times", compileTimes, METH_NOARGS, "compile_times() -> [(phase, seconds, count)]"},
    {"set_stance", setStance, METH_O, "set_stance(name)"},
    {"is_recording", isRecording, METH_NOARGS, "is_recording() -> bool: on this thread"},
    {"profile_start", profileStart, METH_NOARGS, "profile_start(): call records are kept"},
    {"profile_stop", profileStop, METH_NOARGS, "profile_stop() -> list of dicts"},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_C",
                          "Glowplug's C++ core.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C() {
  Ref module = Ref::steal(PyModule_Create(&definition));
  if (!module || bindings::addEntryType(module.get()) < 0 ||
      bindings::addEvaluateFunctions(module.get()) < 0 ||
      bindings::addVerifyFunctions(module.get()) < 0)
    return nullptr;
  aten::hearOfUnversioned();
  trace::wellKnown();
  trace::prepareCallees();
  engine::KernelLibrary::shared();
  return module.release();
}
