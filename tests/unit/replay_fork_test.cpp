// Late guards, plans that go on for each other, and backends.
#include <thread>

#include "replay_support.h"

namespace glowplug::replay::testing {
namespace {

using Kind = Outcome::Kind;

// if x.sum() > 0: return x * 2 (after noting it in l), else x - 1, with work before the branch.
void branch(Program& program, const char* input, const char* before = "h = x + 1") {
  Python::run(std::string("x = ") + input + "; l = []");
  program.argument("x");
  program.argument("l");
  program.run(before);
  program.run("b = bool(x.sum() > 0)");
  program.fork("b");
  if (Python::truth("b")) {
    program.effect(EffectKind::CallMethod, {"list.append", "l", "'yes'"});
    program.run("y = h * 2");
  } else {
    program.effect(EffectKind::CallMethod, {"list.append", "l", "'no'"});
    program.run("y = (h - 1) * h");
  }
  program.returns("(y, h, x)");
}

TEST(Fork, UnmetGuardExitsWithoutATrace) {
  Program yes;
  branch(yes, "torch.ones(2)", "h = torch.rand(2) + x\nwith torch.no_grad(): h = h + 1");
  Python::run("torch.manual_seed(1); state = torch.get_rng_state(); l = []");
  EXPECT_FALSE(yes.call("[-torch.ones(2), l]"));
  EXPECT_EQ(yes.outcome.kind, Kind::Exited);
  ASSERT_TRUE(yes.suspended);
  yes.suspended.reset();
  EXPECT_TRUE(Python::truth(
      "torch.equal(state, torch.get_rng_state()) and torch.is_grad_enabled() and l == []"));
}

TEST(Fork, AnotherPlanGoesOn) {
  Program yes, no;
  branch(yes, "torch.ones(2)", "h = torch.rand(2) + x");
  branch(no, "-torch.ones(2)", "h = torch.rand(2) + x");
  ASSERT_TRUE(Plan::join(yes.plan(), no.plan()));
  for (auto [first, second, input] :
       {std::tuple(&yes, &no, "-torch.ones(2)"), std::tuple(&no, &yes, "torch.ones(2) * 3")}) {
    Python::run(std::string("a = ") + input + "; l = []; torch.manual_seed(2)");
    EXPECT_FALSE(first->call("[a, l]"));
    ASSERT_TRUE(first->suspended);
    EXPECT_FALSE(first->plan().covers(*first->suspended));
    ASSERT_TRUE(second->plan().covers(*first->suspended));
    Python::set("r", second->resume("[a, l]", *first).get());
    ASSERT_EQ(second->outcome.kind, Kind::Returned);
    Python::run(
        "after = torch.rand(1); torch.manual_seed(2); h = torch.rand(2) + a\n"
        "y = h * 2 if a.sum() > 0 else (h - 1) * h");
    EXPECT_TRUE(Python::truth(
        "torch.equal(r[0], y) and torch.equal(r[1], h) and r[2] is a and "
        "torch.equal(after, torch.rand(1)) and l == ['yes' if a.sum() > 0 else 'no']"));
  }
}

// Which branch a plan takes at each of three numbers: 0, 1, 2, 3.
void chain(Program& program, int input) {
  Python::run("x = torch.tensor(" + std::to_string(input) + ".)");
  program.argument("x");
  program.run("a = x * 10; b = x * 100");
  for (int i = 0; i < 3; i++) {
    Python::run("i = " + std::to_string(i));
    program.run("t = bool(x == i)");
    program.fork("t");
    if (!Python::truth("t")) continue;
    program.run(i == 1 ? "y = b + i" : "y = a + b * i");
    return program.returns("y");
  }
  program.run("y = a - b");
  program.returns("y");
}

TEST(Fork, ChainsOfPlans) {
  Program plans[4];
  for (int i = 0; i < 4; i++) chain(plans[i], i);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++) EXPECT_TRUE(Plan::join(plans[j].plan(), plans[i].plan()));
  Python::run("want = [0, 101, 420, -270]");
  for (int start = 0; start < 4; start++)
    for (int input = 0; input < 4; input++) {
      std::string arguments = "[torch.tensor(" + std::to_string(input) + ".)]";
      Program* at = &plans[start];
      Ref result = at->call(arguments);
      int hops = 0;
      while (!result && at->outcome.kind == Kind::Exited && at->suspended && hops++ < 5) {
        Program* next = nullptr;
        for (Program& other : plans)
          if (&other != at && other.plan().covers(*at->suspended)) next = &other;
        ASSERT_TRUE(next) << start << " " << input;
        result = next->resume(arguments, *at);
        at = next;
      }
      ASSERT_TRUE(result) << start << " " << input;
      Python::set("r", result.get());
      EXPECT_TRUE(Python::truth("r.item() == want[" + std::to_string(input) + "]"))
          << start << " " << input << " " << Python::text("r");
    }
}

TEST(Fork, JoinsOnlyTheSameBeginning) {
  struct {
    const char* one;
    const char* other;
    bool joins;
  } const cases[] = {
      {"h = x + 1", "h = x + 1", true},
      {"h = x + 1", "h = x + 1.5", false},
      {"h = x + 1", "h = x - 1", false},
      {"h = x + 0.0", "h = x + -0.0", false},
      {"h = x * torch.tensor([1., 2.])", "h = x * torch.tensor([1., 2.])", true},
      {"h = x * torch.tensor([1., 2.])", "h = x * torch.tensor([1., 3.])", false},
      {"h = x.to(torch.float64)", "h = x.to(torch.float16)", false},
      {"h = x + 1", "h = x + 1; z = x + 2", false},
      {"h = torch.cat([x, x])[:2]", "h = torch.cat([x, x])[:2]", true},
      {"with torch.no_grad(): h = x + 1", "h = x + 1", false},
  };
  for (const auto& c : cases) {
    Program yes, no;
    branch(yes, "torch.ones(2)", c.one);
    branch(no, "-torch.ones(2)", c.other);
    EXPECT_EQ(Plan::join(yes.plan(), no.plan()), c.joins) << c.one << " / " << c.other;
  }
}

TEST(Fork, JoinsOnlyTheSameInputs) {
  Program yes, no;
  branch(yes, "torch.ones(2)");
  branch(no, "-torch.ones(2)");
  no.trace.sources[0].index = 1;
  EXPECT_FALSE(Plan::join(yes.plan(), no.plan()));
}

TEST(Fork, SamePathDoesNotJoin) {
  Program yes, same;
  branch(yes, "torch.ones(2)");
  branch(same, "torch.ones(2)");
  EXPECT_FALSE(Plan::join(yes.plan(), same.plan()));
}

TEST(Fork, NumbersByTheirBits) {
  Program zero, minus;
  for (auto [program, input] : {std::pair(&zero, "0."), std::pair(&minus, "-0.")}) {
    Python::run(std::string("x = torch.tensor(") + input + ")");
    program->argument("x");
    program->run("v = x.item()");
    program->fork("v");
    program->returns("v");
  }
  ASSERT_TRUE(Plan::join(zero.plan(), minus.plan()));
  EXPECT_FALSE(zero.call("[torch.tensor(-0.)]"));
  ASSERT_TRUE(zero.suspended);
  ASSERT_TRUE(minus.plan().covers(*zero.suspended));
  Python::set("r", minus.resume("[torch.tensor(-0.)]", zero).get());
  EXPECT_EQ(Python::text("r"), "-0.0");
}

TEST(Fork, ScalarsGoToTheResult) {
  Program program;
  Python::run("x = torch.ones(2)");
  program.argument("x");
  program.run("v = x.sum().item()");
  program.nameScalar("v");
  program.returns("[v, x, (v,)]");
  Python::set("r", program.call("[torch.tensor([1., 2.5])]").get());
  EXPECT_EQ(Python::text("r[0], r[2][0] is r[0]"), "(3.5, True)");
}

TEST(Sizes, OfDataDependentTensors) {
  Program two, one;
  for (auto [program, input] : {std::pair(&two, "[1., -1, 2]"), std::pair(&one, "[1., -1, -2]")}) {
    Python::run(std::string("x = torch.tensor(") + input + ")");
    program->argument("x");
    program->run("h = x[x > 0]");
    program->sizes("h");
    program->run("y = h * h.shape[0]");
    program->returns("y");
  }
  Python::set("r", two.call("[torch.tensor([3., 4., -1])]").get());
  EXPECT_EQ(Python::text("r.tolist()"), "[6.0, 8.0]");
  EXPECT_FALSE(two.call("[torch.tensor([3., -4., -1])]"));
  ASSERT_TRUE(two.suspended);
  ASSERT_TRUE(Plan::join(two.plan(), one.plan()));
  // The plan began before the two were joined, and may have dropped what the other needs.
  ASSERT_TRUE(one.plan().covers(*two.suspended));
  Python::set("r", one.resume("[torch.tensor([3., -4., -1])]", two).get());
  EXPECT_EQ(Python::text("r.tolist()"), "[3.0]");
}

TEST(Fork, ASiblingThatDiesIsForgotten) {
  Program yes;
  branch(yes, "torch.ones(2)");
  yes.plan();
  {
    Program no;
    branch(no, "-torch.ones(2)");
    ASSERT_TRUE(Plan::join(yes.plan(), no.plan()));
  }
  Python::run("l = []");
  EXPECT_TRUE(yes.call("[torch.ones(2), l]"));
  EXPECT_FALSE(yes.call("[-torch.ones(2), l]"));
  EXPECT_TRUE(yes.suspended);
}

TEST(Fork, JoinedWhileAnotherThreadRuns) {
  Program program;
  Python::run("x = torch.ones(64, 64); l = []");
  program.argument("x");
  program.argument("l");
  program.run("h = x\nfor _ in range(200): h = h @ x * 0.01\nb = bool(x.sum() > 0)");
  program.fork("b");
  program.run("y = h + 1");
  program.returns("y");
  Program other;
  Python::run("x = -torch.ones(64, 64)");
  other.argument("x");
  other.argument("l");
  other.run("h = x\nfor _ in range(200): h = h @ x * 0.01\nb = bool(x.sum() > 0)");
  other.fork("b");
  other.run("y = h - 1");
  other.returns("y");
  program.plan();
  Python::set("want", program.call("[-x, l]").get());
  other.plan();
  Ref arguments = Python::eval("[-x, l]");
  std::vector<Ref> fetched = {Ref::borrow(PyList_GET_ITEM(arguments.get(), 0))};
  std::atomic<int> good{0};
  std::thread runner([&] {
    PyGILState_STATE gil = PyGILState_Ensure();
    for (int i = 0; i < 50; i++) {
      std::unique_ptr<Suspended> suspended;
      Outcome outcome = program.plan().run(guard::Call(), fetched, suspended);
      good += outcome.kind == Kind::Returned;
      Py_XDECREF(outcome.result);
    }
    PyGILState_Release(gil);
  });
  for (int i = 0; i < 20; i++) {
    Plan::join(program.plan(), other.plan());
    PyThreadState* state = PyEval_SaveThread();
    std::this_thread::yield();
    PyEval_RestoreThread(state);
  }
  PyThreadState* state = PyEval_SaveThread();
  runner.join();
  PyEval_RestoreThread(state);
  EXPECT_EQ(good, 50);
}

// --- backends

const char* const kBackend =
    "calls = []\n"
    "def backend(*tensors):\n  calls.append(tensors); return run(*tensors)\n";

TEST(Backend, RunsASegment) {
  Program program;
  Python::run("x = torch.ones(2); w = torch.ones(2); l = []");
  for (const char* name : {"x", "w", "l"}) program.argument(name);
  program.run("h = x * w; y = h + 1; z = y * 2");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "y"});
  program.returns("(z, x)");
  const Segment& segment = program.plan().segments().at(0);
  EXPECT_EQ(program.plan().segments().size(), 1u);
  EXPECT_EQ(segment.inputs.size(), 2u);
  EXPECT_EQ(segment.outputs.size(), 2u);
  EXPECT_EQ(segment.operators, 3u);
  ASSERT_TRUE(program.plan().canLower(0));
  Python::run(std::string(kBackend) + "run = lambda x, w: (x * w + 1, [x * w * 2 + 2][0])");
  program.plan().setBackend(0, Python::eval("backend").get());
  Python::run("a = torch.ones(2) * 3; b = torch.ones(2) * 2; l = []");
  Python::set("r", program.call("[a, b, l]").get());
  EXPECT_EQ(Python::text("r[0].tolist(), l[0].tolist(), len(calls)"),
            "([14.0, 14.0], [7.0, 7.0], 1)");
  EXPECT_TRUE(Python::truth("calls[0][0] is a and calls[0][1] is b and r[1] is a"));
}

