// Reading the texts that a trace keeps of metadata and constants, and printing graphs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "opt/graph.h"

namespace glowplug::opt {
namespace {

template <class Number>
bool readNumber(std::string_view text, Number& out) {
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  return problem == std::errc() && stop == text.data() + text.size();
}

bool readList(std::string_view text, std::vector<int64_t>& out) {
  while (!text.empty()) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    const size_t comma = text.find(',');
    int64_t number = 0;
    if (!readNumber(text.substr(0, comma), number)) return false;
    out.push_back(number);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return true;
}

// The part between two brackets, which is taken off the front of `text`.
std::optional<std::string_view> bracketed(std::string_view& text, char open, char close) {
  const size_t end = text.find(close);
  if (!text.starts_with(open) || end == std::string_view::npos) return std::nullopt;
  const std::string_view inside = text.substr(1, end - 1);
  text.remove_prefix(end + 1);
  return inside;
}

Operand other(std::string_view text) {
  Operand out;
  out.kind = Operand::Kind::Other;
  out.text = text;
  return out;
}

// Numbers as Python writes them.
Operand number(std::string_view text) {
  Operand out;
  if (readNumber(text, out.integer)) {
    out.kind = Operand::Kind::Integer;
  } else if (readNumber(text, out.real)) {
    out.kind = Operand::Kind::Real;
  } else {
    return other(text);
  }
  return out;
}

std::string textOf(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::None:
      return "_";
    case Operand::Kind::Value:
      return fmt::format("%{}", operand.value.value);
    case Operand::Kind::Integer:
      return fmt::format("{}", operand.integer);
    case Operand::Kind::Real:
      return fmt::format("{}", operand.real);
    case Operand::Kind::Bool:
      return operand.integer != 0 ? "True" : "False";
    case Operand::Kind::Text:
      return fmt::format("\"{}\"", operand.text);
    case Operand::Kind::Integers:
      return fmt::format("[{}]", fmt::join(operand.integers, ","));
    case Operand::Kind::Values: {
      std::vector<std::string> items;
      for (const ValueId id : operand.values) items.push_back(fmt::format("%{}", id.value));
      return fmt::format("{{{}}}", fmt::join(items, " "));
    }
    case Operand::Kind::Other:
      return operand.text;
  }
  return "?";
}

std::string listOf(const std::vector<ValueId>& values) {
  std::string out;
  for (const ValueId id : values) out += fmt::format(" %{}", id.value);
  return out;
}

std::string lineOf(const Graph& graph, const Node& node) {
  std::string out = fmt::format("@{}", node.event);
  for (const ValueId id : node.results) {
    out += fmt::format(" %{}", id.value);
    if (const TensorType* type = graph.type(id)) {
      out += fmt::format(": {}[{}]{{{}}}{}", type->dtype, fmt::join(type->sizes, ","),
                         fmt::join(type->strides, ","), type->grad ? " grad" : "");
    }
  }
  if (!node.results.empty()) out += " =";
  out += node.op.empty() ? " (no operator)" : " " + node.op;
  for (const Operand& operand : node.operands) out += " " + textOf(operand);
  if (node.barrier) out += " barrier";
  if (node.state == Node::State::Grouped) out += fmt::format(" -> kernel {}", node.group);
  if (node.state == Node::State::Packed) out += fmt::format(" -> convolution {}", node.group);
  if (node.state == Node::State::Layer) out += fmt::format(" -> layer {}", node.group);
  if (node.state == Node::State::Attention) out += fmt::format(" -> attention {}", node.group);
  if (node.state == Node::State::Removed) out += " removed";
  if (node.reason) out += fmt::format(" ({})", common::info(*node.reason).id);
  return out;
}

std::string lineOf(const Convolution& convolution) {
  std::vector<ValueId> reads{convolution.x};
  const std::vector<ValueId> sources = convolution.sources();
  reads.insert(reads.end(), sources.begin(), sources.end());
  if (!convolution.normed && convolution.bias.valid()) reads.push_back(convolution.bias);
  std::string out =
      fmt::format("{} padding [{}] stride [{}] dilation [{}] groups {}", listOf(reads),
                  fmt::join(convolution.padding, ","), fmt::join(convolution.stride, ","),
                  fmt::join(convolution.dilation, ","), convolution.groups);
  if (!convolution.after.empty()) {
    out += fmt::format(" after [{}]", fmt::join(convolution.after, ","));
  }
  if (convolution.normed) out += fmt::format(" normed {}", convolution.epsilon);
  if (convolution.other.valid()) out += fmt::format(" + %{}", convolution.other.value);
  if (convolution.activation != "none") out += " " + convolution.activation;
  for (const double scalar : convolution.scalars) out += fmt::format(" {}", scalar);
  if (convolution.prepared) out += " prepared";
  return out + fmt::format(" -> %{}", convolution.result.value);
}

}  // namespace

