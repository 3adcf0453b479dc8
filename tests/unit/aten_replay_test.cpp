// Small programs, recorded and replayed: results equal to the bit, with eager's strides, flags and
// history.
#include "aten_support.h"

namespace glowplug::aten::testing {
namespace {

struct Program {
  const char* name;
  const char* body;  // of f(x), x being f32[3,4]
};

const Program kPrograms[] = {
    {"arithmetic", "return x + 1, 1 - x, x ** 2, 2 ** x, x // 2, x % 2, -x, abs(x), x / 3, x * x"},
    {"in_place", "y = x.clone(); y.add_(1); y[0] = 7; y[:, 1] *= 2; return y"},
    {"writes_input", "x.add_(1); x.view(-1)[0:2].zero_(); return x, x * 2"},
    {"views",
     "y = x.t(); return y, y.contiguous(), x.contiguous(), x.reshape(-1), x.view(2, 6), "
     "x.expand(2, 3, 4), x.permute(1, 0), x[..., ::2], x.narrow(0, 1, 1), x.real, x.diagonal()"},
    {"lists",
     "a, b = x.split(2, 1); c, d, e = x.unbind(0); return a, b, c + d + e, "
     "torch.cat([a, b, a], 1), torch.stack((a, b)), torch.meshgrid(x[0], x[1], indexing='ij')"},
    {"optional_lists",
     "return x[None, :, torch.tensor([0, 1])], x[torch.tensor([0, 2]), :, None], x[[0]]"},
    {"set_item",
     "y = x.clone(); y[0, 1] = 2; y[1:, 2:] = torch.ones(2, 2); y[[0, 1], [1, 2]] = 5\n"
     "  y[y > 1] = y[y > 1] * 2; y[..., -1] = x[..., 0]; y[0] = x[1].double(); return y"},
    {"out",
     "x = x.detach(); o = torch.empty(3, 4); torch.add(x, x, out=o); p = torch.empty(0); "
     "torch.mul(x, 2, out=p)\n"
     "  return o, p"},
    {"foreach",
     "l = [x.clone(), x.clone()]; torch._foreach_add_(l, 1.0); return l, torch._foreach_mul(l, 2)"},
    {"factories",
     "return torch.zeros(3), torch.ones(2, dtype=torch.int64), torch.arange(5), torch.eye(3), "
     "torch.full((2, 2), 3.5), torch.linspace(0, 1, 5), torch.zeros_like(x), x.new_zeros(3), "
     "x.new_tensor([1, 2]), torch.tensor(3), torch.tensor([[1., 2]]), torch.Tensor([1, 2]), "
     "torch.as_tensor([1, 2]), torch.hann_window(4), torch.tril(torch.ones(3, 3)), "
     "torch.tensor([1.], requires_grad=True), torch.ones(2, requires_grad=True) * 3"},
    {"fresh_constants",
     "c = torch.tensor([1., 2., 3., 4.]); y = c + x; c.mul_(5); return y, c, c + x"},
    {"random",
     "torch.rand(3); return F.dropout(x, 0.5, True), F.dropout(x, 0.5, False), "
     "torch.randn_like(x), "
     "torch.randperm(5), torch.bernoulli(x.sigmoid()), x.clone().normal_(), "
     "torch.multinomial(x.softmax(-1), 2), torch.randint(0, 9, (3,))"},
    {"dtypes",
     "return x.half(), x.double(), x.to(x.device), x.bfloat16().float(), x.long(), x.bool()"},
    {"complex",
     "c = torch.complex(x, x); return c.abs(), c.conj(), c.conj() * 2, torch.fft.fft(x), c.imag, "
     "1j * x"},
    {"neural",
     "return F.gelu(x), F.layer_norm(x, (4,)), F.softmax(x, -1), F.linear(x, torch.ones(2, 4)), "
     "F.pad(x, (1, 1)), F.one_hot(torch.tensor([0, 1]), 3), F.embedding(torch.tensor([0, 1]), x), "
     "F.cross_entropy(x, torch.tensor([0, 1, 2])), F.conv1d(x[None], torch.ones(2, 3, 2)), "
     "F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True), x.topk(2), x.sort(), "
     "F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)"},
    {"grad_modes",
     "w = torch.ones(4, requires_grad=True)\n  with torch.no_grad(): a = x * w\n"
     "  with torch.enable_grad(): b = x * w\n  return a, b, x * w"},
    {"inference_mode",
     "with torch.inference_mode():\n    a = x * 2; b = torch.tensor([1., 2])\n"
     "    with torch.inference_mode(False): c = x + 1\n  return a, b, c, x + 1"},
    {"autocast",
     "w = torch.ones(4, 4, requires_grad=True)\n"
     "  with torch.autocast('cpu', dtype=torch.bfloat16):\n    a = x @ w\n"
     "    with torch.autocast('cpu', enabled=False): b = x @ w\n    c = F.linear(x, w)\n"
     "  with torch.autocast('cpu', dtype=torch.float16, cache_enabled=False): d = x @ w\n"
     "  return a, b, c, d, x @ w"},
    {"requires_grad", "y = x.clone(); y.requires_grad_(); z = y * 2; return z, y"},
    {"parameter", "return x * nn.Parameter(torch.ones(4))"},
    {"vmap", "return torch.vmap(lambda r: r * 2 + r.sum())(x)"},
    {"sparse", "s = x.to_sparse(); return s.to_dense(), torch.sparse.mm(s, x.t())"},
    {"resize",
     "y = x.detach().clone(); y.resize_(2, 2); z = torch.empty(0); z.set_(y); return y, z"},
    {"undefined_results",
     "return [t for t in torch.ops.aten.native_layer_norm_backward(x, x, [4], "
     "torch.zeros(3, 1), torch.ones(3, 1), None, None, [True, False, False]) "
     "if t is not None]"},
    {"recurrent", "return nn.LSTM(4, 5, batch_first=True)(x[None])"},
    {"data_sized",
     "n = x.nonzero(); s = x[x > 0]; return n.sum(), s.sum(), s * 2, torch.unique(x), "
     "torch.where(x > 0)"},
    {"numbers", "return x.sum().item() * x, int(x[0, 0] * 10) + x, x + x.max().item()"},
};

class Replays : public ::testing::TestWithParam<Program> {};

TEST_P(Replays, AsEager) {
  Python::run(std::string("def f(x):\n  ") + GetParam().body);
  for (const char* grad : {"False", "True"}) {
    std::string needsGrad = grad;
    bool writes = std::string(GetParam().body).find("x.add_") != std::string::npos;
    if (writes && needsGrad == "True") continue;  // eager refuses to write a leaf
    Python::run("torch.manual_seed(0); x = torch.randn(3, 4).requires_grad_(" + needsGrad + ")");
    for (bool keepAll : {false, true}) {
      Recorded recorded;
      recorded.keepAll = keepAll;
      Python::run("args = copies([x]); torch.manual_seed(1)");
      recorded.record("f", "args");
      ASSERT_TRUE(recorded.result) << Python::takeError();
      ASSERT_EQ(recorded.refusal, "") << recorded.text();
      Python::run(
          "a = copies([x]); torch.manual_seed(1); want = flat(f(*a)); rng = torch.get_rng_state()");
      for (int again = 0; again < 2; ++again) {
        Python::run("b = copies([x]); torch.manual_seed(1)");
        Ref got = recorded.replay("b");
        ASSERT_TRUE(got) << recorded.status << " " << Python::takeError() << "\n"
                         << recorded.text();
        Python::set("got", got.get());
        EXPECT_EQ(Python::text("difference(want, got)"), "") << recorded.text();
        EXPECT_EQ(Python::text("difference(a, b)"), "") << "inputs";
        EXPECT_TRUE(Python::truth("torch.equal(rng, torch.get_rng_state())"));
        EXPECT_TRUE(
            Python::truth("torch.is_grad_enabled() and not torch.is_inference_mode_enabled()"));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Replays, ::testing::ValuesIn(kPrograms),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Replay, GivesOtherResultsForOtherInputs) {
  Python::run("def f(x, y):\n  return x @ y + x.sum()\na = [torch.ones(2, 2), torch.ones(2, 2)]");
  Recorded recorded;
  recorded.record("f", "a");
  Python::run("b = [torch.randn(2, 2), torch.randn(2, 2)]");
  Python::set("got", recorded.replay("b").get());
  EXPECT_EQ(Python::text("difference([f(*b)], got)"), "");
}

TEST(Replay, BackwardThroughReplayedOperators) {
  Python::run(
      "def f(x, w):\n  return F.linear(x, w).relu().sum()\n"
      "a = [torch.randn(2, 4), torch.randn(3, 4, requires_grad=True)]");
  Recorded recorded;
  recorded.record("f", "a");
  Python::run("b = copies(a)");
  Python::set("got", recorded.replay("b").get());
  Python::run("f(*a).backward(); got[0].backward()");
  EXPECT_TRUE(Python::truth("torch.equal(a[1].grad, b[1].grad)"));
}

TEST(Replay, SameTensorIsSameObject) {
  Python::run("def f(x):\n  y = x + 1\n  return x.contiguous(), y, y.add_(1)\na = [torch.ones(2)]");
  Recorded recorded;
  recorded.record("f", "a");
  Python::run("b = [torch.zeros(2)]");
  Python::set("got", recorded.replay("b").get());
  EXPECT_TRUE(Python::truth("got[0] is b[0] and got[1] is got[2] and got[1] is not b[0]"));
}

TEST(Replay, ErrorsAreEagers) {
  Python::run(
      "def f(x, i):\n  return F.embedding(i, x * 2)\n"
      "a = [torch.ones(2, 2), torch.tensor([1])]; b = [torch.ones(2, 2), torch.tensor([5])]");
  Recorded recorded;
  recorded.record("f", "a");
  EXPECT_FALSE(recorded.replay("b"));
  EXPECT_EQ(recorded.status, OpProgram::Raised);
  EXPECT_EQ(recorded.trace.operatorNames.at(recorded.trace.events.at(recorded.failed).op.index()),
            "aten::embedding");
  std::string error = Python::takeError();
  Python::run("try: f(*b)\nexcept Exception as e: eager = f'{type(e).__name__}: {e}'");
  EXPECT_EQ(error, Python::text("eager"));
}

TEST(Replay, ErrorsLeaveTheThreadsStateAsItWas) {
  Python::run(
      "def f(x, i):\n  with torch.no_grad(), torch.autocast('cpu'):\n    return x[i] @ x\n"
      "a = [torch.ones(2, 2), torch.tensor([1])]; b = [torch.ones(2, 2), torch.tensor([5])]");
  Recorded recorded;
  recorded.record("f", "a");
  StateSnapshot before;
  EXPECT_FALSE(recorded.replay("b"));
  EXPECT_EQ(Python::takeError(),
            "IndexError: index 5 is out of bounds for dimension 0 with size 2");
  EXPECT_TRUE(before.matches()) << before.difference();
}

const char* const kWarning =
    "def f(x):\n  z = torch.empty(3)\n  torch.add(x[:2], x[:2], out=z)\n  return z * 2\n"
    "a = [torch.ones(4)]\n";

TEST(Replay, WarningsReachPython) {
  Python::run(kWarning);
  Recorded recorded;
  Python::run(
      "with warnings.catch_warnings(record=True) as seen:\n  warnings.simplefilter('always')\n  "
      "f(*a)\n"
      "eager = [(w.category, str(w.message)) for w in seen]\nassert eager");
  {
    Python::run(
        "w = warnings.catch_warnings(record=True); w.__enter__(); warnings.simplefilter('always')");
    recorded.record("f", "a");
    Python::run("w.__exit__(None, None, None)");
  }
  Python::run(
      "w = warnings.catch_warnings(record=True); seen = w.__enter__(); "
      "warnings.simplefilter('always')");
  EXPECT_TRUE(recorded.replay("a"));
  Python::run("w.__exit__(None, None, None)");
  EXPECT_TRUE(Python::truth("eager == [(w.category, str(w.message)) for w in seen]"));
}

TEST(Replay, WarningsWaitWhileTheProgramMayStartAgain) {
  Python::run(kWarning);
  Recorded recorded;
  Python::run(
      "w = warnings.catch_warnings(record=True); w.__enter__(); warnings.simplefilter('always')");
  recorded.record("f", "a");
  Python::run("warnings.simplefilter('error')");
  recorded.warnAtOnce = false;
  EXPECT_TRUE(recorded.replay("a"));
  EXPECT_FALSE(recorded.warned);
  std::string error = Python::takeError();
  Python::run("w.__exit__(None, None, None)");
  EXPECT_EQ(error.rfind("UserWarning: ", 0), 0u) << error;
}

TEST(Replay, WarningTurnedIntoErrorStopsAtItsOperator) {
  Python::run(kWarning);
  Recorded recorded;
  Python::run(
      "w = warnings.catch_warnings(record=True); w.__enter__(); warnings.simplefilter('always')");
  recorded.record("f", "a");
  Python::run("warnings.simplefilter('error')");
  EXPECT_FALSE(recorded.replay("a"));
  std::string error = Python::takeError();
  Python::run("w.__exit__(None, None, None)");
  EXPECT_EQ(recorded.status, OpProgram::Raised);
  EXPECT_EQ(recorded.trace.operatorNames.at(recorded.trace.events.at(recorded.failed).op.index()),
            "aten::add.out");
  EXPECT_EQ(error.rfind("UserWarning: An output with one or more elements was resized", 0), 0u)
      << error;
}

TEST(Replay, ListOfAnotherLengthDiverges) {
  Python::run(
      "def f(x):\n  return list(x[x > 0].unbind(0))\n"
      "a = [torch.tensor([1., -1, 2])]; b = [torch.tensor([1., 1, 2])]; c = [torch.tensor([-1., 3, "
      "2])]");
  Recorded recorded;
  recorded.record("f", "a");
  EXPECT_FALSE(recorded.replay("b"));
  EXPECT_EQ(recorded.status, OpProgram::Diverged);
  EXPECT_EQ(PyErr_Occurred(), nullptr);
  Python::set("got", recorded.replay("c").get());
  EXPECT_EQ(Python::text("difference(f(*c), got)"), "");
}

TEST(Replay, AnotherIdentityDiverges) {
  // With one row, the transposed selection is contiguous and contiguous() returns it; with two it
  // copies.
  Python::run(
      "def f(x):\n  y = x[x[:, 0] > 0].t()\n  z = torch.ops.aten.contiguous(y)\n  z.add_(1)\n  "
      "return y, z\n"
      "a = [torch.tensor([[1., 2], [-1, 2]])]; b = [torch.tensor([[1., 2], [1, 2]])]");
  Recorded recorded;
  recorded.record("f", "a");
  EXPECT_FALSE(recorded.replay("b"));
  EXPECT_EQ(recorded.status, OpProgram::Diverged);
}

TEST(Replay, DropsValuesAtTheirLastUse) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "the address sanitizer keeps freed memory back, so the process's peak says nothing";
#endif
  Python::run(
      "def f(x):\n  for _ in range(20): x = x + 1\n  return x\n"
      "a = [torch.zeros(1 << 20)]\n"
      "import resource\n");
  Recorded recorded;
  recorded.record("f", "a");
  Python::run("before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss");
  EXPECT_TRUE(recorded.replay("a"));
  // 20 intermediates of 4 MB; at most two or three live at once.
  EXPECT_TRUE(
      Python::truth("resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000"));
}

TEST(Replay, ScalarsCompareByTypeAndValue) {
  Python::run(
      "def f(x):\n  return x.sum().item(), x.numel() > 0, bool(x.any()), x.long().sum().item()\n"
      "a = [torch.tensor([0.5, 1.5])]; b = [torch.tensor([float('nan'), 1.])]");
  Recorded recorded;
  recorded.record("f", "a");
  ASSERT_EQ(recorded.scalars.size(), 3u);
  recorded.results.clear();
  for (auto& [id, object] : recorded.scalars) recorded.results.push_back(id);
  Python::set("got", recorded.replay("a").get());
  EXPECT_EQ(Python::text("got"), "[2.0, True, 1]");
  Values values(1);
  OpProgram program(recorded.trace, recorded.table, {});
  Values all(recorded.trace.values.size());
  all.setTensor(recorded.inputs[0], Python::eval("b[0]").get());
  EXPECT_EQ(program.run(all, 0, recorded.trace.events.size(), nullptr), OpProgram::Done);
  ValueId sum = recorded.scalars[0].first, any = recorded.scalars[1].first;
  EXPECT_TRUE(all.scalarIs(sum, Python::eval("float('nan')").get()));
  EXPECT_FALSE(all.scalarIs(sum, Python::eval("2.0").get()));
  EXPECT_TRUE(all.scalarIs(any, Py_True));
  EXPECT_FALSE(all.scalarIs(any, Python::eval("1").get()));
}

}  // namespace
}  // namespace glowplug::aten::testing
