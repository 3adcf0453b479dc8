#include "trace/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cpython/ref.h"

namespace glowplug::trace {
namespace {

using cpython::FrameView;
using cpython::Ref;

std::string text(PyObject* unicode) { return PyUnicode_AsUTF8(unicode); }

// Notes what comes through the door.
class Notes : public Operations {
 public:
  void enterFrame(FrameView frame, bool resumed) override {
    note((resumed ? "resume " : "enter ") + text(frame.code()->co_name));
    depth++;
  }
  void leaveFrame(FrameView frame, PyObject* result, bool yielded) override {
    depth--;
    note((yielded ? "yield " : result ? "return " : "raise ") + text(frame.code()->co_name));
  }
  void delegateFrame(FrameView frame) override { note("delegate " + text(frame.code()->co_name)); }
  PyObject* loadAttr(PyObject* object, PyObject* name) override {
    note("attr " + text(name));
    return Operations::loadAttr(object, name);
  }
  int truth(PyObject* value) override {
    note("truth");
    return Operations::truth(value);
  }
  PyObject* binary(int op, PyObject* left, PyObject* right) override {
    note("binary " + std::to_string(op));
    return Operations::binary(op, left, right);
  }

  void note(std::string event) { events.push_back(std::move(event)); }

  std::vector<std::string> events;
  int depth = 0;
};

class EvaluatorTest : public ::testing::Test {
 protected:
  // Runs the source text, then calls its function `program` under `notes`.
  Ref run(const char* source) {
    globals = Ref::steal(PyDict_New());
    Ref ran = Ref::steal(PyRun_String(source, Py_file_input, globals.get(), globals.get()));
    EXPECT_TRUE(ran);
    EvaluationScope scope(notes);
    return call("program");
  }
  Ref call(const char* name) {
    return Ref::steal(PyObject_CallNoArgs(PyDict_GetItemString(globals.get(), name)));
  }

  Ref globals;
  Notes notes;
};

using Events = std::vector<std::string>;

TEST_F(EvaluatorTest, CalleesAreEvaluated) {
  Ref result =
      run("def inner(x): return x + 1\n"
          "def program(): return inner(2) * 3\n");
  ASSERT_TRUE(result);
  EXPECT_EQ(PyLong_AsLong(result.get()), 9);
  EXPECT_EQ(notes.events, (Events{"enter program", "enter inner", "binary 0", "return inner",
                                  "binary 5", "return program"}));
}

TEST_F(EvaluatorTest, FramesThatCStartsAreEvaluated) {
  Ref result = run("def program(): return list(map(lambda x: x - 1, [1, 2]))\n");
  ASSERT_TRUE(result);
  EXPECT_EQ(std::count(notes.events.begin(), notes.events.end(), "enter <lambda>"), 2);
}

TEST_F(EvaluatorTest, ExceptionsLeaveFrames) {
  Ref result =
      run("def inner(): raise ValueError\n"
          "def program():\n"
          "  try: inner()\n"
          "  except ValueError: return 4\n");
  ASSERT_TRUE(result);
  EXPECT_EQ(PyLong_AsLong(result.get()), 4);
  EXPECT_EQ(notes.events,
            (Events{"enter program", "enter inner", "raise inner", "return program"}));
}

TEST_F(EvaluatorTest, AnUncaughtExceptionReachesTheCaller) {
  Ref result = run("def program(): return (3).nothing\n");
  EXPECT_FALSE(result);
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_AttributeError));
  PyErr_Clear();
  EXPECT_EQ(notes.events, (Events{"enter program", "attr nothing", "raise program"}));
}

TEST_F(EvaluatorTest, GeneratorsAreResumed) {
  Ref result =
      run("def make():\n"
          "  yield 1\n"
          "  yield 2\n"
          "def program():\n"
          "  g = make()\n"
          "  return next(g), next(g), next(g, 3)\n");
  ASSERT_TRUE(result);
  EXPECT_EQ(notes.events, (Events{"enter program", "enter make", "yield make", "resume make",
                                  "yield make", "resume make", "return make", "return program"}));
}

TEST_F(EvaluatorTest, ExactBoolsNeedNoQuestion) {
  Ref result =
      run("def program():\n"
          "  t, n = True, 3\n"
          "  return (1 if t else 2), (1 if n else 2)\n");
  ASSERT_TRUE(result);
  EXPECT_EQ(std::count(notes.events.begin(), notes.events.end(), "truth"), 1);
}

TEST_F(EvaluatorTest, APauseHidesFrames) {
  globals = Ref::steal(PyDict_New());
  Ref ran = Ref::steal(
      PyRun_String("def program(): return 1\n", Py_file_input, globals.get(), globals.get()));
  EvaluationScope scope(notes);
  {
    EvaluationPause pause;
    EXPECT_TRUE(call("program"));
    EXPECT_TRUE(notes.events.empty());
    Notes inside;
    {
      EvaluationScope inner(inside);
      EXPECT_TRUE(call("program"));
    }
    EXPECT_EQ(inside.events.size(), 2U);
    EXPECT_TRUE(call("program"));
    EXPECT_TRUE(notes.events.empty());
  }
  EXPECT_TRUE(call("program"));
  EXPECT_EQ(notes.events, (Events{"enter program", "return program"}));
}

TEST_F(EvaluatorTest, NothingIsEvaluatedOutsideOfScopes) {
  run("def program(): return 1\n");
  notes.events.clear();
  EXPECT_TRUE(call("program"));
  EXPECT_TRUE(notes.events.empty());
}

TEST_F(EvaluatorTest, TracedFramesAreDelegated) {
  Ref result =
      run("import sys\n"
          "def inner(): return 1\n"
          "def program():\n"
          "  sys.settrace(lambda *args: None)\n"
          "  try: return inner()\n"
          "  finally: sys.settrace(None)\n");
  ASSERT_TRUE(result);
  EXPECT_EQ(notes.events[0], "enter program");
  EXPECT_NE(std::find(notes.events.begin(), notes.events.end(), "delegate program"),
            notes.events.end());
  EXPECT_NE(std::find(notes.events.begin(), notes.events.end(), "delegate inner"),
            notes.events.end());
  EXPECT_EQ(notes.depth, 0);
}

TEST_F(EvaluatorTest, CountsAreOfThisThreadSinceTheLastCall) {
  takeEvaluationCounts();
  run("def program(): return 1\n");
  EvaluationCounts counts = takeEvaluationCounts();
  EXPECT_EQ(counts.frames, 1U);
  EXPECT_EQ(counts.instructions, 3U);  // Resume, LoadConst, ReturnValue
  EXPECT_EQ(takeEvaluationCounts().frames, 0U);
}

TEST_F(EvaluatorTest, TheRecursionLimitHolds) {
  Ref result = run("def program(): return program()\n");
  EXPECT_FALSE(result);
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_RecursionError));
  PyErr_Clear();
  EXPECT_EQ(notes.depth, 0);
}

}  // namespace
}  // namespace glowplug::trace