std::optional<TensorType> parseType(const std::string& text) {
  std::string_view rest = text;
  const size_t bracket = rest.find('[');
  if (bracket == std::string_view::npos) return std::nullopt;
  TensorType out;
  out.dtype = rest.substr(0, bracket);
  rest.remove_prefix(bracket);
  const auto sizes = bracketed(rest, '[', ']');
  const auto strides = sizes ? bracketed(rest, '{', '}') : std::nullopt;
  if (!strides || !readList(*sizes, out.sizes) || !readList(*strides, out.strides)) {
    return std::nullopt;
  }
  if (out.sizes.size() != out.strides.size() || !rest.starts_with(" cpu")) return std::nullopt;
  rest.remove_prefix(4);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t space = rest.find(' ');
    const std::string_view word = rest.substr(0, space);
    const bool harmless = word == "inference" || word == "Parameter" || word == "Buffer";
    out.grad |= word == "grad";
    if (word != "grad" && !harmless) return std::nullopt;
    rest = space == std::string_view::npos ? "" : rest.substr(space);
  }
  return out;
}

Operand parseConstant(const std::string& text) {
  Operand out;
  if (text == "None") return out;
  if (text == "True" || text == "False") {
    out.kind = Operand::Kind::Bool;
    out.integer = text == "True";
    return out;
  }
  if (text.starts_with('"') && text.ends_with('"') && text.size() > 1) {
    out.kind = Operand::Kind::Text;
    out.text = text.substr(1, text.size() - 2);
    return out;
  }
  if (text.starts_with('[') && text.ends_with(']')) {
    out.kind = Operand::Kind::Integers;
    if (readList(std::string_view(text).substr(1, text.size() - 2), out.integers)) return out;
    return other(text);
  }
  // A Python number that torch's bindings wrapped: it promotes as a number does.
  for (const std::string_view prefix : {"number(Double ", "number(Long "}) {
    if (!text.starts_with(prefix) || !text.ends_with(')')) continue;
    const size_t length = text.size() - prefix.size() - 1;
    return number(std::string_view(text).substr(prefix.size(), length));
  }
  return number(text);
}

std::string print(const Graph& graph) {
  std::string out;
  for (const Node& node : graph.nodes) out += lineOf(graph, node) + "\n";
  for (size_t g = 0; g < graph.groups.size(); ++g) {
    const Group& group = graph.groups[g];
    out += fmt::format("kernel {} {} [{}]:{} ->{}\n", g,
                       group.kind == Group::Kind::Rows ? "rows" : "pointwise",
                       fmt::join(group.sizes, ","), listOf(group.inputs), listOf(group.outputs));
  }
  for (size_t c = 0; c < graph.convolutions.size(); ++c) {
    out += fmt::format("convolution {}:{}\n", c, lineOf(graph.convolutions[c]));
  }
  for (size_t l = 0; l < graph.layers.size(); ++l) {
    const Layer& layer = graph.layers[l];
    out += fmt::format("layer {}: {} {} -> %{}\n", l, layer.activation, layer.algorithm,
                       layer.result.value);
  }
  return out;
}

}  // namespace glowplug::opt
