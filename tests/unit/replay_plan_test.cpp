// Operators, effects, opaque calls, errors and lifetimes of one plan.
#include "replay/rerun.h"
#include "replay_support.h"

namespace glowplug::replay::testing {
namespace {

using Kind = Outcome::Kind;

TEST(Plan, RunsOperatorsOnOtherInputs) {
  Program program;
  Python::run("x = torch.ones(3); w = torch.ones(3)");
  program.argument("x");
  program.argument("w");
  program.run("y = x * 2 + w; z = y.sum()");
  program.returns("{'y': y, 'z': [z, x]}");
  Python::run("a = torch.randn(3); b = torch.randn(3)");
  Ref made = program.call("[a, b]");
  ASSERT_TRUE(made);
  Python::set("r", made.get());
  EXPECT_TRUE(Python::truth("torch.equal(r['y'], a * 2 + b) and r['z'][1] is a"));
  EXPECT_TRUE(Python::truth("torch.equal(r['z'][0], (a * 2 + b).sum())"));
}

TEST(Plan, SameTensorIsSameObject) {
  Program program;
  Python::run("x = torch.ones(3)");
  program.argument("x");
  program.run("y = x + 1; y.add_(1); v = y[1:]");
  program.returns("(y, y, v, x)");
  Python::set("r", program.call("[x]").get());
  EXPECT_TRUE(Python::truth("r[0] is r[1] and r[2]._base is r[0] and r[3] is x"));
}

TEST(Plan, WantsEachSourceOnce) {
  Program program;
  Python::run("x = torch.ones(3); o = []; p = {}");
  program.argument("x");
  program.argument("o");
  program.argument("p");
  program.run("y = x + 1");
  program.effect(EffectKind::CallMethod, {"list.append", "o", "y"});
  program.returns("(x, o, o, y)");
  EXPECT_EQ(program.plan().wanted().size(), 2u);
  Python::run("a = torch.zeros(3); l = []");
  Python::set("r", program.call("[a, l, None]").get());
  EXPECT_TRUE(Python::truth("r[0] is a and r[1] is l and r[2] is l and l[0] is r[3]"));
}

TEST(Plan, InterimTensorsDieAtTheirLastUse) {
  Program program;
  Python::run("x = torch.zeros(1 << 20)\nimport resource");
  program.argument("x");
  program.run("y = x\nfor _ in range(30): y = y + 1");
  program.returns("y");
  program.call("[x]");
  Python::run("before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss");
  ASSERT_TRUE(program.call("[x]"));
  EXPECT_TRUE(
      Python::truth("resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000"));
}

TEST(Plan, KeepsNothingAfterACall) {
  Program program;
  Python::run("x = torch.zeros(3); o = [torch.ones(2)]");
  program.argument("x");
  program.argument("o");
  program.run("y = x + 1; z = y * 2");
  program.returns("[z, o]");
  Python::run(
      "a = torch.ones(3); l = type('L', (), {})(); wa = weakref.ref(a); "
      "wl = weakref.ref(l)");
  Python::set("r", program.call("[a, l]").get());
  Python::run("wz = weakref.ref(r[0]); del a, l, r");
  EXPECT_TRUE(Python::truth("wa() is None and wl() is None and wz() is None"));
}

// --- effects

const char* const kTarget = R"(
class Target:
    def __setattr__(self, n, v): log.append(n); object.__setattr__(self, n, v)
class MyDict(dict):
    def __setitem__(self, k, v): log.append(k); super().__setitem__(k, v)
class Meta(type):
    def __setattr__(cls, n, v): log.append(n); super().__setattr__(n, v)
class Class(metaclass=Meta): pass
def make():
    return types.SimpleNamespace(t=Target(), d={'old': 1}, m=MyDict(), o=OrderedDict(a=1),
                                 l=[0, 1, 2], c=types.CellType(5), q=deque([1]), s={1})
x = torch.ones(2); n = make()
t, d, m, o, l, c, q, s = vars(n).values()
)";

void targets(Program& program) {
  Python::run(kTarget);
  for (const char* name : {"x", "t", "d", "m", "o", "l", "c", "q", "s"}) program.argument(name);
}

const char* const kCallTargets =
    "[x, n.t, n.d, n.m, n.o, n.l, n.c, n.q, n.s] if globals().update(n=make(), x=torch.zeros(2)) "
    "is None else 0";

TEST(Effects, OfEveryKind) {
  Program program;
  targets(program);
  program.run("y = x + 1");
  program.effect(EffectKind::SetAttr, {"t", "'a'", "y"});
  program.effect(EffectKind::SetAttr, {"t", "'b'", "1"});
  program.effect(EffectKind::DelAttr, {"t", "'b'"});
  program.effect(EffectKind::SetItem, {"d", "'k'", "[y]"});
  program.effect(EffectKind::DelItem, {"d", "'old'"});
  program.effect(EffectKind::SetItem, {"m", "'k'", "2"});
  program.effect(EffectKind::SetItem, {"o", "'b'", "2"});
  program.effect(EffectKind::DelItem, {"o", "'a'"});
  program.effect(EffectKind::SetItem, {"l", "0", "'first'"});
  program.effect(EffectKind::SetItem, {"l", "slice(1, 3)", "['x', 'y', 'z']"});
  program.effect(EffectKind::DelItem, {"l", "-1"});
  program.effect(EffectKind::SetItem, {"q", "0", "7"});
  program.effect(EffectKind::CallMethod, {"deque.appendleft", "q", "6"});
  program.effect(EffectKind::CallMethod, {"set.add", "s", "2"});
  Ref names = Python::eval("('key', 'reverse')");
  program.effect(EffectKind::CallMethod, {"list.sort", "l", "len", "True"}, names.get());
  program.effect(EffectKind::SetCell, {"c", "y"});
  program.effect(EffectKind::SetAttr, {"Class", "'static'", "3"});
  program.returns("y");
  Python::run("log.clear()");
  Python::set("r", program.call(kCallTargets).get());
  EXPECT_EQ(Python::text("log"), "[]") << "user code ran";
  EXPECT_TRUE(Python::truth("n.t.a is r and not hasattr(n.t, 'b') and n.d['k'][0] is r"));
  EXPECT_EQ(Python::text("list(n.d), n.m, n.o, n.l, n.q, n.s, Class.static"),
            "(['k'], {'k': 2}, OrderedDict([('b', 2)]), ['first', 'x', 'y'], deque([6, 7]), "
            "{1, 2}, 3)");
  EXPECT_TRUE(Python::truth("n.c.cell_contents is r"));
}

TEST(Effects, ShareWhatTheResultHolds) {
  Program program;
  targets(program);
  program.run("y = x + 1; fresh = [y]; fresh.append(fresh)");
  program.effect(EffectKind::SetAttr, {"t", "'cache'", "fresh"});
  program.effect(EffectKind::CallMethod, {"list.append", "l", "fresh"});
  program.returns("(fresh, y)");
  for (int i = 0; i < 2; i++) {
    Python::set("r", program.call(kCallTargets).get());
    EXPECT_TRUE(Python::truth(
        "n.t.cache is r[0] and n.l[-1] is r[0] and r[0][0] is r[1] and r[0][1] is r[0]"));
  }
}

TEST(Effects, TensorAttributes) {
  Program program;
  Python::run("x = torch.ones(2)");
  program.argument("x");
  program.run("g = x * 3");
  program.effect(EffectKind::SetAttr, {"x", "'grad'", "g"});
  program.effect(EffectKind::SetAttr, {"x", "'note'", "'n'"});
  program.returns("None");
  Python::run("a = torch.zeros(2) + 2");
  program.call("[a]");
  EXPECT_EQ(Python::text("a.grad.tolist(), a.note"), "([6.0, 6.0], 'n')");
}

// --- opaque calls

TEST(Opaque, RunsInOrderWithEffectsCommitted) {
  Program program;
  Python::run(
      "log.clear()\ndef seen(*args, **kw):\n  log.append((l[:], args, kw)); return 'result'\n"
      "x = torch.ones(1); l = []");
  program.argument("x");
  program.argument("l");
  program.run("y = x + 1");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "1"});
  program.opaque({"seen", "y", "[y]"}, false, "made");
  program.run("z = y * 2");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "2"});
  program.returns("(z, made, l, y)");
  for (int i = 0; i < 2; i++) {
    Python::run("log.clear(); l = []; a = torch.zeros(1) + 4");
    Python::set("r", program.call("[a, l]").get());
    EXPECT_EQ(Python::text("len(log), log[0][0], log[0][1][0].tolist(), log[0][2], r[1], l"),
              "(1, [1], [5.0], {}, 'result', [1, 2])");
    EXPECT_TRUE(Python::truth("log[0][1][1][0] is log[0][1][0] and r[3] is log[0][1][0]"));
  }
}