TEST(Backend, KeepsToItsContract) {
  Program program;
  Python::run("x = torch.ones(2)");
  program.argument("x");
  program.run("y = x + 1");
  program.returns("y");
  struct {
    const char* run;
    const char* error;
  } const cases[] = {
      {"lambda x: (x, x)", "RuntimeError: the backend returned 2 tensors for 1 outputs"},
      {"lambda x: x", "TypeError: the backend returned Tensor instead of a tuple or list"},
      {"lambda x: [3]", "TypeError: the backend returned int for output 0, a tensor"},
  };
  for (const auto& c : cases) {
    Ref backend = Python::eval(c.run);
    program.plan().setBackend(0, backend.get());
    EXPECT_FALSE(program.call("[x]"));
    ASSERT_EQ(program.outcome.kind, Kind::Raised);
    EXPECT_EQ(Python::takeError(), c.error);
  }
  Ref raises = Python::eval("lambda x: 1 / 0");
  program.plan().setBackend(0, raises.get());
  EXPECT_FALSE(program.call("[x]"));
  EXPECT_EQ(program.outcome.kind, Kind::Retry);
}

TEST(Backend, NumbersAndOutputComeAfterIt) {
  Program program;
  Python::run("x = torch.ones(2)\ndef note(*a): log.append(a[0].tolist())");
  program.argument("x");
  program.run("y = x + 1");
  program.opaque({"note", "y"}, true);
  program.run("s = x.sum(); v = s.item()");
  program.nameScalar("v");
  program.run("z = y * 2");
  program.returns("(z, v)");
  ASSERT_EQ(program.plan().segments().size(), 1u);
  ASSERT_TRUE(program.plan().canLower(0));
  EXPECT_EQ(program.plan().segments()[0].outputs.size(), 3u);
  Python::run("run = lambda x: (x + 1, x.sum(), (x + 1) * 2)");
  Ref run = Python::eval("run");
  program.plan().setBackend(0, run.get());
  Python::run("log.clear()");
  Python::set("r", program.call("[torch.full((2,), 4.)]").get());
  EXPECT_EQ(Python::text("r[0].tolist(), r[1], log"), "([10.0, 10.0], 8.0, [[5.0, 5.0]])");
}

