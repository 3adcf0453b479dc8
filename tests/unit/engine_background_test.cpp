// The background queue: order, cancellation, errors, priority; and kernels that LLVM refuses.
#include "engine/background.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/entry.h"
#include "engine/kernel_library.h"
#include "insight/counters.h"
#include "python_support.h"
#include "trace/callees.h"
#include "trace/well_known.h"

namespace glowplug::engine {
namespace {

using cpython::Ref;
using glowplug::testing::Python;

class TestJob final : public Job {
 public:
  explicit TestJob(std::function<void(TestJob&)> work, Urgency urgency = {})
      : work_(std::move(work)), urgency_(urgency) {}
  void run() override { work_(*this); }
  Urgency urgency() const override { return urgency_; }

 private:
  std::function<void(TestJob&)> work_;
  Urgency urgency_;
};

std::shared_ptr<TestJob> enqueued(std::function<void(TestJob&)> work, Urgency urgency = {}) {
  auto job = std::make_shared<TestJob>(std::move(work), urgency);
  enqueue(job);
  return job;
}

// Keeps the thread busy until it is let go of.
class Busy {
 public:
  Busy() : job_(enqueued([this](TestJob&) { begun_.set_value(), go_.get_future().wait(); })) {
    begun_.get_future().wait();
  }
  void letGo() { go_.set_value(); }

 private:
  std::promise<void> begun_, go_;
  std::shared_ptr<TestJob> job_;
};

TEST(Background, TheMostUrgentJobIsNext) {
  std::vector<int> order;
  Busy busy;
  std::vector<std::shared_ptr<TestJob>> jobs;
  const Urgency urgencies[] = {{0, 9}, {1, 1}, {1, 5}, {1, 1}, {2, 0}, {0, 9}};
  for (int i = 0; i < 6; ++i) {
    jobs.push_back(enqueued([&order, i](TestJob&) { order.push_back(i); }, urgencies[i]));
  }
  jobs[3].reset();  // its owner has let go of it
  busy.letGo();
  waitForJobs();
  EXPECT_EQ(order, (std::vector<int>{4, 2, 1, 0, 5}));
}

TEST(Background, CancellingStopsTheJobThatRunsAndForgetsTheOthers) {
  std::promise<void> begun;
  bool ran = false;
  const auto running = enqueued([&](TestJob& job) {
    begun.set_value();
    while (!job.stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const auto waiting = enqueued([&](TestJob&) { ran = true; });
  begun.get_future().wait();
  cancelJobs();
  waitForJobs();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(running->stopped());
  const auto later = enqueued([&](TestJob& job) { ran = !job.stopped(); });
  waitForJobs();
  EXPECT_TRUE(ran);
}

TEST(Background, WhatAJobThrowsIsCountedAndTheNextOneRuns) {
  insight::counters().reset();
  bool ran = false;
  const auto bad = enqueued([](TestJob&) { throw std::runtime_error("no good"); });
  const auto good = enqueued([&](TestJob&) { ran = true; });
  waitForJobs();
  EXPECT_TRUE(ran);
  EXPECT_EQ(insight::counters().snapshot().native.at("native_failed"), 1u);
}

TEST(NativeFailures, AKernelThatFailsLeavesItsOperatorsToAten) {
  trace::wellKnown();
  trace::prepareCallees();
  Python::run(
      "def f(x):\n"
      "  y = (x * 2 + 1).relu()\n"
      "  return torch.softmax(y @ y.t(), -1) * 3\n"
      "x = torch.randn(8, 8)\n"
      "torch.set_grad_enabled(False)");
  KernelLibrary::shared().makeObjectsBy([](const lower::Kernel& kernel) -> std::string {
    if (kernel.nests.size() == 1 && kernel.name.starts_with("fused"))
      throw std::runtime_error("LLVM has had enough");
    codegen::Compiler compiler(*codegen::Target::host());
    return compiler.object({&kernel});
  });
  common::Options options;
  options.native = true;
  Ref function = Python::eval("f"), x = Python::eval("x");
  Entry entry(function.get(), "f", Backend(), options, false);
  insight::counters().reset();
  PyObject* argument = x.get();
  for (int i = 0; i < 3; ++i) {
    Ref result = Ref::steal(entry.call(&argument, 1, nullptr));
    ASSERT_TRUE(result);
    Python::set("result", result.get());
    EXPECT_EQ(Python::eval("torch.allclose(result, f(x), rtol=1e-5)").get(), Py_True);
    Py_BEGIN_ALLOW_THREADS;
    waitForJobs();
    Py_END_ALLOW_THREADS;
  }
  const auto report = entry.groups()[0]->traces[0]->native->report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->failure, "LLVM has had enough");
  int failed = 0, made = 0;
  for (const OperatorFate& fate : report->operators) {
    failed += fate.reason == common::Reason::native_failed;
    made += fate.kind == OperatorFate::Kind::Kernel;
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(made, 0);
  EXPECT_EQ(insight::counters().snapshot().native.at("native_failed"), 1u + failed);
  KernelLibrary::shared().makeObjectsBy(nullptr);
}

}  // namespace
}  // namespace glowplug::engine
