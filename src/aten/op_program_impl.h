#pragma once

// Private to aten/: a trace's operators in the form in which they run.
#include <span>
#include <vector>

#include "aten/op_program.h"
#include "aten/op_table_impl.h"
#include "aten/tensor_trail_impl.h"
#include "aten/warning_buffer.h"

namespace glowplug::aten {

struct Packed;

struct Values::Impl {
  std::vector<c10::IValue> slots;  // None: absent, or an undefined tensor
  TensorTrail trail;
  WarningBuffer warnings;
};

struct OpProgram::Impl {
  // How one operand is put on the stack.
  struct Argument {
    enum class Kind : uint8_t {
      Constant,       // copy of constants[index]
      FreshConstant,  // clone of the tensor constants[index]
      Use,            // copy of the value slot
      LastUse,        // the value slot is moved
      Undefined,      // an undefined tensor
      Tensors,        // a list of tensors: items [index, index + count)
      OptionalTensors,
    };
    Kind kind;
    uint32_t index = 0;
    uint32_t count = 0;
  };

  struct Step {
    enum class Kind : uint8_t {
      Skip,
      Operator,
      Lift,
      State,
      Kernel,
      Linear,
      Convolution,
      Attention,
      Dropping
    };
    Kind kind = Kind::Skip;
    bool changesFields = false;  // see OpTraits::changesFields
    bool writesInput = false;
    bool checksIdentity = false;  // whether a result is a known tensor depends on data
    std::optional<c10::OperatorHandle> op;
    uint32_t arguments = 0, argumentsEnd = 0;  // into arguments
    uint32_t results = 0, resultsEnd = 0;      // into results
    uint32_t lengths = 0, lengthsEnd = 0;      // into lengths
    uint32_t drops = 0, dropsEnd = 0;          // into drops
    ir::StateChange state;
    uint32_t kernel = 0;                   // into kernels, linears...
    const KernelTensor* relaid = nullptr;  // the only result is brought into this layout
  };

  // A call of machine code, and the operators that it stands for.
  struct Kernel {
    const KernelCall* call;
    std::vector<c10::ScalarType> reads, makes;
    std::vector<Step> plain;
  };

  struct Linear {
    const LinearCall* call;
    std::vector<Step> plain;
  };
  struct Attention {
    const AttentionCall* call;
    std::vector<Step> plain;
  };
  enum class Clamp : uint8_t { None, Relu, Between };
  struct Convolution {
    const ConvolutionCall* call;
    Clamp clamp;
    std::vector<Step> plain;
    struct {
      bool x, other, result;
    } laid;  // which have their channels last
  };
  using LinearSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                     const std::optional<at::Tensor>&, std::string_view,
                                     c10::List<std::optional<at::Scalar>>,
                                     std::optional<std::string_view>);