TEST(Opaque, ResultTensorsGoOn) {
  Program program;
  Python::run("def twice(t): return t.detach() * 2\nx = torch.ones(2)");
  program.argument("x");
  program.opaque({"twice", "x"}, false, "y");
  program.run("z = y + x");
  program.returns("(z, y)");
  Python::set("r", program.call("[torch.full((2,), 3.)]").get());
  EXPECT_EQ(Python::text("r[0].tolist(), r[1].tolist()"), "([9.0, 9.0], [6.0, 6.0])");
}

TEST(Opaque, KeywordsAndTensorsOfAnotherKind) {
  Program program;
  Python::run("ok = True\ndef f(t, *, k): return t.clone() if ok else (k, t)\nx = torch.ones(2)");
  program.argument("x");
  program.run("1");
  Ref names = Python::eval("('k',)");
  ir::Event event;
  event.kind = ir::EventKind::Opaque;
  for (const char* part : {"f", "x", "5"}) event.recipes.push_back(program.recipe(part));
  event.keywords = program.object(names.get());
  event.results.push_back(ValueId(program.trace.values.size()));
  program.trace.values.push_back({});
  program.trace.events.push_back(event);
  ir::Event last;
  last.kind = ir::EventKind::Return;
  last.recipes.push_back(program.add({RecipeKind::Value, {}, {}, event.results[0], {}}));
  program.trace.events.push_back(last);
  Python::run("a = torch.zeros(2)");
  Python::set("r", program.call("[a]").get());
  EXPECT_TRUE(Python::truth("torch.equal(r, a) and r is not a"));
  Python::run("ok = False");
  EXPECT_FALSE(program.call("[a]"));
  EXPECT_EQ(program.outcome.kind, Kind::Exited);
  ASSERT_TRUE(program.suspended);
  EXPECT_TRUE(program.suspended->committed());
}