// x.item() of an input: the plan itself reads it although a backend runs all segments.
TEST(Backend, NumbersOfInputs) {
  Program program;
  Python::run("x = torch.tensor(2.)");
  program.argument("x");
  program.run("y = x + 1; v = x.item()");
  program.nameScalar("v");
  program.returns("(y, v)");
  Ref run = Python::eval("lambda x: [x + 1]");
  program.plan().setBackend(0, run.get());
  Python::set("r", program.call("[torch.tensor(7.)]").get());
  EXPECT_EQ(Python::text("r[0].item(), r[1]"), "(8.0, 7.0)");
}

TEST(Backend, APlanWhoseValuesItKeptStartsAgain) {
  Program yes, no;
  branch(yes, "torch.ones(2)", "g = torch.rand(2); h = g + x; k = h * 1");
  Python::run("x = -torch.ones(2); l = []");
  no.argument("x");
  no.argument("l");
  no.run("g = torch.rand(2); h = g + x; k = h * 1\nb = bool(x.sum() > 0)");
  no.fork("b");
  no.run("y = k * g");
  no.returns("y");
  ASSERT_TRUE(Plan::join(yes.plan(), no.plan()));
  ASSERT_TRUE(yes.plan().canLower(0));
  Python::run(
      "outs = []\ndef run(x):\n  h = torch.rand(2) + x; outs.append(h)\n  "
      "return (h, (x.sum() > 0))");
  ASSERT_EQ(yes.plan().segments()[0].outputs.size(), 2u);
  Ref run = Python::eval("run");
  yes.plan().setBackend(0, run.get());
  Python::run("torch.manual_seed(5); a = -torch.ones(2); l = []");
  EXPECT_FALSE(yes.call("[a, l]"));
  ASSERT_TRUE(yes.suspended);
  ASSERT_TRUE(no.plan().covers(*yes.suspended));
  Python::set("r", no.resume("[a, l]", yes).get());
  ASSERT_EQ(no.outcome.kind, Kind::Returned);
  Python::run("after = torch.rand(1); torch.manual_seed(5); g = torch.rand(2)");
  EXPECT_TRUE(Python::truth("torch.equal(r, (g + a) * g) and torch.equal(after, torch.rand(1))"));
}

