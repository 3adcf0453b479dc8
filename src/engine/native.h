#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/options.h"
#include "engine/background.h"
#include "opt/graph.h"
#include "replay/plan.h"
#include "trace/recording.h"

// Tier 2 of one plan: graphs of its segments, from which a background thread makes machine code.
namespace glowplug::engine {

// What became of an operator.
struct OperatorFate {
  size_t event = 0;
  enum class Kind : uint8_t { Aten, Kernel, Removed } kind = Kind::Aten;
  size_t kernel = 0;                     // Kernel: number in the trace
  std::optional<common::Reason> reason;  // Aten
};

struct NativeReport {
  std::vector<OperatorFate> operators;
  std::vector<std::string> kernels;  // their loop IR
  std::string failure;               // why there is no machine code after all
  uint64_t mismatches = 0;
};

class NativeJob final : public Job {
 public:
  NativeJob(const trace::Recording& recording, const replay::Plan& plan, std::string name,
            const common::Options& options);

  void run() override;
  // Nothing while it has not been run.
  std::shared_ptr<const NativeReport> report() const;

 private:
  void compile(NativeReport& report);

  std::string name_;
  std::vector<opt::Graph> graphs_;
  std::vector<OperatorFate> left_;  // operators that are in no graph
  std::vector<std::string_view> without_;
  std::shared_ptr<replay::NativeSlot> slot_;
  std::vector<std::shared_ptr<std::atomic<uint64_t>>> mismatches_;
  std::atomic<std::shared_ptr<const NativeReport>> report_;
};

}  // namespace glowplug::engine
