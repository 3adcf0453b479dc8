#include "lower/row_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "opt/operators.h"

namespace glowplug::lower::fused {

using common::ValueId;

Items::Items(const opt::Graph& graph, const opt::Group& group) : graph_(graph), group_(group) {
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    Item item;
    item.kind = Item::Kind::Input;
    item.dtype = dtypeOf(graph, group.inputs[i]);
    const std::vector<int64_t>& own = graph.type(group.inputs[i])->sizes;
    item.full = !own.empty() && own.back() != 1;
    item.length = item.full ? own.back() : 1;
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

size_t Items::add(Item item) {
  for (const size_t operand : item.operands) {
    const Item& of = items[operand];
    const bool whole = of.kind == Item::Kind::Reduce || item.kind == Item::Kind::Product;
    item.phase = std::max(item.phase, of.phase + (whole ? 1 : 0));
    if (item.kind == Item::Kind::Product || !of.full) continue;
    if (item.kind == Item::Kind::Compute && item.full && item.length != of.length) {
      refusal = "rows of different lengths";
    }
    item.full = item.kind == Item::Kind::Compute;
    item.length = of.length;
  }
  items.push_back(std::move(item));
  return items.size() - 1;
}

size_t Items::compute(std::vector<size_t> operands, Item::Compute function) {
  Item item;
  item.operands = std::move(operands);
  item.compute = std::move(function);
  return add(std::move(item));
}

size_t Items::op(Op op, size_t a) {
  return compute({a}, [op](Builder& b, const std::vector<Value>& in) { return b.op(op, in[0]); });
}

size_t Items::op(Op op, size_t a, size_t c) {
  return compute({a, c},
                 [op](Builder& b, const std::vector<Value>& in) { return b.op(op, in[0], in[1]); });
}

size_t Items::plus(size_t a, double number) {
  return compute({a}, [number](Builder& b, const std::vector<Value>& in) {
    return b.add(in[0], b.real(DType::F32, number));
  });
}

size_t Items::average(size_t a) {
  const auto count = static_cast<double>(items[a].length);
  return compute({a}, [count](Builder& b, const std::vector<Value>& in) {
    return b.div(in[0], b.real(DType::F32, count));
  });
}

size_t Items::reduce(Reduction reduction, size_t a) {
  Item item;
  item.kind = Item::Kind::Reduce;
  item.operands = {a};
  item.reduction = reduction;
  return add(std::move(item));
}

size_t Items::operand(const opt::Node& node, size_t i) const {
  return known_.at(node.operands[i].value);
}

bool Items::given(const opt::Node& node, size_t i) const {
  return i < node.operands.size() && node.operands[i].kind == opt::Operand::Kind::Value;
}

void Items::node(const opt::Node& node) {
  if (!refusal.empty()) return;
  const bool rows = opt::classOf(node.op) == opt::OperatorClass::Rows;
  known_[node.results[0]] = rows ? alongRow(node) : pointwise(node);
}

size_t Items::pointwise(const opt::Node& node) {
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

size_t Items::alongRow(const opt::Node& node) {
  const std::string_view name = opt::baseName(node.op);
  const size_t x = operand(node, 0);
  if (name == "aten::linear") return product(node, x);
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

size_t Items::product(const opt::Node& node, size_t x) {
  Item item;
  item.kind = Item::Kind::Product;
  item.operands = {x, operand(node, 1)};
  if (given(node, 2)) item.operands.push_back(operand(node, 2));
  for (size_t i = 1; i < item.operands.size(); ++i) {
    if (items[item.operands[i]].kind != Item::Kind::Input) refusal = "a matrix that is made here";
  }
  item.full = true;
  item.length = graph_.type(node.operands[1].value)->sizes[0];
  return add(std::move(item));
}

size_t Items::softmax(size_t x) {
  const size_t power = op(Op::Exp, op(Op::Sub, x, reduce(Reduction::Max, x)));
  return op(Op::Div, power, reduce(Reduction::Sum, power));
}

size_t Items::logSoftmax(size_t x) {
  const size_t shifted = op(Op::Sub, x, reduce(Reduction::Max, x));
  const size_t total = reduce(Reduction::Sum, op(Op::Exp, shifted));
  return op(Op::Sub, shifted, op(Op::Log, total));
}

size_t Items::layerNorm(const opt::Node& node, size_t x) {
  const size_t mean = reduce(Reduction::WelfordMean, x);
  const size_t variance = average(reduce(Reduction::WelfordM2, x));
  const size_t scale = op(Op::Rsqrt, plus(variance, node.operands[4].real));
  size_t out = op(Op::Mul, op(Op::Sub, x, mean), scale);
  if (given(node, 2)) out = op(Op::Mul, out, operand(node, 2));
  if (given(node, 3)) out = op(Op::Add, out, operand(node, 3));
  return out;
}

size_t Items::rmsNorm(const opt::Node& node, size_t x) {
  const bool eps = node.operands.size() > 3 && node.operands[3].kind == opt::Operand::Kind::Real;
  const double least = eps ? node.operands[3].real : 1.1920928955078125e-07;  // of f32
  const size_t square = average(reduce(Reduction::Sum, op(Op::Mul, x, x)));
  size_t out = op(Op::Mul, x, op(Op::Rsqrt, plus(square, least)));
  if (given(node, 2)) out = op(Op::Mul, out, operand(node, 2));
  return out;
}

void Items::output(size_t i) {
  if (!refusal.empty()) return;
  const opt::TensorType& type = *graph_.type(group_.outputs[i]);
  size_t item = known_.at(group_.outputs[i]);
  const bool fullOutput = type.sizes.size() == group_.sizes.size() &&
                          (type.sizes.back() != 1 || group_.sizes.back() == 1);
  // An item is stored once, where it is known; what is needed otherwise is a copy.
  const Item::Kind kind = items[item].kind;
  const bool stored =
      items[item].output || kind == Item::Kind::Input || kind == Item::Kind::Product;
  if (stored || fullOutput != items[item].full) {
    const DType dtype = items[item].dtype;
    item = compute({item}, [](Builder&, const std::vector<Value>& in) { return in[0]; });
    items[item].dtype = dtype;
    items[item].full = fullOutput;
    items[item].length = fullOutput ? type.sizes.back() : 1;
  }
  items[item].output = i;
}

}  // namespace glowplug::lower::fused
