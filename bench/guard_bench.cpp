// How long a check takes: a tree of modules shaped like a real model, guarded as a recording guards
// it. usage: guard_bench [modules] [parameters a module]

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "../tests/unit/guard_support.h"

namespace {

using namespace glowplug::guard;
using namespace glowplug::guard::testing;

// The shortest of many short runs: others may be using the machine.
double nanoseconds(const std::function<void()>& body) {
  constexpr int kRounds = 20, kRepeats = 500;
  double best = 1e18;
  for (int repeat = 0; repeat < kRepeats; repeat++) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; i++) body();
    std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / kRounds);
  }
  return best;
}

// What calling one module reads.
void guardModule(Paths& p, Namespace& py, SourceId module, const std::string& text,
                 int parameters) {
  p.type(module, py.eval(text));
  for (const char* empty :
       {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"}) {
    p.type(p.attr(module, empty), py.eval(text + "." + empty));
    p.guard(PredicateKind::Length, p.attr(module, empty), int64_t{0});
  }
  SourceId table = p.attr(module, "_parameters");
  p.type(table, py.eval("{}"));
  for (int i = 0; i < parameters; i++) {
    std::string name = "p" + std::to_string(i);
    p.tensor(p.item(table, name.c_str()), py.eval(text + "." + name));
  }
  for (const char* name : {"stride", "padding"})
    p.equal(p.attr(module, name), py.eval(text + "." + name));
  p.guard(PredicateKind::Missing, p.dict(module), py.eval("'forward'"));
  p.equal(p.attr(module, "training"), py.eval("True"));
}

}  // namespace

int main(int argc, char** argv) {
  const int modules = argc > 1 ? std::atoi(argv[1]) : 150;
  const int parameters = argc > 2 ? std::atoi(argv[2]) : 2;
  Py_InitializeEx(0);
  {
    Namespace py;
    py.run(
        "import torch\nclass Block(torch.nn.Module):\n  def __init__(self, n):\n    "
        "super().__init__()\n"
        "    for i in range(n): setattr(self, f'p{i}', torch.nn.Parameter(torch.ones(4, 4)))\n"
        "    self.stride = (1, 1); self.padding = 1\n"
        "m = torch.nn.ModuleList()");
    py.run("for i in range(" + std::to_string(modules) + "): m.append(Block(" +
           std::to_string(parameters) + "))");
    Ref m = py.eval("m"), block = py.eval("Block"), x = py.eval("torch.ones(2, 2)");
    Paths p;
    p.tensor(p.arg(0), x);
    p.type(p.callee(), m);
    SourceId table = p.attr(p.callee(), "_modules");
    p.type(table, py.eval("{}"));
    for (const char* name : {"forward", "__call__", "missing"}) p.lookUp(block, name);
    std::vector<SourceId> wanted{p.arg(0)};
    for (int i = 0; i < modules; i++) {
      SourceId module = p.item(table, std::to_string(i).c_str());
      guardModule(p, py, module, "m[" + std::to_string(i) + "]", parameters);
      for (int k = 0; k < parameters; k++)
        wanted.push_back(p.item(p.attr(module, "_parameters"), ("p" + std::to_string(k)).c_str()));
    }
    Arguments call({x}, {}, m);
    GuardTree tree;
    std::vector<Ref> fetched;
    auto begin = std::chrono::steady_clock::now();
    size_t trace = tree.add(p.trace, p.objects, p.ops, wanted, call.call());
    auto added = std::chrono::steady_clock::now();
    bool first = tree.holds(trace, call.call(), fetched);
    auto checked = std::chrono::steady_clock::now();
    auto microseconds = [](auto d) { return std::chrono::duration<double, std::micro>(d).count(); };
    GuardTree::Size size = tree.size(trace);
    std::printf("guards %zu, nodes %zu, fast checks %zu, holds %d\n", size.guards, size.nodes,
                size.fastChecks, first);
    std::printf("add                     %8.1f us\n", microseconds(added - begin));
    std::printf("complete check, compile %8.1f us\n", microseconds(checked - added));
    auto match = [&] { tree.match(call.call(), fetched); };
    std::printf("unchanged               %8.2f us\n", nanoseconds(match) / 1000);
    Ref dict = py.eval("m[0].__dict__"), key = py.eval("'unused'");
    Ref values[] = {py.eval("1"), py.eval("2")};
    int turn = 0;
    auto written = [&] {
      PyDict_SetItem(dict.get(), key.get(), values[turn ^= 1].get());
      match();
    };
    std::printf("one attribute written   %8.2f us\n", nanoseconds(written) / 1000);
    Ref attribute = py.eval("'unused'");
    auto classWritten = [&] {
      PyObject_SetAttr(block.get(), attribute.get(), values[turn ^= 1].get());
      match();
    };
    std::printf("class attribute written %8.2f us\n", nanoseconds(classWritten) / 1000);
    Paths q;
    q.tensor(q.arg(0), py.eval("torch.ones(3)"));
    tree.add(q.trace, q.objects, q.ops, {}, call.call());
    std::printf("second trace misses     %8.2f us\n", nanoseconds(match) / 1000);
    py.run("m.eval()");
    std::printf("all traces miss         %8.2f us\n", nanoseconds(match) / 1000);
  }
  Py_FinalizeEx();
}
