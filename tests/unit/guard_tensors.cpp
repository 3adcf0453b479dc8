// Tensors: metadata, gradients, parameters of modules.

#include "guard_support.h"

namespace glowplug::guard::testing {

class TensorGuardTest : public GuardTest {
 protected:
  void SetUp() override { py.run("import torch"); }
};

TEST_F(TensorGuardTest, MetadataOfArguments) {
  Paths p;
  p.tensor(p.arg(0), py.eval("torch.ones(2, 3)"));
  SourceId item = p.step(StepKind::ListItem, p.arg(1), 0);
  p.tensor(item, py.eval("torch.ones(4)"));
  auto call = [&](const char* x, const char* list) {
    return Arguments({py.eval(x), py.eval(list)});
  };
  size_t trace = add(p, call("torch.ones(2, 3)", "[torch.ones(4)]"), {item});
  expectHolds(trace, call("torch.zeros(2, 3)", "[torch.zeros(4)]"));
  expectFails(trace, call("torch.ones(3, 3)", "[torch.ones(4)]"), "L.args[0]");
  expectFails(trace, call("torch.ones(2, 3).double()", "[torch.ones(4)]"), "L.args[0]");
  expectFails(trace, call("torch.ones(3, 2).t()", "[torch.ones(4)]"), "L.args[0]");
  expectFails(trace, call("torch.ones(2, 3, requires_grad=True)", "[torch.ones(4)]"), "L.args[0]");
  expectFails(trace, call("torch.ones(2, 3)", "[torch.ones(5)]"), "L.args[1][0]");
  expectFails(trace, call("torch.ones(2, 3)", "[None]"), "L.args[1][0]");
  expectFails(trace, call("3", "[torch.ones(4)]"), "L.args[0]");
  expectHolds(trace, call("torch.zeros(2, 3)", "[torch.zeros(4)]"));
}

TEST_F(TensorGuardTest, ParametersOfAModule) {
  py.run("m = torch.nn.Linear(2, 3)");
  Ref m = py.eval("m");
  Paths p;
  SourceId weight = p.item(p.attr(p.callee(), "_parameters"), "weight");
  p.type(p.callee(), m);
  p.tensor(weight, py.eval("m.weight"));
  p.equal(p.attr(p.callee(), "training"), py.eval("True"));
  Arguments call({}, {}, m);
  size_t trace = add(p, call, {weight});
  expectHolds(trace, call);
  EXPECT_EQ(fetched.at(0).get(), py.eval("m.weight").get());
  py.run("m.weight.data = torch.ones(3, 2)");
  expectHolds(trace, call);
  py.run("m.weight.data = torch.ones(4, 2)");
  expectFails(trace, call, "L.self.weight");
  py.run("m.weight.data = torch.ones(3, 2); m.weight.requires_grad_(False)");
  expectFails(trace, call, "L.self.weight");
  py.run("m.weight.requires_grad_(True)");
  expectHolds(trace, call);
  py.run("m.weight = torch.nn.Parameter(torch.zeros(3, 2))");
  expectHolds(trace, call);
  EXPECT_EQ(fetched.at(0).get(), py.eval("m.weight").get());
  py.run("m.eval()");
  expectFails(trace, call, "L.self.training", "True", "False");
  py.run("m.train()");
  expectHolds(trace, call);
}

TEST_F(TensorGuardTest, Gradients) {
  py.run("x = torch.ones(2, requires_grad=True)");
  Ref x = py.eval("x");
  Paths none, some;
  none.equal(none.step(StepKind::TensorGrad, none.arg(0)), py.eval("None"));
  SourceId grad = some.step(StepKind::TensorGrad, some.arg(0));
  some.tensor(grad, py.eval("torch.ones(2)"));
  Arguments call({x});
  size_t without = add(none, call), with = add(some, call, {grad});
  for (int i = 0; i < 3; i++) {
    py.run("x.grad = None");
    EXPECT_EQ(tree.match(call.call(), fetched), without);
    py.run("(x * 2).sum().backward()");
    EXPECT_EQ(tree.match(call.call(), fetched), with);
    EXPECT_EQ(fetched.at(0).get(), py.eval("x.grad").get());
  }
}

TEST_F(TensorGuardTest, TensorsAreNotKeptAlive) {
  py.run(
      "import weakref, gc\nm = torch.nn.Linear(2, 3)\nx = torch.ones(2)\n"
      "refs = [weakref.ref(o) for o in (m, m.weight, x)]");
  Paths p;
  {
    Ref m = py.eval("m"), x = py.eval("x");
    p.type(p.callee(), m);
    p.tensor(p.item(p.attr(p.callee(), "_parameters"), "weight"), py.eval("m.weight"));
    p.tensor(p.arg(0), x);
    Arguments call({x}, {}, m);
    size_t trace = add(p, call, {p.arg(0)});
    expectHolds(trace, call);
    fetched.clear();  // what the tree gave out is its caller's
  }
  py.run("del m, x; gc.collect()");
  EXPECT_TRUE(py.truth("all(r() is None for r in refs)"));
}

}  // namespace glowplug::guard::testing
