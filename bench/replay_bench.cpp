// What a replay costs besides its backend: inputs bound, one call per segment, the result built.
// Shaped like T5-small: 132 weights, a Seq2SeqLMOutput with the caches of 6 layers.

#include <chrono>
#include <cstdio>
#include <functional>

#include "../tests/unit/replay_support.h"

namespace {

using namespace glowplug::replay;
using namespace glowplug::replay::testing;

double microseconds(int rounds, const std::function<void()>& body) {
  double best = 1e18;
  for (int repeat = 0; repeat < 15; repeat++) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; i++) body();
    std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / rounds);
  }
  return best;
}

const char* const kModel = R"(
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
w = [torch.ones(1, 1, 1, 2) for _ in range(132)]
globals().update({f'w{i}': t for i, t in enumerate(w)})
)";

const char* const kForward = R"(
h = w0
for t in w[1:]: h = h + t
made = [h * i for i in range(26)]
)";

const char* const kResult = R"(
def cache(tensors):
    c = DynamicCache()
    for i in range(6): c.update(*tensors[2 * i:2 * i + 2], i)
    for i, layer in enumerate(c.layers): layer.keys, layer.values = tensors[2 * i:2 * i + 2]
    return c
caches = EncoderDecoderCache(cache(made[:12]), cache(made[12:24]))
for layer in caches.self_attention_cache.layers + caches.cross_attention_cache.layers:
    for name, value in list(vars(layer).items()):
        if isinstance(value, (torch.dtype, torch.device)): layer.__dict__[name] = None
result = Seq2SeqLMOutput(logits=made[24], past_key_values=caches,
                         encoder_last_hidden_state=made[25])
)";

}  // namespace

int main() {
  Py_InitializeEx(0);
  {
    Program program;
    Python::run(kModel);
    for (int i = 0; i < 132; i++) program.argument(("w" + std::to_string(i)).c_str());
    program.run(kForward);
    Python::run(kResult);
    program.returns("result");
    Plan& plan = program.plan();
    std::vector<PyObject*> fetched;
    Ref weights = Python::eval("w");
    for (Py_ssize_t i = 0; i < 132; i++) fetched.push_back(PyList_GET_ITEM(weights.get(), i));
    auto call = [&] {
      std::unique_ptr<Suspended> suspended;
      Outcome outcome = plan.run(guard::Call(), fetched.data(), suspended);
      if (!outcome.result) PyErr_Print();
      Py_XDECREF(outcome.result);
    };
    std::printf("%zu recipes, %zu values\n", program.trace.recipes.size(),
                program.trace.values.size());
    std::printf("tier 1:         %7.2f us a call (158 operators)\n", microseconds(300, call));
    Ref backend = Python::eval("(lambda out: lambda *tensors: out)(tuple(made))");
    plan.setBackend(0, backend.get());
    double whole = microseconds(3000, call);
    double alone = microseconds(3000, [&] {
      Py_DECREF(PyObject_Vectorcall(backend.get(), fetched.data(), fetched.size(), nullptr));
    });
    std::printf("with a backend: %7.2f us a call, the backend itself %.2f us\n", whole, alone);
  }
  Py_FinalizeEx();
}
