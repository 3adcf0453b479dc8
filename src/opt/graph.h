#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/reasons.h"
#include "ir/trace.h"

// The graph of a segment: its operators with typed operands and use lists, which passes
// (opt/passes.h) rewrite and group into kernels. Values keep their numbers in the trace; each is
// made once, so the graph is in SSA form but for operators that write into memory. Those, and
// whatever else must stay in its place, are barriers: nothing moves across them.
namespace glowplug::opt {

using common::ValueId;

// What the recording tells of a tensor and the guards, or the operators before, make sure of.
struct TensorType {
  std::string dtype;  // "f32"
  std::vector<int64_t> sizes, strides;
  bool grad = false;

  int64_t elements() const;
};

struct Operand {
  enum class Kind : uint8_t { None, Value, Integer, Real, Bool, Text, Integers, Values, Other };
  Kind kind = Kind::None;
  ValueId value;
  int64_t integer = 0;  // Integer, Bool
  double real = 0;
  std::string text;               // Text; Other: as the trace has it
  std::vector<int64_t> integers;  // Integers
  std::vector<ValueId> values;    // Values: the tensors in a list
};

struct Node {
  // Kept: runs as it is. Grouped: a kernel computes it. Packed: a convolution of
  // Graph::convolutions computes it. Layer: one of Graph::layers does. Attention: likewise.
  // Removed: nobody needs it.
  enum class State : uint8_t { Kept, Grouped, Packed, Layer, Attention, Removed };
  size_t event = 0;
  std::string op;  // "aten::add.Tensor"; empty: not an operator
  std::vector<Operand> operands;
  std::vector<ValueId> results;
  bool barrier = false;  // nothing is moved across it
  State state = State::Kept;
  size_t group = 0;  // in Graph::groups, convolutions or layers, as the state says
  // Kept: why no kernel computes it.
  std::optional<common::Reason> reason;
};

// Operators that become one kernel, which runs in the place of the last one.
struct Group {
  enum class Kind : uint8_t { Pointwise, Rows };
  Kind kind = Kind::Pointwise;
  std::vector<size_t> members;  // nodes, ascending: what it stands for
  std::vector<size_t> nodes;    // those of them that it computes
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // made here and needed elsewhere
  // Of what is computed. Rows: along the last dimension results may also be of size 1, or absent
  // where a reduction left the dimension out.
  std::vector<int64_t> sizes;
};

// A convolution with a packed weight and what it computes besides, in the place of the last member:
//   x, padded -> convolution -> batch norm -> + other -> activation
struct Convolution {
  std::vector<size_t> members;  // nodes, ascending
  size_t node = 0;              // the convolution itself
  ValueId x, weight, bias;      // bias: may be invalid
  std::vector<int64_t> padding, stride, dilation;
  std::vector<int64_t> after;  // padding behind the input; empty: as much as before it
  int64_t groups = 1;
  bool normed = false;
  ValueId mean, variance, gamma, beta;  // normed; gamma, beta: may be invalid
  double epsilon = 0;
  ValueId other;                    // may be invalid
  std::string activation = "none";  // oneDNN's names
  std::vector<double> scalars;
  std::string algorithm;
  ValueId result;
  bool prepared = false;  // with a primitive that is kept

  // Weight first; what the packed weight and bias are made of.
  std::vector<ValueId> sources() const;
};

// A linear layer with a packed weight and the activation after it, in the place of the last member.
struct Layer {
  std::vector<size_t> members;      // nodes, ascending; the linear layer itself first
  std::string activation = "none";  // oneDNN's names
  std::string algorithm;
  ValueId result;
};

// An operator that a kernel of ours computes: softmax(q k^T * scale + mask) v.
struct Attention {
  size_t node = 0;
  ValueId q, k, v, mask;  // mask: may be invalid
  bool causal = false;
  double scale = 1;
  int64_t headsPerKey = 1;
};

struct Graph {
  std::vector<Node> nodes;                       // in program order
  std::vector<std::optional<TensorType>> types;  // by ValueId: of plain tensors on the CPU
  std::vector<bool> escapes;                     // by ValueId: needed outside the segment
  std::vector<std::vector<size_t>> users;        // by ValueId: nodes, ascending, each once
  std::vector<int64_t> makers;                   // by ValueId: a node, or -1
  std::vector<Group> groups;
  std::vector<Convolution> convolutions;
  std::vector<Layer> layers;
  std::vector<Attention> attentions;
  // By ValueId: tensors that are known from the start, so that weights may be packed.
  std::vector<bool> frozen;
  // By ValueId: an operator that runs as it is makes it in whatever layout its operands ask for,
  // and it has to be brought into that of `types`.
  std::vector<bool> relaid;

  const TensorType* type(ValueId id) const {
    const auto& found = types[id.index()];
    return found ? &*found : nullptr;
  }
  void findUses();
  // Nothing between the two nodes writes, but into what convolutions make for themselves, or leaves
  // the segment's operators.
  bool isCalm(size_t from, size_t to) const;
  // The only operator that sees a value that nobody else needs.
  std::optional<size_t> onlyUser(ValueId value) const;
};

// A constant; nothing where the operand is of another kind, or absent.
std::optional<double> numberAt(const Node& node, size_t i);

void visitValues(const Node& node, const std::function<void(ValueId)>& visitor);

// The segment of events [begin, end). `escapes`: by ValueId, what is needed outside of it.
// `mayWrite` tells of operators whether they may change a tensor that they are given.
Graph graphOf(const ir::Trace& trace, size_t begin, size_t end, std::vector<bool> escapes,
              const std::function<bool(common::OperatorId)>& mayWrite);

// "f32[2,4]{4,1} cpu" and what may follow; nothing for a tensor that is not plain.
std::optional<TensorType> parseType(const std::string& text);
// A constant as the trace writes it.
Operand parseConstant(const std::string& text);

// One line a node, groups last: for logs and tests.
//
//   @3 %4: f32[2,4]{4,1} = aten::add.Tensor %1 %2 1    -> kernel 0
//   kernel 0 pointwise [2,4]: %1 %2 -> %5
std::string print(const Graph& graph);

// What is wrong with the graph; empty if nothing is.
std::vector<std::string> verify(const Graph& graph);

}  // namespace glowplug::opt
