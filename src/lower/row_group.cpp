// Groups that work along rows: softmax, norms and reductions with the pointwise operators around
// them, in one nest with an item a row.
//
// What is computed becomes items: inputs, elements of a row ("full"), and numbers of a row. A
// reduction's result is known after the loop that it is made in, so items fall into phases: phase p
// is a vector loop over the row that may use the reductions of phases before, and in front of it
// what can be computed with those once a row. An element of an earlier phase is kept in local
// memory, a row long; inputs are loaded again. So a row comes from memory once and stays in the
// first-level cache.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "common/check.h"
#include "lower/affine.h"
#include "lower/builder.h"
#include "lower/fused.h"
#include "opt/operators.h"

namespace glowplug::lower::fused {
namespace {

using common::ValueId;

struct Item {
  enum class Kind : uint8_t { Input, Compute, Reduce };
  using Compute = std::function<Value(Builder&, const std::vector<Value>&)>;
  Kind kind = Kind::Compute;
  std::vector<size_t> operands;  // items
  Compute compute;
  Reduction reduction = Reduction::Sum;
  DType dtype = DType::F32;
  bool full = false;             // an element of the row
  size_t phase = 0;              // Input: 0. Reduce: whose loop makes it
  size_t lastPhase = 0;          // that uses it
  size_t input = 0;              // Input: which
  std::optional<size_t> output;  // which
  BufferId kept;                 // full, used by a later phase
  Value value;                   // of this row or, in a loop, of this element
};

// Makes the items of a group.
class Items {
 public:
  Items(const opt::Graph& graph, const opt::Group& group, const Loops& loops)
      : graph_(graph), group_(group) {
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      Item item;
      item.kind = Item::Kind::Input;
      item.dtype = dtypeOf(graph, group.inputs[i]);
      item.full = loops.inputs[i].back() != 0;
      item.input = i;
      known_[group.inputs[i]] = add(std::move(item));
    }
    for (const size_t n : group.nodes) node(graph.nodes[n]);
    for (size_t i = 0; i < group.outputs.size(); ++i) output(i);
    for (const Item& item : items) {
      for (const size_t operand : item.operands) {
        items[operand].lastPhase = std::max(items[operand].lastPhase, item.phase);
      }
    }
  }

  std::vector<Item> items;
  std::string refusal;

 private:
  size_t add(Item item) {
    for (const size_t operand : item.operands) {
      const Item& of = items[operand];
      const bool reduced = of.kind == Item::Kind::Reduce;
      item.phase = std::max(item.phase, of.phase + (reduced ? 1 : 0));
      if (item.kind == Item::Kind::Compute) item.full |= of.full;
    }
    items.push_back(std::move(item));
    return items.size() - 1;
  }
  size_t compute(std::vector<size_t> operands, Item::Compute function) {
    Item item;
    item.operands = std::move(operands);
    item.compute = std::move(function);
    return add(std::move(item));
  }
  size_t op(Op op, size_t a) {
    return compute({a}, [op](Builder& b, const std::vector<Value>& in) { return b.op(op, in[0]); });
  }
  size_t op(Op op, size_t a, size_t c) {
    return compute(
        {a, c}, [op](Builder& b, const std::vector<Value>& in) { return b.op(op, in[0], in[1]); });
  }
  size_t plus(size_t a, double number) {
    return compute({a}, [number](Builder& b, const std::vector<Value>& in) {
      return b.add(in[0], b.real(DType::F32, number));
    });
  }
  // Divided by the number of elements in a row.
  size_t average(size_t a) {
    const auto count = static_cast<double>(group_.sizes.back());
    return compute({a}, [count](Builder& b, const std::vector<Value>& in) {
      return b.div(in[0], b.real(DType::F32, count));
    });
  }
  size_t reduce(Reduction reduction, size_t a) {
    Item item;
    item.kind = Item::Kind::Reduce;
    item.operands = {a};
    item.reduction = reduction;
    return add(std::move(item));
  }

  size_t operand(const opt::Node& node, size_t i) const {
    return known_.at(node.operands[i].value);
  }
  bool given(const opt::Node& node, size_t i) const {
    return i < node.operands.size() && node.operands[i].kind == opt::Operand::Kind::Value;
  }

  void node(const opt::Node& node) {
    if (!refusal.empty()) return;
    const bool rows = opt::classOf(node.op) == opt::OperatorClass::Rows;
    known_[node.results[0]] = rows ? alongRow(node) : pointwise(node);
  }

