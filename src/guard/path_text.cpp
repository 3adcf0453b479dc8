// Names of access paths, as a user would write them.

#include <fmt/format.h>

#include "guard/guard_tree.h"

namespace glowplug::guard {

using ir::StepKind;

namespace {

// 'name' -> name, when the text is the repr of an identifier.
std::string identifier(const std::string& repr) {
  if (repr.size() < 3 || repr.front() != '\'' || repr.back() != '\'') return {};
  std::string name = repr.substr(1, repr.size() - 2);
  for (char c : name)
    if (!(isalnum(static_cast<unsigned char>(c)) || c == '_' ||
          static_cast<unsigned char>(c) > 127))
      return {};
  return name;
}

bool isNumber(const std::string& name) {
  for (char c : name)
    if (!isdigit(static_cast<unsigned char>(c))) return false;
  return !name.empty();
}

std::string attribute(const std::string& base, const std::string& repr) {
  std::string name = identifier(repr);
  if (isNumber(name)) return fmt::format("{}[{}]", base, name);
  return name.empty() ? fmt::format("{}[{}]", base, repr) : fmt::format("{}.{}", base, name);
}

class Namer {
 public:
  explicit Namer(const ir::Trace& trace) : trace_(trace) {}
  std::string name(common::SourceId id) const;

 private:
  const ir::Source& source(common::SourceId id) const { return trace_.sources[id.index()]; }
  std::string text(common::ObjectId id) const {
    return id.valid() && id.index() < trace_.objectTexts.size() ? trace_.objectTexts[id.index()]
                                                                : "?";
  }
  std::string dictItem(const ir::Source& item) const;
  // The registries in which torch modules keep what they show as attributes.
  bool isRegistry(const ir::Source& dict) const;

  const ir::Trace& trace_;
};

bool Namer::isRegistry(const ir::Source& dict) const {
  if (dict.step != StepKind::DictItem || source(dict.parent).step != StepKind::InstanceDict)
    return false;
  std::string key = identifier(text(dict.object));
  return key == "_modules" || key == "_parameters" || key == "_buffers";
}

// What is written after the parent's path for a step that has no payload; null for all others.
const char* endingOf(StepKind step) {
  switch (step) {
    case StepKind::InstanceDict:
      return ".__dict__";
    case StepKind::Globals:
      return ".__globals__";
    case StepKind::Builtins:
      return ".__builtins__";
    case StepKind::Defaults:
      return ".__defaults__";
    case StepKind::Kwdefaults:
      return ".__kwdefaults__";
    case StepKind::CellContents:
      return ".cell_contents";
    case StepKind::MethodSelf:
      return ".__self__";
    case StepKind::MethodFunc:
      return ".__func__";
    case StepKind::PartialFunc:
      return ".func";
    case StepKind::PartialArgs:
      return ".args";
    case StepKind::PartialKwargs:
      return ".keywords";
    case StepKind::ProxyTarget:
      return "";
    case StepKind::Referent:
      return "()";
    case StepKind::ContextValue:
      return ".get()";
    case StepKind::TensorGrad:
      return ".grad";
    default:
      return nullptr;
  }
}

std::string Namer::dictItem(const ir::Source& item) const {
  const ir::Source& dict = source(item.parent);
  const std::string key = text(item.object);
  if (dict.step == StepKind::InstanceDict) return attribute(name(dict.parent), key);
  if (isRegistry(dict)) return attribute(name(source(dict.parent).parent), key);
  if (dict.step == StepKind::Globals || dict.step == StepKind::Builtins) {
    std::string global = identifier(key);
    if (!global.empty()) return "G." + global;
  }
  return fmt::format("{}[{}]", name(item.parent), key);
}

std::string Namer::name(common::SourceId id) const {
  if (!id.valid() || id.index() >= trace_.sources.size()) return "?";
  const ir::Source& at = source(id);
  if (const char* ending = endingOf(at.step)) return name(at.parent) + ending;
  switch (at.step) {
    case StepKind::Callee:
      return "L.self";
    case StepKind::Arg:
      return fmt::format("L.args[{}]", at.index);
    case StepKind::Kwarg:
      return attribute("L", text(at.object));
    case StepKind::Pinned:
      return "G." + text(at.object);
    case StepKind::Result:
      return fmt::format("result{}", at.index);
    case StepKind::Built:
      return fmt::format("built{}", at.index);
    case StepKind::DictItem:
      return dictItem(at);
    case StepKind::SlotAttr:
    case StepKind::TypeAttr:
    case StepKind::GetAttr:
      return attribute(name(at.parent), text(at.object));
    case StepKind::ListItem:
    case StepKind::TupleItem:
    case StepKind::DequeItem:
      return fmt::format("{}[{}]", name(at.parent), at.index);
    case StepKind::Closure:
      return fmt::format("{}.__closure__[{}]", name(at.parent), at.index);
    default:
      return "?";  // those that have an ending
  }
}

}  // namespace

std::string pathText(const ir::Trace& trace, common::SourceId source) {
  return Namer(trace).name(source);
}

}  // namespace glowplug::guard