  using ConvolutionSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                          const std::optional<at::Tensor>&, at::IntArrayRef,
                                          at::IntArrayRef, at::IntArrayRef, int64_t,
                                          std::string_view, c10::List<std::optional<at::Scalar>>,
                                          std::optional<std::string_view>);
  using AddingSignature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const std::optional<at::Tensor>&, at::IntArrayRef,
                                     at::IntArrayRef, at::IntArrayRef, int64_t, std::string_view,
                                     std::optional<at::Scalar>, std::optional<std::string_view>,
                                     c10::List<std::optional<at::Scalar>>,
                                     std::optional<std::string_view>);

  Impl(const ir::Trace& trace, OpTable::Impl& table, std::shared_ptr<const NativeCode> native)
      : trace(trace), table(table), native(std::move(native)) {}

  void compile(const std::vector<std::vector<common::ValueId>>& lastUses);
  void compileOperator(const ir::Event& event, const std::vector<common::ValueId>& lastUses,
                       Step& step);
  Argument argument(const ir::Operand& operand, const c10::Argument& schema,
                    const std::vector<common::ValueId>& lastUses, bool lift);

  // kernel_step.cpp
  std::vector<std::vector<common::ValueId>> deferred(
      std::vector<std::vector<common::ValueId>> lastUses) const;
  void compileKernels(const std::vector<std::vector<common::ValueId>>& lastUses);
  // Puts call `number` of the kind in the place of the last operator. Returns the operators, for
  // when it does not fit; values that only they have are dropped after the call.
  std::vector<Step> replaceOperators(const std::vector<size_t>& events,
                                     const std::vector<common::ValueId>& results,
                                     const std::vector<std::vector<common::ValueId>>& lastUses,
                                     Step::Kind kind, size_t number);
  void addDrops(const std::vector<common::ValueId>& values, Step& step);
  static bool isAsRecorded(const c10::IValue& slot, const KernelTensor& recorded,
                           c10::ScalarType dtype);
  bool runPlain(std::span<const Step> plain, torch::jit::Stack& stack,
                std::vector<c10::IValue>& slots) const;
  bool runKernel(const Kernel& kernel, torch::jit::Stack& stack,
                 std::vector<c10::IValue>& slots) const;

  // linear_step.cpp
  void compileLinears(const std::vector<std::vector<common::ValueId>>& lastUses);
  static bool usesOneDnn(at::Float32Op op);  // in float32, not rounded to less
  template <class Run>
  bool unpacked(const PackedWeight& weight, std::atomic<uint64_t>& mismatches, double share,
                const Run& run) const;
  bool runUnpacked(std::span<const Step> plain, const PackedWeight& weight,
                   std::atomic<uint64_t>& mismatches, torch::jit::Stack& stack,
                   std::vector<c10::IValue>& slots) const;
  bool runLinear(const Linear& linear, torch::jit::Stack& stack,
                 std::vector<c10::IValue>& slots) const;

  // attention_step.cpp
  void compileAttentions(const std::vector<std::vector<common::ValueId>>& lastUses);
  bool runAttention(const Attention& attention, torch::jit::Stack& stack,
                    std::vector<c10::IValue>& slots) const;

  // convolution_step.cpp
  void compileConvolutions(const std::vector<std::vector<common::ValueId>>& lastUses);
  void compileRelaid();
  bool runConvolution(const Convolution& convolution, torch::jit::Stack& stack,
                      std::vector<c10::IValue>& slots) const;
  static at::Tensor convolve(const Convolution& convolution, const Packed& packed,
                             const std::vector<c10::IValue>& slots);
  at::Tensor convolveByOperator(const Convolution& convolution, const Packed& packed,
                                const std::vector<c10::IValue>& slots) const;
  static void clamp(at::Tensor& made, const Convolution& convolution);
  static void relay(c10::IValue& slot, const KernelTensor& tensor);

  void push(torch::jit::Stack& stack, std::vector<c10::IValue>& slots,
            const Argument& argument) const;
  c10::IValue pushed(std::vector<c10::IValue>& slots, const Argument& argument) const;
  bool store(torch::jit::Stack& stack, std::vector<c10::IValue>& slots, const Step& step) const;
  bool runStep(const Step& step, torch::jit::Stack& stack, std::vector<c10::IValue>& slots) const;

  // Before a step that changes fields of tensors: starts the trail of those.
  void trackFields(Values::Impl& values, size_t event) const;

  const ir::Trace& trace;
  OpTable::Impl& table;
  const std::shared_ptr<const NativeCode> native;  // may be null
  std::vector<Step> steps;                         // one an event
  std::vector<Kernel> kernels;
  std::vector<Linear> linears;
  std::optional<c10::TypedOperatorHandle<LinearSignature>> linearOp;
  std::vector<Attention> attentions;
  std::vector<Convolution> convolutions;
  std::optional<c10::TypedOperatorHandle<ConvolutionSignature>> convolutionOp;
  std::optional<c10::TypedOperatorHandle<AddingSignature>> addingOp;
  std::vector<Argument> arguments, items;
  std::vector<c10::IValue> constants;  // copies: the table may grow while this runs
  std::vector<uint32_t> results, drops;
  std::vector<int32_t> lengths;
};

}  // namespace glowplug::aten