  size_t pointwise(const opt::Node& node) {
    GroupNode call = pointwiseOf(graph_, node);
    std::vector<size_t> operands;
    std::vector<bool> hasDims;
    for (GroupOperand& given : call.operands) {
      if (given.kind != GroupOperand::Input) continue;
      const ValueId id = node.operands[given.index].value;
      given.index = operands.size();
      operands.push_back(known_.at(id));
      hasDims.push_back(!graph_.type(id)->sizes.empty());
    }
    const DType dtype = call.dtype;
    const size_t made =
        compute(operands, [this, call, hasDims](Builder& b, const std::vector<Value>& in) -> Value {
          PointwiseCall out{call.op, {}, call.mode, call.dtype};
          for (const GroupOperand& given : call.operands) {
            PointwiseOperand one;
            one.integer = given.integer;
            one.real = given.real;
            if (given.kind == GroupOperand::Input) {
              one.kind = PointwiseOperand::Tensor;
              one.element = in[given.index];
              one.hasDims = hasDims[given.index];
            } else if (given.kind != GroupOperand::None) {
              const bool real = given.kind == GroupOperand::Real;
              one.kind = real ? PointwiseOperand::Real : PointwiseOperand::Integer;
            }
            out.operands.push_back(one);
          }
          return lowerPointwise(b, out, refusal);
        });
    items[made].dtype = dtype;
    return made;
  }

  size_t alongRow(const opt::Node& node) {
    const std::string_view name = opt::baseName(node.op);
    const size_t x = operand(node, 0);
    if (name == "aten::softmax") return softmax(x);
    if (name == "aten::log_softmax") return logSoftmax(x);
    if (name == "aten::layer_norm") return layerNorm(node, x);
    if (name == "aten::rms_norm") return rmsNorm(node, x);
    if (name == "aten::sum") return reduce(Reduction::Sum, x);
    if (name == "aten::mean") return average(reduce(Reduction::Sum, x));
    if (name == "aten::amax") return reduce(Reduction::Max, x);
    if (name == "aten::amin") return reduce(Reduction::Min, x);
    refusal = fmt::format("no rows of {}", node.op);
    return x;
  }

  size_t softmax(size_t x) {
    const size_t power = op(Op::Exp, op(Op::Sub, x, reduce(Reduction::Max, x)));
    return op(Op::Div, power, reduce(Reduction::Sum, power));
  }

  size_t logSoftmax(size_t x) {
    const size_t shifted = op(Op::Sub, x, reduce(Reduction::Max, x));
    const size_t total = reduce(Reduction::Sum, op(Op::Exp, shifted));
    return op(Op::Sub, shifted, op(Op::Log, total));
  }

  size_t layerNorm(const opt::Node& node, size_t x) {
    const size_t mean = reduce(Reduction::WelfordMean, x);
    const size_t variance = average(reduce(Reduction::WelfordM2, x));
    const size_t scale = op(Op::Rsqrt, plus(variance, node.operands[4].real));
    size_t out = op(Op::Mul, op(Op::Sub, x, mean), scale);
    if (given(node, 2)) out = op(Op::Mul, out, operand(node, 2));
    if (given(node, 3)) out = op(Op::Add, out, operand(node, 3));
    return out;
  }

  size_t rmsNorm(const opt::Node& node, size_t x) {
    const bool eps = node.operands.size() > 3 && node.operands[3].kind == opt::Operand::Kind::Real;
    const double least = eps ? node.operands[3].real : 1.1920928955078125e-07;  // of f32
    const size_t square = average(reduce(Reduction::Sum, op(Op::Mul, x, x)));
    size_t out = op(Op::Mul, x, op(Op::Rsqrt, plus(square, least)));
    if (given(node, 2)) out = op(Op::Mul, out, operand(node, 2));
    return out;
  }

  void output(size_t i) {
    if (!refusal.empty()) return;
    const opt::TensorType& type = *graph_.type(group_.outputs[i]);
    size_t item = known_.at(group_.outputs[i]);
    const bool fullOutput = type.sizes == group_.sizes;
    // An item is stored once, where it is known; what is needed otherwise is a copy.
    const bool stored = items[item].output || items[item].kind == Item::Kind::Input;
    if (stored || fullOutput != items[item].full) {
      const DType dtype = items[item].dtype;
      item = compute({item}, [](Builder&, const std::vector<Value>& in) { return in[0]; });
      items[item].dtype = dtype;
      items[item].full = fullOutput;
    }
    items[item].output = i;
  }

  const opt::Graph& graph_;
  const opt::Group& group_;
  std::map<ValueId, size_t> known_;
};

// Writes the kernel of the items.
class Writer {
 public:
  Writer(const opt::Graph& graph, const opt::Group& group, const Loops& loops,
         std::vector<Item>& items)
      : b_("rows"), loops_(loops), items_(items) {
    for (size_t d = 0; d + 1 < loops.extents.size(); ++d) {
      extents_.push_back(b_.size(fmt::format("n{}", d)));
    }
    length_ = b_.size("m");
    sizes = loops.extents;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      inputs_.push_back(
          b_.buffer(fmt::format("in{}", i), dtypeOf(graph, group.inputs[i]), Role::In));
    }
    for (size_t i = 0; i < group.outputs.size(); ++i) {
      outputs_.push_back(
          b_.buffer(fmt::format("out{}", i), dtypeOf(graph, group.outputs[i]), Role::Out));
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      last_ = std::max(last_, item.phase);
      const bool later = item.full && item.lastPhase > item.phase;
      if (item.kind == Item::Kind::Compute && later) {
        item.kept = b_.local(fmt::format("kept{}", i), item.dtype, length_);
      }
    }
    variables_ = b_.nest(extents_);
    Affine stride = constantIndex(1);
    for (size_t d = variables_.size(); d-- > 0;) {
      row_ = row_ + variables_[d] * stride;
      stride = stride * extents_[d];
    }
  }

