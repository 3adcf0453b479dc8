// Tensor metadata and thread state: what is guarded.
#include "aten_support.h"

namespace glowplug::aten::testing {
namespace {

TEST(Meta, MatchesOnlyWhatLooksTheSame) {
  const char* const kTensors[] = {
      "torch.ones(2, 3)",
      "torch.ones(2, 3, dtype=torch.float64)",
      "torch.ones(2, 3, dtype=torch.int64)",
      "torch.ones(3, 2)",
      "torch.ones(6)",
      "torch.ones(())",
      "torch.ones(3, 2).t()",
      "torch.ones(2, 6)[:, ::2]",
      "torch.ones(1, 3).expand(2, 3)",
      "torch.ones(2, 3, requires_grad=True)",
      "nn.Parameter(torch.ones(2, 3))",
      "nn.Parameter(torch.ones(2, 3), requires_grad=False)",
      "torch.ones(2, 3, dtype=torch.complex64)",
      "torch.ones(2, 3, dtype=torch.complex64).conj()",
      "torch.ones(2, 3, dtype=torch.complex64).conj().imag",
      "torch.inference_mode()(lambda: torch.ones(2, 3))()",
      "torch.ones(2, 3, device='meta')",
      "torch.ones(2, 3).to_sparse()",
      "torch.ones(2, 3).to_sparse_csr()",
      "torch.ones(2, 3).to_mkldnn()",
      "torch.ones(0, 3)",
      "torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)",
      "type('Sub', (torch.Tensor,), {})(torch.ones(2, 3))",
  };
  Python::run("warnings.simplefilter('ignore')");
  OpTable table;
  std::vector<std::pair<Ref, common::MetaId>> metas;
  for (const char* text : kTensors) {
    Ref tensor = Python::eval(text);
    ASSERT_TRUE(tensor) << text;
    metas.emplace_back(tensor, table.addMeta(tensor.get()));
  }
  for (size_t i = 0; i < metas.size(); ++i) {
    for (size_t j = 0; j < metas.size(); ++j) {
      const TensorMeta& meta = *table.meta(metas[i].second);
      EXPECT_EQ(metaMatches(meta, metas[j].first.get()), i == j)
          << kTensors[i] << " / " << kTensors[j];
      EXPECT_EQ(metaDifference(meta, metas[j].first.get()).empty(), i == j)
          << kTensors[i] << " / " << kTensors[j];
    }
    EXPECT_EQ(table.addMeta(metas[i].first.get()), metas[i].second);
  }
}

TEST(Meta, ValuesAndOffsetsDoNotMatter) {
  OpTable table;
  const TensorMeta& meta = *table.meta(table.addMeta(Python::eval("torch.zeros(2)").get()));
  EXPECT_TRUE(metaMatches(meta, Python::eval("torch.arange(6.)[3:5]").get()));
  for (const char* other : {"3", "None", "'x'", "torch", "torch.Tensor", "(1, 2)"}) {
    EXPECT_FALSE(metaMatches(meta, Python::eval(other).get())) << other;
    EXPECT_NE(metaDifference(meta, Python::eval(other).get()), "") << other;
  }
}

TEST(Meta, NestedTensorsNeverMatch) {
  Python::run(
      "warnings.simplefilter('ignore'); n = torch.nested.nested_tensor([torch.ones(2), "
      "torch.ones(3)])");
  OpTable table;
  Ref nested = Python::eval("n");
  EXPECT_FALSE(metaMatches(*table.meta(table.addMeta(nested.get())), nested.get()));
}

TEST(Meta, Texts) {
  OpTable table;
  auto text = [&](const char* tensor) {
    return table.metaText(table.addMeta(Python::eval(tensor).get()));
  };
  EXPECT_EQ(text("torch.ones(2, 4)"), "f32[2,4]{4,1} cpu");
  EXPECT_EQ(text("torch.ones((), dtype=torch.bool)"), "bool[]{} cpu");
  EXPECT_EQ(text("nn.Parameter(torch.ones(1, dtype=torch.bfloat16))"),
            "bf16[1]{1} cpu grad Parameter");
  Ref tensor = Python::eval("torch.ones(2, 4)");
  common::MetaId meta = table.addMeta(tensor.get());
  EXPECT_EQ(metaDifference(*table.meta(meta), Python::eval("torch.ones(3, 4)").get()),
            "size of dim 0: 3, was 2");
  EXPECT_EQ(metaDifference(*table.meta(meta), Python::eval("torch.ones(2, 4).double()").get()),
            "dtype: f64, was f32");
}

TEST(Meta, TensorsArePlainOrNot) {
  EXPECT_TRUE(isPlainTensor(Python::eval("torch.ones(1)").get()));
  EXPECT_TRUE(isPlainTensor(Python::eval("nn.Parameter(torch.ones(1))").get()));
  EXPECT_TRUE(isPlainTensor(Python::eval("nn.Buffer(torch.ones(1))").get()));
  Ref sub = Python::eval("type('Sub', (torch.Tensor,), {})(torch.ones(2, 3))");
  EXPECT_TRUE(isTensor(sub.get()));
  EXPECT_FALSE(isPlainTensor(sub.get()));
  EXPECT_FALSE(isTensor(Python::eval("3").get()));
}

TEST(State, SnapshotNoticesWhatOperatorsDependOn) {
  struct {
    const char* enter;
    const char* leave;
  } cases[] = {
      {"c = torch.no_grad(); c.__enter__()", "c.__exit__(None, None, None)"},
      {"c = torch.inference_mode(); c.__enter__()", "c.__exit__(None, None, None)"},
      {"c = torch.autocast('cpu', dtype=torch.bfloat16); c.__enter__()",
       "c.__exit__(None, None, None)"},
      {"torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"},
      {"torch.use_deterministic_algorithms(True)", "torch.use_deterministic_algorithms(False)"},
      {"torch._C._set_mkldnn_enabled(False)", "torch._C._set_mkldnn_enabled(True)"},
      {"torch._C._set_sdp_use_math(False)", "torch._C._set_sdp_use_math(True)"},
      {"torch.set_autocast_dtype('cpu', torch.float16)",
       "torch.set_autocast_dtype('cpu', torch.bfloat16)"},
      {"torch.set_autocast_cache_enabled(False)", "torch.set_autocast_cache_enabled(True)"},
  };
  StateSnapshot before;
  for (auto& test : cases) {
    EXPECT_TRUE(before.matches()) << before.difference();
    Python::run(test.enter);
    EXPECT_FALSE(before.matches()) << test.enter;
    EXPECT_NE(before.difference(), "") << test.enter;
    Python::run(test.leave);
  }
  EXPECT_TRUE(before.matches());
  EXPECT_EQ(before.difference(), "");
  Python::run("torch.set_grad_enabled(False)");
  EXPECT_EQ(before.difference(), "grad mode: off, was on");
  Python::run("torch.set_grad_enabled(True)");
}

TEST(State, StepsAsideFor) {
  EXPECT_EQ(bypassReason(), nullptr);
  const char* const kModes[] = {
      "torch.utils._python_dispatch.TorchDispatchMode()",
      "torch.overrides.TorchFunctionMode()",
      "torch.device('cpu')",
      "torch._C.DisableTorchFunctionSubclass()",
      "torch.autograd.set_detect_anomaly(True)",
      "torch.autograd.graph.save_on_cpu()",
      "torch._subclasses.FakeTensorMode()",
  };
  Python::run(
      "import torch.utils._python_dispatch, torch._subclasses; warnings.simplefilter('ignore')");
  for (const char* mode : kModes) {
    Python::run(std::string("m = ") + mode + "; m.__enter__()");
    EXPECT_NE(bypassReason(), nullptr) << mode;
    Python::run("m.__exit__(None, None, None)");
    EXPECT_EQ(bypassReason(), nullptr) << mode;
  }
}

PyObject* reasonNow(PyObject*, PyObject*) {
  const char* reason = bypassReason();
  return PyUnicode_FromString(reason ? reason : "");
}
PyMethodDef reasonMethod = {"reason_now", reasonNow, METH_NOARGS, nullptr};

TEST(State, StepsAsideInsideTransformsAndBackward) {
  Python::set("reason_now", Ref::steal(PyCFunction_New(&reasonMethod, nullptr)).get());
  Python::run(
      "said = []\ndef g(x):\n  said.append(reason_now()); return (x * x).sum()\n"
      "torch.vmap(g)(torch.ones(2)); torch.func.grad(g)(torch.ones(2))\n"
      "y = torch.ones(2, requires_grad=True); z = y * 2; z.register_hook(lambda t: "
      "said.append(reason_now()))\n"
      "z.sum().backward(); g(torch.ones(1)); torch.jit.trace(g, torch.ones(1), check_trace=False)");
  EXPECT_EQ(Python::text("[bool(s) for s in said]"), "[True, True, True, False, True]")
      << Python::text("said");
}

TEST(State, RandomStateTakesDrawsBack) {
  RandomState state;
  Python::run("a = torch.rand(3), torch.randn(17)");
  state.restore();
  Python::run("b = torch.rand(3), torch.randn(17)");
  EXPECT_TRUE(Python::truth("torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])"));
}

TEST(State, RestorePutsBackWhatAnExitLeaves) {
  StateSnapshot before;
  {
    StateRestore restore;
    Python::run(
        "a = torch.autocast('cpu', dtype=torch.float16); a.__enter__(); "
        "torch.set_grad_enabled(False)");
    Python::run("torch.set_autocast_cache_enabled(False)");
  }
  EXPECT_TRUE(before.matches()) << before.difference();
  EXPECT_TRUE(Python::truth(
      "torch.autocast_increment_nesting() == 1 and torch.autocast_decrement_nesting() == 0"));
  {
    StateRestore restore;
    Python::run("torch.set_grad_enabled(False)");
    restore.dismiss();
  }
  EXPECT_FALSE(before.matches());
  Python::run("torch.set_grad_enabled(True)");
}

TEST(State, LeavingAutocastAtReplayDropsCachedCasts) {
  Python::run(
      "def f(x, w):\n  with torch.autocast('cpu', dtype=torch.bfloat16): y = x @ w\n"
      "  with torch.autocast('cpu', dtype=torch.bfloat16): return y, x @ w\n"
      "a = [torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)]");
  Recorded recorded;
  recorded.record("f", "a");
  ASSERT_EQ(recorded.refusal, "");
  ASSERT_TRUE(recorded.replay("a"));
  Python::run("with torch.no_grad(): a[1].fill_(3)");
  Python::set("got", recorded.replay("a").get());
  EXPECT_EQ(Python::text("difference(list(f(*a)), got)"), "");
}

}  // namespace
}  // namespace glowplug::aten::testing