TEST(Opaque, WhatIsPrintedIsASnapshot) {
  Program program;
  Python::run("def note(*a): log.append(a)\nx = torch.ones(1); l = []");
  program.argument("x");
  program.argument("l");
  program.run("y = x + 1; fresh = [y]");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "1"});
  program.opaque({"note", "fresh", "l"}, true);
  program.run("z = y * 2");
  program.returns("fresh");
  Python::run("log.clear(); l = []");
  Python::set("r", program.call("[x, l]").get());
  EXPECT_TRUE(Python::truth("log[0][0] is not r and log[0][0][0] is r[0] and log[0][1] is l"));
  EXPECT_EQ(Python::text("l"), "[1]");
  EXPECT_EQ(program.plan().segments().size(), 1u) << "output splits no segment";
}

TEST(Opaque, OutputThatRunsCodeOfTheProgramStopsTheReplay) {
  Program program;
  Python::run(
      "program = {'__name__': 'program', 'log': log}\n"
      "exec('def note(kept): log.append(len(kept)); kept.append(0)', program)\n"
      "note = program['note']\nx = torch.ones(1); log.clear()");
  program.argument("x");
  program.argument("note");
  program.run("fresh = [x]");
  program.opaque({"note", "fresh"}, true);
  program.returns("fresh");
  EXPECT_FALSE(program.call("[x, note]"));
  EXPECT_EQ(program.outcome.kind, Kind::Exited);
  ASSERT_TRUE(program.suspended);
  EXPECT_TRUE(program.suspended->programRan());
  EXPECT_TRUE(program.suspended->committed());
  EXPECT_EQ(Python::text("log"), "[1]") << "it has run once";
  // What it was given is kept, as it has become.
  Rerun rerun(std::move(program.suspended));
  ASSERT_TRUE(rerun.begin());
  ASSERT_TRUE(rerun.opaquePending());
  EXPECT_TRUE(rerun.programRan());
  Python::set("built", rerun.built(program.recipe("fresh")));
  EXPECT_EQ(Python::text("built[1:]"), "[0]");
}

