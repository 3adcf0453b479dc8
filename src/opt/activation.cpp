#include "opt/activation.h"

#include <string_view>

#include "opt/operators.h"

namespace glowplug::opt {

using Kind = Operand::Kind;

std::optional<Activation> activationOf(const Node& node) {
  const auto& operands = node.operands;
  if (operands.empty() || operands[0].kind != Kind::Value) return {};
  std::string_view name = baseName(node.op);
  if (node.op != name) return {};  // an overload
  if (name.ends_with('_')) name.remove_suffix(1);
  if (name == "aten::relu") return Activation{"relu", {}, {}};
  if (name == "aten::silu") return Activation{"swish", {}, {}};
  if (name == "aten::gelu" && operands.size() == 2 && operands[1].kind == Kind::Text) {
    if (operands[1].text != "none" && operands[1].text != "tanh") return {};
    return Activation{"gelu", operands[1].text, {}};
  }
  if (name == "aten::hardtanh") {
    const std::optional<double> least = numberAt(node, 1), most = numberAt(node, 2);
    if (!least || !most || *least > *most) return {};
    return Activation{"hardtanh", {}, {*least, *most}};
  }
  return {};
}

}  // namespace glowplug::opt
