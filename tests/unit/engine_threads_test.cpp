// One entry, called from threads that C++ made, while others reset and describe it.

#include <Python.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/events.h"
#include "engine/entry.h"
#include "insight/counters.h"
#include "python_support.h"
#include "trace/callees.h"
#include "trace/well_known.h"

namespace glowplug::engine {
namespace {

using cpython::Ref;
using glowplug::testing::Python;

constexpr int kThreads = 8;
constexpr int kCalls = 150;

// Holds the GIL in a thread that Python did not make.
class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// Runs work(n) in threads of its own; the caller lets go of the GIL meanwhile.
void runAll(int threads, const std::function<void(int)>& work) {
  PyThreadState* state = PyEval_SaveThread();
  std::vector<std::thread> running;
  for (int n = 0; n < threads; n++) running.emplace_back(work, n);
  for (std::thread& thread : running) thread.join();
  PyEval_RestoreThread(state);
}

class Threads : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trace::wellKnown();
    trace::prepareCallees();
    Python::run("import sys; sys.setswitchinterval(1e-5); torch.set_num_threads(1)");
  }

  void compile(const char* code, int64_t mostTraces = 8) {
    Python::run(code);
    function_ = Python::eval("f");
    common::Options options;
    options.maxTraces = mostTraces;
    entry_ = std::make_unique<Entry>(function_.get(), "f", Backend(), options, false);
    inputs_ = Python::eval(
        "[torch.randn(s, generator=torch.manual_seed(0)) * k for s in (2, 3, 5) for k in (1, -1)]");
    Python::set("inputs", inputs_.get());
    Python::run(
        "def outcome(call, x):\n"
        "  try: return call(x)\n"
        "  except (ValueError, IndexError) as error: return str(error)\n"
        "def same(a, b):\n"
        "  return a == b if isinstance(a, str) else torch.equal(a, b)\n"
        "want = [outcome(f, x) for x in inputs]");
    expected_ = Python::eval("want");
    same_ = Python::eval("same");
  }

  // What the entry gives, or the text of what it raises.
  Ref outcome(PyObject* input) {
    Ref result = Ref::steal(entry_->call(&input, 1, nullptr));
    if (result) return result;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(traceback);
    return Ref::steal(PyObject_Str(v.get()));
  }

  // Calls that give what the original gives.
  int rightCalls(int thread) {
    const Gil gil;
    int right = 0;
    for (int i = 0; i < kCalls; i++) {
      const Py_ssize_t n = (thread * 7 + i * 5 + i / 9) % PyList_GET_SIZE(inputs_.get());
      Ref got = outcome(PyList_GET_ITEM(inputs_.get(), n));
      PyObject* pair[] = {PyList_GET_ITEM(expected_.get(), n), got.get()};
      Ref equal = Ref::steal(PyObject_Vectorcall(same_.get(), pair, 2, nullptr));
      if (!equal) PyErr_Print();
      right += equal.get() == Py_True;
    }
    return right;
  }

  void disturb(const std::atomic<bool>& done) {
    for (int i = 0; !done; i++) {
      {
        const Gil gil;
        if (i % 4 == 0) entry_->reset();
        Ref described = Ref::steal(describe(*entry_));
        EXPECT_TRUE(described);
      }
      insight::counters().snapshot();
      phaseTimes();
      if (i % 8 == 0) insight::counters().reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void callFromAll() {
    std::atomic<int> right{0};
    std::atomic<int> callers{kThreads};
    std::atomic<bool> done{false};
    runAll(kThreads + 1, [&](int n) {
      if (n == kThreads) return disturb(done);
      right += rightCalls(n);
      if (--callers == 0) done = true;
    });
    EXPECT_EQ(right, kThreads * kCalls);
  }

  Ref function_, inputs_, expected_, same_;
  std::unique_ptr<Entry> entry_;
};

TEST_F(Threads, CallAFunction) {
  compile("def f(x): return (x.sin() * 2 + 1).relu()");
  callFromAll();
}

TEST_F(Threads, CallOneThatBranches) {
  compile(
      "def f(x):\n"
      "  y = x * 2\n"
      "  if y.sum() > 0: return y.cos()\n"
      "  return y - 1",
      16);
  callFromAll();
}

TEST_F(Threads, CallOneThatRaises) {
  compile(
      "def f(x):\n"
      "  if x.shape[0] == 3: raise ValueError('three')\n"
      "  return x[(x.sum() * 10).long().abs() % 4]");
  callFromAll();
}

TEST_F(Threads, CallOneThatMeetsItsLimit) {
  compile("def f(x): return x * x", 2);
  callFromAll();
}

TEST_F(Threads, ListenToItsCalls) {
  compile("def f(x): return x.exp()");
  common::startListening();
  std::atomic<size_t> records{0};
  runAll(kThreads, [&](int n) {
    EXPECT_EQ(rightCalls(n), kCalls);
    records += common::take().size();
  });
  records += common::take().size();
  common::stopListening();
  EXPECT_EQ(records, static_cast<size_t>(kThreads * kCalls));
}

}  // namespace
}  // namespace glowplug::engine
