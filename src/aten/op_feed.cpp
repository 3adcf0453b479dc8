#include "aten/op_feed.h"

#include <fmt/format.h>

#include "aten/op_feed_impl.h"

namespace glowplug::aten {

OpFeed::OpFeed(const ir::Trace& trace, const OpTable& table, Values& values, size_t end)
    : impl_(std::make_unique<Impl>(trace, table, values, end)) {}
OpFeed::~OpFeed() = default;

bool OpFeed::pending() const { return impl_->next < impl_->end; }

bool OpFeed::isInput(common::ValueId value, common::SourceId source) const {
  const auto& values = impl_->trace.values;
  return pending() && value.index() < values.size() && values[value.index()].source == source;
}

void OpFeed::noteSame(common::ValueId first, common::ValueId second) {
  impl_->same.emplace(second, first);
}

PyObject* OpFeed::tensor(common::ValueId value) const {
  const c10::IValue& slot = impl_->slots[value.index()];
  if (slot.isTensor()) return THPVariable_Wrap(slot.toTensor());
  const ir::Value& gone = impl_->trace.values[value.index()];
  return THPVariable_Wrap(impl_->table.metas[gone.meta.index()]->standIn());
}

OpFeed::Impl::Impl(const ir::Trace& trace, const OpTable& table, Values& values, size_t end)
    : trace(trace),
      table(table.impl()),
      slots(values.impl().slots),
      trail(values.trail()),
      end(end) {
  skipOthers();
}

void OpFeed::Impl::skipOthers() {
  while (next < end && trace.events[next].kind != ir::EventKind::Op) next++;
}

std::string OpFeed::Impl::take(const c10::OperatorHandle& op,
                               const std::vector<ir::Operand>& operands, const ir::Event** taken) {
  const ir::Event& event = trace.events[next];
  const c10::OperatorHandle& expected = table.operators.at(event.op.index());
  std::string name = c10::toString(op.operator_name());
  if (!(expected == op))
    return fmt::format("{} where it was {}", name, c10::toString(expected.operator_name()));
  auto sameValue = [this](const ir::Operand& a, const ir::Operand& b) {
    return a.kind == b.kind && first(a.value) == first(b.value) && a.items.size() == b.items.size();
  };
  if (!std::equal(operands.begin(), operands.end(), event.operands.begin(), event.operands.end(),
                  sameValue))
    return fmt::format("{} with other operands", name);
  *taken = &event;
  trail.advance(next);
  next++;
  skipOthers();
  return "";
}

const ir::Event* OpFeed::Impl::nextNamed(const char* name) const {
  if (next >= end) return nullptr;
  const ir::Event& event = trace.events[next];
  return table.operators.at(event.op.index()).operator_name().name == name ? &event : nullptr;
}

c10::IValue OpFeed::Impl::result(common::ValueId id, const ValueTracker& tracker) const {
  const ir::Value& value = trace.values[id.index()];
  const c10::IValue& slot = slots[id.index()];
  if (value.kind != ir::ValueKind::Tensor) return slot;
  // An operator that gives back what it was given: that is the program's own tensor, which may be
  // another object over the same memory as the replay's.
  at::Tensor known = tracker.tensor(id);
  if (known.defined()) return known;
  if (!slot.isNone()) return slot;
  if (!value.meta.valid()) return at::Tensor();
  return table.metas[value.meta.index()]->standIn();
}

std::vector<c10::IValue> OpFeed::Impl::results(const ir::Event& event,
                                               const c10::FunctionSchema& schema,
                                               const ValueTracker& tracker) const {
  std::vector<c10::IValue> stack;
  size_t at = 0;
  for (size_t i = 0; i < event.resultLengths.size(); ++i) {
    int32_t length = event.resultLengths[i];
    if (length < 0) {
      c10::IValue value = result(event.results[at++], tracker);
      // An optional tensor that there is none of.
      bool none = value.isTensor() && !value.toTensor().defined() &&
                  schema.returns()[i].type()->kind() == c10::TypeKind::OptionalType;
      stack.push_back(none ? c10::IValue() : std::move(value));
      continue;
    }
    c10::List<at::Tensor> list;
    for (int32_t item = 0; item < length; ++item)
      list.push_back(result(event.results[at++], tracker).toTensor());
    stack.emplace_back(std::move(list));
  }
  return stack;
}

}  // namespace glowplug::aten