  Kernel write() {
    for (Item& item : items_) {
      if (item.kind == Item::Kind::Input && !item.full) {
        item.value = b_.load(inputs_[item.input], placeOf(item.input, constantIndex(0)));
      }
    }
    for (size_t phase = 0; phase <= last_ + 1; ++phase) {
      inFront(phase);
      loop(phase);
    }
    return b_.take();
  }

  std::vector<int64_t> sizes;

 private:
  Affine stride(size_t input, size_t loop) {
    const int64_t stride = loops_.inputs[input][loop];
    if (stride <= 1) return constantIndex(stride);
    const auto [known, isNew] = strides_.try_emplace({input, loop});
    if (isNew) {
      known->second = b_.size(fmt::format("s{}_{}", input, loop));
      sizes.push_back(stride);
    }
    return known->second;
  }

  Affine placeOf(size_t input, const Affine& element) {
    Affine place;
    for (size_t d = 0; d < variables_.size(); ++d) {
      if (loops_.inputs[input][d] != 0) place = place + variables_[d] * stride(input, d);
    }
    const size_t last = loops_.extents.size() - 1;
    if (loops_.inputs[input][last] != 0) place = place + element * stride(input, last);
    return place;
  }

  // What is known once a row before the loop of the phase.
  void inFront(size_t phase) {
    for (Item& item : items_) {
      if (item.kind == Item::Kind::Compute && !item.full && item.phase == phase) {
        std::vector<Value> in;
        for (const size_t operand : item.operands) in.push_back(items_[operand].value);
        item.value = item.compute(b_, in);
        store(item);
      }
      const bool reduced = item.kind == Item::Kind::Reduce && item.phase + 1 == phase;
      if (reduced) store(item);
    }
  }
  void store(const Item& item) {
    if (item.output) b_.store(outputs_[*item.output], row_, item.value);
  }

  void loop(size_t phase) {
    const bool any = std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
      return item.phase == phase && inLoop(item);
    });
    if (!any) return;
    b_.vector(length_, [&](const Affine& j) {
      here_.assign(items_.size(), Value());
      for (Item& item : items_) {
        if (item.phase != phase || !inLoop(item)) continue;
        std::vector<Value> in;
        for (const size_t operand : item.operands) in.push_back(element(operand, phase, j));
        if (item.kind == Item::Kind::Reduce) {
          item.value = b_.reduce(item.reduction, in[0], j);
          continue;
        }
        item.value = item.compute(b_, in);
        if (item.output) b_.store(outputs_[*item.output], row_ * length_ + j, item.value);
        if (item.kept.valid()) b_.store(item.kept, j, item.value);
      }
    });
  }
  static bool inLoop(const Item& item) {
    return item.kind == Item::Kind::Reduce || (item.kind == Item::Kind::Compute && item.full);
  }

  Value element(size_t i, size_t phase, const Affine& j) {
    const Item& item = items_[i];
    const bool input = item.kind == Item::Kind::Input;
    if (!item.full || (!input && item.phase == phase)) return item.value;
    if (!here_[i].valid()) {
      here_[i] =
          input ? b_.load(inputs_[item.input], placeOf(item.input, j)) : b_.load(item.kept, j);
    }
    return here_[i];
  }

  Builder b_;
  const Loops& loops_;
  std::vector<Item>& items_;
  std::vector<Affine> extents_, variables_;
  Affine length_, row_;
  std::vector<BufferId> inputs_, outputs_;
  std::map<std::pair<size_t, size_t>, Affine> strides_;
  std::vector<Value> here_;  // loaded in the open loop, by item
  size_t last_ = 0;          // phase
};

}  // namespace

FusedKernel lowerRowGroup(const opt::Graph& graph, const opt::Group& group) {
  std::vector<const opt::TensorType*> types;
  for (const ValueId id : group.inputs) types.push_back(graph.type(id));
  const size_t rank = group.sizes.size();
  // The last dimension stays apart, whatever lies next to what.
  std::vector<size_t> leading;
  for (size_t d = 0; d + 1 < rank; ++d) {
    if (group.sizes[d] != 1) leading.push_back(d);
  }
  Loops loops = loopsOver(group.sizes, leading, types);
  const Loops last = loopsOver(group.sizes, {rank - 1}, types);
  loops.extents.push_back(last.extents[0]);
  for (size_t i = 0; i < types.size(); ++i) loops.inputs[i].push_back(last.inputs[i][0]);
  Items items(graph, group, loops);
  FusedKernel out;
  if (items.refusal.empty()) {
    Writer writer(graph, group, loops, items.items);
    Kernel kernel = writer.write();
    if (items.refusal.empty()) {
      out.kernel = std::move(kernel);
      out.sizes = std::move(writer.sizes);
    }
  }
  out.refusal = items.refusal;
  return out;
}

}  // namespace glowplug::lower::fused