TEST(Opaque, OutputDoesNotWaitForAnEffectThatNeedsMore) {
  Program program;
  Python::run("def note(*a): log.append((a, l[:]))\nx = torch.ones(1); l = []");
  program.argument("x");
  program.argument("l");
  program.run("fresh = []");
  Python::run("later = None");
  size_t effect = program.trace.events.size();
  program.effect(EffectKind::CallMethod, {"list.append", "l", "None"});
  program.opaque({"note", "'hello'"}, true);
  program.run("fresh.append(x + 1)");
  program.trace.events[effect].recipes[2] = program.recipe("fresh");
  program.returns("fresh");
  Python::run("log.clear(); l = []");
  Python::set("r", program.call("[x, l]").get());
  EXPECT_EQ(Python::text("log"), "[(('hello',), [])]");
  EXPECT_TRUE(Python::truth("l[0] is r and r[0].item() == 2"));
}

// --- errors

TEST(Errors, BeforeAnythingHappenedTheProgramCanRun) {
  Program program;
  Python::run("x = torch.ones(4, 2); i = torch.tensor([1]); l = []");
  for (const char* name : {"x", "i", "l"}) program.argument(name);
  program.effect(EffectKind::CallMethod, {"list.append", "l", "1"});
  program.run("r = torch.rand(1); y = F.embedding(i, x); z = y + r");
  program.returns("z");
  Python::run("torch.manual_seed(3); state = torch.get_rng_state(); l = []");
  EXPECT_FALSE(program.call("[x, torch.tensor([9]), l]"));
  EXPECT_EQ(program.outcome.kind, Kind::Retry);
  EXPECT_TRUE(Python::truth("torch.equal(state, torch.get_rng_state()) and l == []"));
  Python::run(
      "torch.manual_seed(3); want = torch.rand(1) + 1; after = torch.rand(1); "
      "torch.manual_seed(3)");
  Python::set("got", program.call("[x, i, l]").get());
  EXPECT_TRUE(
      Python::truth("torch.equal(got, want.expand(1, 2)) and torch.equal(torch.rand(1), "
                    "after)"));
}

// The program goes on itself from there: it does the effects, and it raises with its own lines.
TEST(Errors, AfterAWriteTheReplayIsSuspended) {
  Program program;
  Python::run("x = torch.ones(2, 2); i = torch.tensor([1]); l = []");
  for (const char* name : {"x", "i", "l"}) program.argument(name);
  program.effect(EffectKind::CallMethod, {"list.append", "l", "'before'"});
  program.run("x.add_(1)");
  size_t late = program.trace.events.size();
  program.effect(EffectKind::CallMethod, {"list.append", "l", "None"});
  program.effect(EffectKind::CallMethod, {"list.append", "l", "'near'"});
  program.run("y = F.embedding(i, x)");
  program.trace.events[late].recipes[2] = program.recipe("[y]");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "'after'"});
  program.returns("y");
  Python::run("a = torch.zeros(2, 2); l = []");
  EXPECT_FALSE(program.call("[a, torch.tensor([9]), l]"));
  ASSERT_EQ(program.outcome.kind, Kind::Exited);
  ASSERT_TRUE(program.suspended);
  EXPECT_TRUE(program.suspended->committed());
  EXPECT_EQ(program.trace.events[program.outcome.event].kind, ir::EventKind::Op);
  EXPECT_EQ(Python::text("a.sum().item(), l"), "(4.0, [])");
}

TEST(Errors, OfAnOpaqueCall) {
  Program program;
  Python::run("fails = False\ndef f():\n  if fails: raise KeyError('mine')\nl = []");
  program.argument("l");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "1"});
  program.opaque({"f"}, false);
  program.effect(EffectKind::CallMethod, {"list.append", "l", "2"});
  program.returns("l");
  Python::run("l = []");
  EXPECT_TRUE(program.call("[l]"));
  EXPECT_EQ(Python::text("l"), "[1, 2]");
  Python::run("l = []; fails = True");
  EXPECT_FALSE(program.call("[l]"));
  EXPECT_EQ(program.outcome.kind, Kind::Exited);
  EXPECT_EQ(Python::text("l"), "[1]");
  // Run again, the call raises what it raised, and the effect is the program's to make.
  Rerun rerun(std::move(program.suspended));
  ASSERT_TRUE(rerun.begin());
  EXPECT_EQ(Python::text("l"), "[]");
  Python::run("l.append(1)");
  ASSERT_TRUE(rerun.opaquePending());
  EXPECT_EQ(rerun.takeOpaque(), nullptr);
  EXPECT_EQ(Python::takeError(), "KeyError: 'mine'");
  EXPECT_FALSE(rerun.opaquePending());
  EXPECT_EQ(Python::text("l"), "[1]");
}