TEST(Backend, DropsWhatASegmentUsedLast) {
  Program program;
  Python::run("x = torch.ones(2); l = []\ndef f(): return None");
  program.argument("x");
  program.run("h = x + 1");
  program.opaque({"f"}, false);
  program.run("y = h * 2");
  program.opaque({"f"}, false);
  program.run("z = y * 2");
  // The program has let go of it by then; without that it would live on, as it may be needed.
  common::ValueId h = program.trace.events[1].results[0];
  program.trace.events.back().dead.push_back(static_cast<int64_t>(h.index()));
  program.returns("z");
  ASSERT_EQ(program.plan().segments().size(), 3u);
  Python::run(
      "refs = []\n"
      "def first(x):\n  h = x + 1; refs.append(weakref.ref(h)); return [h]\n"
      "def second(h): return [h * 2]\n"
      "def third(y):\n  alive.append(refs[0]() is not None); return [y * 2]\nalive = []");
  const char* names[] = {"first", "second", "third"};
  for (size_t i = 0; i < 3; i++) program.plan().setBackend(i, Python::eval(names[i]).get());
  Python::set("r", program.call("[x]").get());
  EXPECT_EQ(Python::text("r.tolist(), alive"), "([8.0, 8.0], [False])");
}

TEST(Backend, SegmentsItCannotRun) {
  struct {
    const char* name;
    const char* code;
    bool can;
  } const cases[] = {
      {"plain", "y = x + 1", true},
      {"state", "a = x + 1\nwith torch.no_grad(): y = a + 1", false},
      {"writes", "y = x + 1; y.add_(1)", true},
      {"write after a look", "y = x + 1; v = y[0].item(); y.add_(1)", false},
      {"statistics after a look",
       "m = torch.zeros(2); r = torch.ones(2); v = m[0].item(); y = F.batch_norm(x[None], m, r, "
       "training=False)",
       false},
      {"look after a write", "y = x + 1; y.add_(1); v = y[0].item()", true},
      {"a list as long as the data say", "y = x[x > 0].unbind(0)[0]", false},
      {"identity as the data say", "a = x[x > 0]; y = a.contiguous()", true},
      {"only a number", "v = x[0].item(); y = None", true},
  };
  for (const auto& c : cases) {
    Python::run("x = torch.ones(2)");
    Program program;
    program.argument("x");
    program.run(c.code);
    if (std::string(c.code).find("v =") != std::string::npos) program.nameScalar("v");
    program.returns("y");
    EXPECT_EQ(program.plan().canLower(0), c.can) << c.name;
  }
}

TEST(Backend, IsVisitedByTheCollector) {
  Program program;
  Python::run("x = torch.ones(2)");
  program.argument("x");
  program.run("y = x + 1");
  program.returns("y");
  Ref run = Python::eval("lambda x: [x + 1]");
  program.plan().setBackend(0, run.get());
  PyObject* seen = nullptr;
  auto visit = [](PyObject* object, void* arg) {
    *static_cast<PyObject**>(arg) = object;
    return 0;
  };
  EXPECT_EQ(program.plan().traverse(visit, &seen), 0);
  EXPECT_EQ(seen, run.get());
}

}  // namespace
}  // namespace glowplug::replay::testing
