// What the recorder says of operators: what they write, draw, alias and depend on; and what it
// refuses.
#include "aten_support.h"

namespace glowplug::aten::testing {
namespace {

Recorded& recordOn(Recorded& recorded, const std::string& body,
                   const std::string& inputs = "[torch.tensor([[1., -2, 3], [4, 5, -6]])]") {
  Python::run("def f(x):\n  " + body);
  recorded.record("f", inputs);
  EXPECT_TRUE(recorded.result) << Python::takeError();
  return recorded;
}

TEST(Recorder, OneEventForACompositeOperator) {
  Recorded recorded;
  recordOn(recorded, "return F.scaled_dot_product_attention(x, x, x), F.layer_norm(x, (3,))");
  EXPECT_EQ(recorded.trace.events.size(), 2u) << recorded.text();
}

TEST(Recorder, KeepsNoTensorAlive) {
  Recorded recorded;
  recordOn(recorded,
           "y = x + 1; y.tag = Tag(); w = weakref.ref(y.tag); y = y * 2\n"
           "  assert w() is None, 'kept'\n  return y",
           "[(exec('class Tag: pass', globals()), torch.ones(2))[1]]");
  EXPECT_TRUE(recorded.result);
}

TEST(Recorder, AnAddressUsedAgainIsAnotherValue) {
  Recorded recorded;
  recordOn(recorded, "for _ in range(50): x = x + 1\n  return x");
  ASSERT_EQ(recorded.trace.events.size(), 50u);
  std::vector<bool> seen(recorded.trace.values.size());
  for (const ir::Event& event : recorded.trace.events) {
    EXPECT_FALSE(seen[event.results[0].index()]);
    seen[event.results[0].index()] = true;
  }
}

TEST(Recorder, InPlaceResultIsTheSameValue) {
  Recorded recorded;
  recordOn(recorded, "y = x * 2; y.add_(1); return y");
  EXPECT_EQ(recorded.only("aten::add_.Tensor").results[0],
            recorded.only("aten::mul.Tensor").results[0]);
}

TEST(Recorder, KnowsWritesThatOthersSee) {
  struct {
    const char* body;
    const char* op;
    bool writes;
  } cases[] = {
      {"x.add_(1); return x", "aten::add_.Tensor", true},
      {"x.t()[1:].mul_(2); return x", "aten::mul_.Tensor", true},
      {"y = x * 2; y.add_(1); return y", "aten::add_.Tensor", false},
      {"y = (x * 2).view(-1); y.zero_(); return y", "aten::zero_", false},
      {"torch.add(x, 1, out=x); return x", "aten::add.out", true},
      {"F.batch_norm(x, x[0], x[1], training=True); return x", "aten::batch_norm", true},
      {"F.batch_norm(x, x[0], x[1], training=False); return x", "aten::batch_norm", false},
      {"torch._foreach_add_([x * 2, x], 1.); return x", "aten::_foreach_add_.Scalar", true},
      {"torch._foreach_add_([x * 2], 1.); return x", "aten::_foreach_add_.Scalar", false},
      {"y = torch.empty(0); y.set_(x); y.zero_(); return x", "aten::zero_", true},
      {"y = x.contiguous(); y.zero_(); return x", "aten::zero_", true},
      {"y = x.detach(); y.zero_(); return x", "aten::zero_", true},
      {"y = torch.ones(2); x.set_(y); y.zero_(); return x", "aten::zero_", true},
      {"x.unsqueeze_(0); return x", "aten::unsqueeze_", true},
  };
  for (auto& test : cases) {
    Recorded recorded;
    recordOn(recorded, test.body);
    EXPECT_EQ(recorded.only(test.op).writesInput, test.writes) << test.body;
  }
}

TEST(Recorder, KnowsDraws) {
  struct {
    const char* body;
    const char* op;
    bool random;
  } cases[] = {
      {"return F.dropout(x, 0.5, True)", "aten::dropout", true},
      {"return F.dropout(x, 0.5, False)", "aten::dropout", false},
      {"return torch.rand(2)", "aten::rand", true},
      {"return torch.zeros(2)", "aten::zeros", false},
      {"return torch.rand_like(x)", "aten::rand_like", true},
      {"return torch.randperm(3)", "aten::randperm", true},
      {"return (x * 1).normal_()", "aten::normal_", true},
      {"return torch.multinomial(x.abs(), 1)", "aten::multinomial", true},
      {"return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)",
       "aten::scaled_dot_product_attention", true},
      {"return F.scaled_dot_product_attention(x, x, x)", "aten::scaled_dot_product_attention",
       false},
      {"return F.rrelu(x, training=True)", "aten::rrelu", true},
      {"return F.rrelu(x)", "aten::rrelu", false},
      {"return torch.bernoulli(x.sigmoid())", "aten::bernoulli", true},
      {"return torch.normal(x, 1.)", "aten::normal.Tensor_float", true},
      {"return x.clone().exponential_()", "aten::exponential_", true},
      {"return nn.LSTM(3, 2, 2, dropout=0.5)(x[None])[0]", "aten::lstm.input", true},
      {"return nn.LSTM(3, 2)(x[None])[0]", "aten::lstm.input", false},
  };
  for (auto& test : cases) {
    Recorded recorded;
    recordOn(recorded, test.body);
    EXPECT_EQ(recorded.only(test.op).random, test.random) << test.body;
  }
}

TEST(Recorder, EveryDrawIsMarked) {
  // Whatever moves the generator must be marked, by whatever name.
  Recorded recorded;
  recordOn(
      recorded,
      "return [F.dropout(x), F.alpha_dropout(x, .3, True), F.feature_alpha_dropout(x, .3, True), "
      "F.dropout1d(x[None], .5, True), F.gumbel_softmax(x), torch.randint(3, (2,)), "
      "torch.randint_like(x, 3), torch.poisson(x.abs()), torch.binomial(x.abs().round(), "
      "x.sigmoid()), "
      "x.clone().uniform_(), x.clone().cauchy_(), x.clone().geometric_(.5), "
      "x.clone().log_normal_(), "
      "x.clone().random_(), x.clone().bernoulli_(), torch._standard_gamma(x.abs()), "
      "F.fractional_max_pool2d(torch.ones(1, 1, 5, 5), 2, output_size=2), torch.pca_lowrank(x)]");
  ASSERT_EQ(recorded.refusal, "");
  OpProgram program(recorded.trace, recorded.table, {});
  Values values(recorded.trace.values.size());
  values.setTensor(recorded.inputs[0], Python::eval("torch.ones(2, 3)").get());
  for (size_t i = 0; i < recorded.trace.events.size(); ++i) {
    Python::run("rng = torch.get_rng_state()");
    ASSERT_EQ(program.run(values, i, i + 1, nullptr), OpProgram::Done) << Python::takeError();
    if (Python::truth("torch.equal(rng, torch.get_rng_state())")) continue;
    const ir::Event& event = recorded.trace.events[i];
    EXPECT_TRUE(event.random) << recorded.trace.operatorNames[event.op.index()];
  }
}

TEST(Recorder, KnowsDataDependentSizes) {
  struct {
    const char* body;
    bool depends;
  } cases[] = {
      {"return x.nonzero()", true},
      {"return x[x > 0]", true},
      {"return x[x > 0] * 2", true},
      {"return x[x > 0].sum()", false},
      {"return x[x > 0].sum(0)", true},
      {"return x[x > 0].mean() + 1", false},
      {"return x.masked_select(x > 0)", true},
      {"return torch.unique(x)", true},
      {"return torch.where(x > 0)[0]", true},
      {"return torch.where(x > 0, x, 0.)", false},
      {"return torch.argwhere(x)", true},
      {"return x[torch.tensor([0, 1])]", false},
      {"return x[torch.tensor([True, False])]", true},
      {"return x.repeat_interleave(torch.tensor([1, 2]), 0)", true},
      {"return x.repeat_interleave(torch.tensor([1, 2]), 0, output_size=3)", false},
      {"return x.repeat_interleave(2, 0)", false},
      {"return torch.bincount(x.long().abs().view(-1))", true},
      {"return F.one_hot(x.long().abs())", true},
      {"return F.one_hot(x.long().abs(), 9)", false},
      {"y = x * 1; y[y > 0] = 1.; return y", false},
      {"y = x[x > 0]; y.add_(1); return y", true},
      {"return x.index_put((x > 0,), torch.tensor(1.))", false},
      {"return torch.cat([x.view(-1), x[x > 0]])", true},
      {"o = torch.empty(0); torch.mul(x[x > 0], 2, out=o); return o", true},
      {"return F.mse_loss(x[x > 0], x[x > 0])", false},
      {"return x.to_sparse()", true},
      {"return x[x > 4].squeeze() + 1", true},
      {"return x.tensor_split(torch.tensor([1]))[0]", true},
      {"return x.cumsum(0)", false},
  };
  for (auto& test : cases) {
    Recorded recorded;
    recordOn(recorded, test.body);
    ASSERT_EQ(recorded.results.size(), 1u) << test.body;
    EXPECT_EQ(recorded.value(recorded.results[0]).dataDependent, test.depends) << test.body;
  }
}

TEST(Recorder, TellsOfNumbers) {
  Recorded recorded;
  recordOn(recorded,
           "assert float(x.sum()) == 5.0 and bool(x.any()) and x.is_floating_point(); "
           "assert torch.equal(x, x) and x.long().sum().item() == 5; return x");
  std::vector<std::string> seen;
  for (auto& [id, object] : recorded.scalars) {
    EXPECT_EQ(recorded.value(id).kind, ir::ValueKind::Scalar);
    seen.push_back(PyUnicode_AsUTF8(Ref::steal(PyObject_Repr(object.get())).get()));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"5.0", "True", "True", "5"}));
}

