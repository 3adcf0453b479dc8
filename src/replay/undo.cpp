#include "replay/undo.h"

namespace glowplug::replay {

using ir::EffectKind;

bool note(cpython::UndoLog& log, const ir::Event& effect,
          const std::vector<cpython::Ref>& operands) {
  PyObject* object = operands[0].get();
  switch (effect.effect) {
    case EffectKind::SetAttr:
    case EffectKind::DelAttr:
      return log.noteAttribute(object, operands[1].get());
    case EffectKind::SetItem:
    case EffectKind::DelItem:
      return log.noteContents(object);
    case EffectKind::SetCell:
      log.noteCell(object);
      return true;
    case EffectKind::CallMethod:
      return operands.size() < 2 || log.noteContents(operands[1].get());
  }
  return true;
}

}  // namespace glowplug::replay
