// Groups that work along rows: softmax, norms and reductions with the pointwise operators around
// them, in one nest with an item a row.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lower/affine.h"
#include "lower/row_items.h"
#include "opt/operators.h"

namespace glowplug::lower::fused {
namespace {

using common::ValueId;

// Writes the kernel of the items.
class Writer {
 public:
  Writer(const opt::Graph& graph, const opt::Group& group, const Loops& loops,
         std::vector<Item>& items)
      : b_("rows"), loops_(loops), items_(items) {
    for (size_t d = 0; d + 1 < loops.extents.size(); ++d) {
      extents_.push_back(b_.size(fmt::format("n{}", d)));
    }
    fixed_ = std::any_of(items.begin(), items.end(), isProduct);
    sizes = loops.extents;
    if (fixed_) {
      sizes.pop_back();
    } else {
      length_ = b_.size("m");
    }
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
      const bool later =
          item.kind == Item::Kind::Compute && item.full && item.lastPhase > item.phase;
      if (later || item.kind == Item::Kind::Product) {
        item.kept = b_.local(fmt::format("kept{}", i), item.dtype, lengthOf(item));
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
  static bool isProduct(const Item& item) { return item.kind == Item::Kind::Product; }
  Affine lengthOf(const Item& item) const { return fixed_ ? constantIndex(item.length) : length_; }

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
      if (isProduct(item) && item.phase == phase) product(item);
    }
  }

  // Several elements at a time share the loads of the row, and their sums overlap.
  void product(const Item& item) {
    constexpr int64_t kTogether = 4;
    const int64_t groups = item.length / kTogether;
    b_.serial(constantIndex(groups),
              [&](const Affine& i) { elements(item, i * kTogether, kTogether); });
    if (const int64_t left = item.length % kTogether; left > 0) {
      elements(item, constantIndex(groups * kTogether), left);
    }
  }
  void elements(const Item& item, const Affine& first, int64_t count) {
    const Item& row = items_[item.operands[0]];
    const size_t matrix = items_[item.operands[1]].input;
    std::vector<Value> sums;
    b_.vector(constantIndex(row.length), [&](const Affine& k) {
      const bool input = row.kind == Item::Kind::Input;
      const Value x =
          input ? b_.load(inputs_[row.input], placeOf(row.input, k)) : b_.load(row.kept, k);
      for (int64_t e = 0; e < count; ++e) {
        const Value weight = b_.load(inputs_[matrix], (first + e) * row.length + k);
        sums.push_back(b_.reduce(Reduction::Sum, b_.mul(x, weight), k));
      }
    });
    for (int64_t e = 0; e < count; ++e) {
      Value sum = sums[static_cast<size_t>(e)];
      if (item.operands.size() > 2) {
        const size_t vector = items_[item.operands[2]].input;
        sum = b_.add(sum, b_.load(inputs_[vector], placeOf(vector, first + e)));
      }
      b_.store(item.kept, first + e, sum);
    }
  }

  void store(const Item& item) {
    if (item.output) b_.store(outputs_[*item.output], row_, item.value);
  }

  void loop(size_t phase) {
    std::vector<int64_t> lengths;
    for (const Item& item : items_) {
      if (item.phase != phase || !inLoop(item)) continue;
      const auto end = lengths.end();
      if (std::find(lengths.begin(), end, item.length) == end) lengths.push_back(item.length);
    }
    // Without products there is one.
    for (const int64_t length : lengths) loop(phase, length);
  }
  void loop(size_t phase, int64_t length) {
    const Affine extent = fixed_ ? constantIndex(length) : length_;
    b_.vector(extent, [&](const Affine& j) {
      here_.assign(items_.size(), Value());
      for (Item& item : items_) {
        if (item.phase != phase || item.length != length || !inLoop(item)) continue;
        std::vector<Value> in;
        for (const size_t operand : item.operands) in.push_back(element(operand, phase, j));
        if (item.kind == Item::Kind::Reduce) {
          item.value = b_.reduce(item.reduction, in[0], j);
          continue;
        }
        item.value = item.compute(b_, in);
        if (item.output) b_.store(outputs_[*item.output], row_ * extent + j, item.value);
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
    if (!item.full || (!input && !isProduct(item) && item.phase == phase)) return item.value;
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
  bool fixed_ = false;   // lengths are numbers
  Affine length_, row_;  // length_: of all rows, if not fixed
  std::vector<BufferId> inputs_, outputs_;
  std::map<std::pair<size_t, size_t>, Affine> strides_;
  std::vector<Value> here_;  // loaded in the open loop, by item
  size_t last_ = 0;          // phase
};

// What linear layers multiply rows by. It lies in memory as it is, and is no operand of anything
// that works row by row.
std::set<ValueId> matricesOf(const opt::Graph& graph, const opt::Group& group,
                             std::string& refusal) {
  std::set<ValueId> matrices, others;
  for (const size_t n : group.nodes) {
    const opt::Node& node = graph.nodes[n];
    const bool linear = opt::baseName(node.op) == "aten::linear";
    for (size_t i = 0; i < node.operands.size(); ++i) {
      (linear && i == 1 ? matrices : others).insert(node.operands[i].value);
    }
  }
  for (const ValueId id : matrices) {
    const bool input = std::count(group.inputs.begin(), group.inputs.end(), id) > 0;
    if (!input || others.contains(id)) refusal = "a matrix is made or used row by row as well";
  }
  return matrices;
}

}  // namespace

FusedKernel lowerRowGroup(const opt::Graph& graph, const opt::Group& group) {
  FusedKernel out;
  const std::set<ValueId> matrices = matricesOf(graph, group, out.refusal);
  if (!out.refusal.empty()) return out;
  static const opt::TensorType kNoRows{"f32", {}, {}, false};
  std::vector<const opt::TensorType*> types;
  for (const ValueId id : group.inputs) {
    types.push_back(matrices.contains(id) ? &kNoRows : graph.type(id));
  }
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
  Items items(graph, group);
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