TEST(Recorder, QueriesOfMetadataLeaveNothing) {
  Recorded recorded;
  recordOn(
      recorded,
      "x.is_floating_point(), torch.result_type(x, 1), x.is_same_size(x), x.is_conj(); return x");
  EXPECT_TRUE(recorded.trace.events.empty()) << recorded.text();
}

TEST(Recorder, Refuses) {
  struct {
    const char* body;
    const char* reason;
  } cases[] = {
      {"return other + x", "unknown_tensor"},
      {"return torch.from_numpy(__import__('numpy').ones(3)) + x", "unknown_tensor"},
      {"return torch.tensor(__import__('numpy').array(3.0)) + x", "unknown_tensor"},
      {"y = x.clone().requires_grad_(); return torch.autograd.grad(y.sum(), y)[0]",
       "inside_backward"},
      // Whether sizes fit is guarded; whether indices are in range depends on data.
      {"try: x.view(5)\n  except RuntimeError: pass\n  return x", ""},
      {"try: x[torch.tensor([9])]\n  except IndexError: pass\n  return x", "operator_raised"},
      {"g = torch.Generator(); g.manual_seed(3); return torch.rand(3, generator=g)",
       "operand_kind"},
      {"return Twice.apply(x.clone().requires_grad_()) + 1", "autograd_function"},
      {"y = torch.ones(3); y.data = x * 2; return y + 1", "storage_replaced"},
      {"torch.set_default_dtype(torch.float64)\n  try: return x + 1\n"
       "  finally: torch.set_default_dtype(torch.float32)",
       "torch_settings"},
      {"with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t): return x + 1",
       "saved_tensor_hooks"},
  };
  Python::run(
      "other = torch.ones(3)\nclass Twice(torch.autograd.Function):\n"
      "  @staticmethod\n  def forward(ctx, x): return x * 2\n"
      "  @staticmethod\n  def backward(ctx, g): return g * 2\n");
  for (auto& test : cases) {
    Recorded recorded;
    recordOn(recorded, test.body);
    EXPECT_EQ(recorded.refusal.substr(0, recorded.refusal.find(':')), test.reason) << test.body;
  }
}