TEST(Errors, OfAnEffectEndTheCall) {
  Program program;
  Python::run("d = {1: 2}; l = []");
  program.argument("d");
  program.argument("l");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "1"});
  program.effect(EffectKind::DelItem, {"d", "1"});
  program.effect(EffectKind::CallMethod, {"list.append", "l", "2"});
  program.returns("l");
  Python::run("l = []");
  EXPECT_FALSE(program.call("[{}, l]"));
  EXPECT_EQ(program.outcome.kind, Kind::Raised);
  EXPECT_EQ(Python::takeError(), "KeyError: 1");
  EXPECT_EQ(Python::text("l"), "[1]");
}

TEST(Errors, InterruptsAreNotLost) {
  Program program;
  Python::run("def backend(x): raise KeyboardInterrupt('now')\nx = torch.ones(2)");
  program.argument("x");
  program.run("y = x + 1");
  program.returns("y");
  program.plan().setBackend(0, Python::eval("backend").get());
  EXPECT_FALSE(program.call("[x]"));
  EXPECT_EQ(program.outcome.kind, Kind::Raised);
  EXPECT_EQ(Python::takeError(), "KeyboardInterrupt: now");
}

TEST(Errors, LeaveTheThreadsState) {
  Program program;
  Python::run("x = torch.ones(4, 2); i = torch.tensor([1])");
  program.argument("x");
  program.argument("i");
  program.run("with torch.no_grad(): y = F.embedding(i, x)\nz = y * 2");
  program.returns("z");
  EXPECT_FALSE(program.call("[x, torch.tensor([9])]"));
  EXPECT_TRUE(Python::truth("torch.is_grad_enabled()"));
  EXPECT_TRUE(program.call("[x, i]"));
  EXPECT_TRUE(Python::truth("torch.is_grad_enabled()"));
}

TEST(Plan, ADeadClassEndsTheReplayBeforeItBegins) {
  Program program;
  Python::run("class Gone: pass\no = Gone(); x = torch.ones(1); l = []");
  program.argument("x");
  program.argument("l");
  program.run("y = x + 1");
  program.effect(EffectKind::CallMethod, {"list.append", "l", "1"});
  program.returns("o");
  EXPECT_TRUE(program.call("[x, l]"));
  program.forgetObjects();
  Python::run("del Gone, o; gc.collect(); l = []");
  EXPECT_FALSE(program.call("[x, l]"));
  EXPECT_EQ(program.outcome.kind, Kind::Exited);
  EXPECT_FALSE(program.suspended);
  EXPECT_EQ(Python::text("l"), "[]");
}

// A late guard may come after what cannot be taken back; a replay that stops there has to be gone
// on with.
TEST(Plan, StopsAfterWhatCannotBeTakenBack) {
  Python::run("x = torch.ones(2)");
  for (const char* before : {"x.add_(1)", "x.sum()"}) {
    Python::run("x = torch.ones(2); other = torch.full((2,), -5.0)");
    Program program;
    program.argument("x");
    program.run(before);
    program.run("b = bool((x * 2).sum() > 0)");
    program.fork("b");
    program.returns("None");
    size_t event = 0;
    EXPECT_EQ(Plan::refusal(program.trace, &event), nullptr);
    EXPECT_TRUE(program.call("[torch.ones(2)]"));
    EXPECT_FALSE(program.call("[other]"));
    EXPECT_EQ(program.outcome.kind, Outcome::Kind::Exited);
    ASSERT_TRUE(program.suspended);
    EXPECT_EQ(program.suspended->committed(), std::string(before) == "x.add_(1)");
  }
}

// --- refusals

TEST(Refusal, OpaqueCallsBeforeWhatTheyAreGivenExists) {
  Python::run("x = torch.ones(2); l = []\ndef f(*a): pass");
  for (bool asEffect : {false, true}) {
    Program program;
    program.argument("x");
    program.argument("l");
    program.run("fresh = []");
    if (asEffect) program.effect(EffectKind::CallMethod, {"list.append", "l", "None"});
    size_t first = program.trace.events.size() - 1;
    program.opaque({"f", "None"}, false);
    program.run("fresh.append(x + 1)");
    size_t place = asEffect ? first : first + 1;
    program.trace.events[place].recipes[asEffect ? 2 : 1] = program.recipe("fresh");
    program.returns("fresh");
    size_t event = 0;
    EXPECT_STREQ(Plan::refusal(program.trace, &event), "opaque_call") << asEffect;
  }
}

}  // namespace
}  // namespace glowplug::replay::testing
