#pragma once

// Private to row_group.cpp: what a group of rows computes, as items.
//
// What is computed becomes items: inputs, elements of a row ("full"), and numbers of a row. A
// reduction's result is known after the loop that it is made in, so items fall into phases: phase p
// is a vector loop over the row that may use the reductions of phases before, and in front of it
// what can be computed with those once a row. An element of an earlier phase is kept in local
// memory, a row long; inputs are loaded again. So a row comes from memory once and stays in the
// first-level cache.
//
// A linear layer ("product") needs all of its row, and is computed in front of a phase's loop too:
// an element at a time, each a sum over the row in lanes. Its row has a length of its own, so in a
// group with one all lengths are numbers in the text.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lower/builder.h"
#include "lower/fused.h"

namespace glowplug::lower::fused {

struct Item {
  enum class Kind : uint8_t { Input, Compute, Reduce, Product };
  using Compute = std::function<Value(Builder&, const std::vector<Value>&)>;
  Kind kind = Kind::Compute;
  std::vector<size_t> operands;  // items; Product: the row, matrix and vector
  Compute compute;
  Reduction reduction = Reduction::Sum;
  DType dtype = DType::F32;
  bool full = false;             // an element of the row
  int64_t length = 1;            // of the row, if full
  size_t phase = 0;              // Input: 0. Reduce: whose loop makes it
  size_t lastPhase = 0;          // that uses it
  size_t input = 0;              // Input: which
  std::optional<size_t> output;  // which
  BufferId kept;                 // full, used by a later phase
  Value value;                   // of this row or, in a loop, of this element
};

// The items of a group, each behind its operands.
class Items {
 public:
  Items(const opt::Graph& graph, const opt::Group& group);

  std::vector<Item> items;
  std::string refusal;

 private:
  size_t add(Item item);
  size_t compute(std::vector<size_t> operands, Item::Compute function);
  size_t op(Op op, size_t a);
  size_t op(Op op, size_t a, size_t c);
  size_t plus(size_t a, double number);
  // Divided by the number of elements in a row.
  size_t average(size_t a);
  size_t reduce(Reduction reduction, size_t a);
  size_t operand(const opt::Node& node, size_t i) const;
  bool given(const opt::Node& node, size_t i) const;
  void node(const opt::Node& node);
  size_t pointwise(const opt::Node& node);
  size_t alongRow(const opt::Node& node);
  size_t product(const opt::Node& node, size_t x);
  size_t softmax(size_t x);
  size_t logSoftmax(size_t x);
  size_t layerNorm(const opt::Node& node, size_t x);
  size_t rmsNorm(const opt::Node& node, size_t x);
  void output(size_t i);

  const opt::Graph& graph_;
  const opt::Group& group_;
  std::map<common::ValueId, size_t> known_;
};

}  // namespace glowplug::lower::fused