TEST(Recorder, PauseHidesOperators) {
  Python::run("x = torch.ones(2)");
  Recorded recorded;
  OpRecorder recorder(recorded.trace, recorded.table, recorded);
  Ref x = Python::eval("x");
  recorder.addInput(x.get(), {});
  recorder.start();
  {
    OpRecorder::Pause pause;
    Python::run("y = x + 1");
  }
  EXPECT_TRUE(recorded.trace.events.empty());
  Ref y = Python::eval("y");
  EXPECT_FALSE(recorder.find(y.get()).valid());
  ValueId value = recorder.addResult(y.get());
  Python::run("z = y * x");
  recorder.stop();
  Python::run("z = z + 1");
  ASSERT_EQ(recorded.trace.events.size(), 1u);
  EXPECT_EQ(recorded.only("aten::mul.Tensor").operands[0].value, value);
}

TEST(Recorder, AModeThatOutlivesTheRecordingDoesNoHarm) {
  Recorded recorded;
  recordOn(recorded, "global mode; mode = torch.inference_mode(); mode.__enter__(); return x + 1");
  // The mode's end restores the dispatch keys of its beginning, the recorder's among them.
  Python::run("mode.__exit__(None, None, None)");
  size_t events = recorded.trace.events.size();
  EXPECT_EQ(bypassReason(), nullptr);
  EXPECT_TRUE(Python::truth("(torch.ones(2) + 1).sum() == 4"));
  EXPECT_EQ(recorded.trace.events.size(), events);
}

