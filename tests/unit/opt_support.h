#pragma once

// Operands and types of graphs that tests make by hand.
#include "opt/graph.h"

namespace glowplug::opt {

inline Operand value(size_t id) {
  Operand out;
  out.kind = Operand::Kind::Value;
  out.value = common::ValueId(id);
  return out;
}

inline Operand integer(int64_t number) {
  Operand out;
  out.kind = Operand::Kind::Integer;
  out.integer = number;
  return out;
}

inline Operand integers(std::vector<int64_t> numbers) {
  Operand out;
  out.kind = Operand::Kind::Integers;
  out.integers = std::move(numbers);
  return out;
}

inline Operand text(std::string text) {
  Operand out;
  out.kind = Operand::Kind::Text;
  out.text = std::move(text);
  return out;
}

inline TensorType f32(std::vector<int64_t> sizes) {
  TensorType type{"f32", std::move(sizes), {}, false};
  int64_t stride = 1;
  type.strides.resize(type.sizes.size());
  for (size_t d = type.sizes.size(); d-- > 0;) {
    type.strides[d] = stride;
    stride *= type.sizes[d];
  }
  return type;
}

}  // namespace glowplug::opt
