#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aten/packed_weight.h"
#include "common/options.h"
#include "common/shared_slot.h"
#include "engine/background.h"
#include "opt/graph.h"
#include "replay/plan.h"
#include "trace/recording.h"

// Tier 2 of one plan: graphs of its segments, from which a background thread makes machine code.
namespace glowplug::engine {

// What became of an operator.
struct OperatorFate {
  size_t event = 0;
  enum class Kind : uint8_t { Aten, Kernel, Packed, Attention, Removed } kind = Kind::Aten;
  size_t kernel = 0;                     // Kernel: number in the trace
  std::optional<common::Reason> reason;  // Aten
};

struct NativeReport {
  std::vector<OperatorFate> operators;
  std::vector<std::string> kernels;  // their loop IR
  std::string failure;               // why there is no machine code after all
  uint64_t mismatches = 0;
};

// The packed weights of an entry, and those of them that one plan needs. Any thread.
struct HeldWeights {
  const std::shared_ptr<aten::PackedWeights> weights;
  std::mutex lock;
  std::vector<std::shared_ptr<aten::PackedWeight>> held;

  explicit HeldWeights(std::shared_ptr<aten::PackedWeights> of) : weights(std::move(of)) {}
  void hold(std::shared_ptr<aten::PackedWeight> weight);
};

class NativeJob final : public Job, public std::enable_shared_from_this<NativeJob> {
 public:
  // The tensor that a value is from the start, borrowed; null if it is not known.
  using TensorOf = std::function<PyObject*(common::ValueId)>;

  // With the GIL. `before`: an earlier job of the plan, whose packed weights are taken over.
  NativeJob(const trace::Recording& recording, const replay::Plan& plan, std::string name,
            const common::Options& options, const TensorOf& tensorOf, const NativeJob* before,
            const std::shared_ptr<aten::PackedWeights>& weights);
  ~NativeJob() override;

  // Makes the passes over the graphs, with the GIL or without: what needs no kernels is there for
  // the next call. Otherwise run() does.
  void prepare();
  void run() override;
  // What has no code yet goes before what has some; then that which was called last.
  Urgency urgency() const override;
  // A call has met the plan without its code. Costs one load when that is done.
  void wanted() {
    if (!done_.load(std::memory_order_relaxed)) noteWanted();
  }
  // Nothing while it has not been run.
  std::shared_ptr<const NativeReport> report() const;
  // Calls may have met kernels, packed weights or attention of ours.
  bool roundsOtherwise() const { return rounds_.load(); }

 private:
  void findWeights(opt::Graph& graph, const TensorOf& tensorOf);
  struct Draft;
  std::shared_ptr<std::atomic<uint64_t>> newMismatches();  // one more that report() adds up
  // Stopped, or nobody but the thread that runs it holds it any more.
  bool isAbandoned() const { return stopped() || weak_from_this().use_count() <= 1; }
  void noteWanted();
  void compile();
  void fail(const std::exception& error);
  void addKernels(opt::Graph& graph, NativeReport& report, Draft& draft);
  void addLinears(opt::Graph& graph, Draft& draft);
  void addConvolutions(opt::Graph& graph, Draft& draft);
  void addAttentions(opt::Graph& graph, Draft& draft);
  void addRelaid(const opt::Graph& graph, Draft& draft);
  aten::KnownTensors known(const std::vector<common::ValueId>& values) const;
  void makeKernels(NativeReport& report, Draft& draft);
  void publish(Draft& draft, bool urgent);

  std::string name_;
  std::vector<opt::Graph> graphs_;
  std::unique_ptr<Draft> draft_;         // from prepare() to the end of run()
  std::shared_ptr<NativeReport> being_;  // likewise
  std::vector<OperatorFate> left_;       // operators that are in no graph
  std::vector<std::string_view> without_;
  std::map<common::ValueId, std::shared_ptr<const aten::KnownTensor>> tensors_;  // maybe weights
  std::map<size_t, std::shared_ptr<aten::PackedWeight>> weights_;  // by event of the linear layer
  std::shared_ptr<HeldWeights> packed_;                            // of all jobs of the plan
  std::shared_ptr<replay::NativeSlot> slot_;
  std::vector<std::shared_ptr<std::atomic<uint64_t>>> mismatches_;
  common::SharedSlot<const NativeReport> report_;
  const bool again_;
  const bool pooled_, symbols_;
  std::atomic<uint64_t> wanted_{0};
  std::atomic<bool> done_{false}, rounds_{false};
};

// Has the thread set up LLVM, once a process, while the program goes on to its first call. With the
// GIL.
void warmUpNative();

}  // namespace glowplug::engine
