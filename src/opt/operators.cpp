#include "opt/operators.h"

#include <unordered_map>

namespace glowplug::opt {

std::string_view baseName(std::string_view op) { return op.substr(0, op.find('.')); }

OperatorClass classOf(std::string_view op) {
  static const std::unordered_map<std::string_view, OperatorClass> kTable = {
#define OPERATOR(name, kind) {name, OperatorClass::kind},
#include "opt/operators.def"
#undef OPERATOR
  };
  // Overloads that compute into given memory: "aten::add.out".
  const size_t dot = op.find('.');
  if (dot != std::string_view::npos && op.ends_with("out")) return OperatorClass::Unknown;
  // An operand that the rule for the others does not know.
  if (op == "aten::round.decimals") return OperatorClass::Unknown;
  const auto found = kTable.find(baseName(op));
  return found == kTable.end() ? OperatorClass::Unknown : found->second;
}

}  // namespace glowplug::opt