TEST(Recorder, OtherThreadsRunUnrecorded) {
  Recorded recorded;
  recordOn(recorded,
           "import threading; t = threading.Thread(target=lambda: torch.ones(2) + 1); t.start(); "
           "t.join()\n"
           "  return x * 2");
  EXPECT_EQ(recorded.trace.events.size(), 1u);
}

TEST(Recorder, PythonKernelsBelongToTheirOperator) {
  Python::run(
      "lib = torch.library.Library('glowplug_test', 'DEF')\n"
      "lib.define('twice(Tensor x) -> Tensor')\n"
      "lib.impl('twice', lambda x: x + x, 'CompositeExplicitAutograd')");
  Recorded recorded;
  recordOn(recorded, "return torch.ops.glowplug_test.twice(x)");
  ASSERT_EQ(recorded.trace.events.size(), 1u) << recorded.text();
  const ir::Event& event = recorded.only("glowplug_test::twice");
  EXPECT_TRUE(event.random) << "foreign code may draw";
  EXPECT_TRUE(recorded.value(event.results[0]).dataDependent) << "foreign code may size by data";
  Python::set("got", recorded.replay("[torch.ones(2, 3)]").get());
  EXPECT_TRUE(Python::truth("torch.equal(got[0], torch.full((2, 3), 2.))"));
}

TEST(Recorder, DataAndGradAreToldOf) {
  Python::run("x = torch.ones(2, requires_grad=True); (x * 3).sum().backward()");
  Recorded recorded;
  OpRecorder recorder(recorded.trace, recorded.table, recorded);
  Ref x = Python::eval("x");
  recorded.inputs.push_back(recorder.addInput(x.get(), {}));
  recorder.start();
  Ref data = Python::eval("x.data");
  recorder.addAlias(data.get(), "data", x.get());
  Ref grad = Python::eval("x.grad");
  recorder.addAlias(grad.get(), "grad", x.get());
  Python::set("d", data.get());
  Python::set("g", grad.get());
  Python::run("d.sub_(g * 0.5); h = g * 2");
  Ref h = Python::eval("h");
  Python::run("x.grad = h");
  recorder.addWrite("set_grad", x.get(), h.get());
  Python::run("n = d * 4; x.data = n");
  Ref n = Python::eval("n");
  recorder.addWrite("set_data", x.get(), n.get());
  Python::run("out = x + 1; n.zero_()");
  recorded.results.push_back(recorder.find(Python::eval("out").get()));
  recorder.stop();
  ASSERT_EQ(recorded.refusal, "");
  EXPECT_TRUE(recorded.only("aten::sub_.Tensor").writesInput);
  EXPECT_TRUE(recorded.only("aten::zero_").writesInput) << "n is x's data by then";
  Python::run("b = torch.full((2,), 10., requires_grad=True); (b * 3).sum().backward()");
  Python::set("got", recorded.replay("[b]").get());
  EXPECT_EQ(Python::text("got[0].tolist(), b.grad.tolist(), b.tolist()"),
            "([35.0, 35.0], [6.0, 6.0], [0.0, 0.0])");
}

TEST(Recorder, KnownGeneratorsAreKept) {
  Python::run(
      "g = torch.Generator(); g.manual_seed(5)\ndef f(x):\n  return torch.rand(2, generator=g)");
  Recorded recorded;
  OpRecorder recorder(recorded.trace, recorded.table, recorded);
  recorder.addGenerator(Python::eval("g").get());
  recorder.start();
  Ref first = Python::eval("f(None)");
  recorded.results.push_back(recorder.find(first.get()));
  recorder.stop();
  ASSERT_EQ(recorded.refusal, "");
  Python::run("s = g.get_state(); want = f(None); g.set_state(s)");
  Python::set("got", recorded.replay("[]").get());
  EXPECT_TRUE(Python::truth("torch.equal(got[0], want)"));
}

}  // namespace
}  // namespace glowplug::aten::testing
