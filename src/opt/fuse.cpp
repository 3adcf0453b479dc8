// @1 %2 = aten::mul %0 %1; @2 %3 = aten::add %2 %1 1; @3 %4 = aten::relu %3
//   ->   kernel 0 pointwise: %0 %1 -> %4, in the place of @3
//
// One walk over the operators. A group is open while nobody outside has asked for what it makes:
// since its kernel runs in the place of its last member, everything that it reads is there by then,
// and everything that reads it comes later. Nothing stays open across a barrier, so a kernel sees
// the memory that each of its operators saw.

#include <algorithm>

#include "opt/fusible.h"
#include "opt/passes.h"

namespace glowplug::opt {
namespace {

using common::Reason;

// One kernel with more would run out of registers long before.
constexpr size_t kMostMembers = 64;
// With one linear layer each, the kernels of a model's blocks are the same one.
constexpr size_t kMostProducts = 1;

struct Open {
  std::vector<size_t> members;
  std::vector<int64_t> sizes;
  bool rows = false;
  size_t products = 0;
  size_t layout = 0;  // a node whose result tells the order of elements
  bool closed = false;
};

class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph), groupOf_(graph.nodes.size(), -1) {}

  void run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].state != Node::State::Removed) add(n);
    }
    for (const Open& group : open_) finish(group);
  }

 private:
  void add(size_t n) {
    Node& node = graph_.nodes[n];
    Reason reason = Reason::internal_error;
    const std::optional<Iteration> iteration = iterationOf(graph_, node, reason);
    std::vector<size_t> sources = openSources(node);
    if (node.state != Node::State::Kept) {
      for (const size_t g : sources) open_[g].closed = true;
      return;
    }
    if (iteration && iteration->product) closeMakersOfMatrix(node, sources);
    if (node.barrier) {
      for (Open& group : open_) group.closed = true;
    }
    if (!iteration) {
      if (!node.op.empty() && !node.reason) node.reason = reason;
      for (const size_t g : sources) open_[g].closed = true;
      return;
    }
    std::optional<size_t> home;
    for (const size_t g : sources) {
      if (!home && joins(n, *iteration, open_[g])) {
        home = g;
      } else if (home && merges(*home, g) && !usesReduced(n, open_[g])) {
        merge(*home, g);
      } else {
        open_[g].closed = true;
      }
    }
    if (!home) {
      home = open_.size();
      open_.push_back({{}, iteration->sizes, false, 0, n, false});
    }
    Open& group = open_[*home];
    group.members.push_back(n);
    group.rows |= iteration->rows || iteration->sizes != group.sizes;
    group.products += iteration->product ? 1 : 0;
    if (group.sizes != iteration->sizes && group.sizes.back() == 1) group.sizes = iteration->sizes;
    groupOf_[n] = static_cast<int64_t>(*home);
  }

  // A kernel reads matrix and vector as they lie in memory.
  void closeMakersOfMatrix(const Node& node, std::vector<size_t>& sources) {
    for (size_t i = 1; i < node.operands.size(); ++i) {
      if (node.operands[i].kind != Operand::Kind::Value) continue;
      const int64_t maker = graph_.makers[node.operands[i].value.index()];
      const int64_t group = maker < 0 ? -1 : groupOf_[static_cast<size_t>(maker)];
      if (group < 0) continue;
      open_[static_cast<size_t>(group)].closed = true;
      std::erase(sources, static_cast<size_t>(group));
    }
  }

  // Open groups that make what the operator uses: the widest first.
  std::vector<size_t> openSources(const Node& node) const {
    std::vector<size_t> out;
    visitValues(node, [&](ValueId id) {
      const int64_t maker = graph_.makers[id.index()];
      const int64_t group = maker < 0 ? -1 : groupOf_[static_cast<size_t>(maker)];
      if (group < 0 || open_[static_cast<size_t>(group)].closed) return;
      const auto g = static_cast<size_t>(group);
      if (std::find(out.begin(), out.end(), g) == out.end()) out.push_back(g);
    });
    return out;
  }

  const TensorType& typeOf(size_t n) const { return *graph_.type(graph_.nodes[n].results[0]); }

  // All that a group of rows stores lies row by row.
  bool inRows(const Open& group) const {
    return std::all_of(group.members.begin(), group.members.end(),
                       [&](size_t n) { return isRowMajor(typeOf(n)); });
  }

  bool joins(size_t n, const Iteration& iteration, const Open& group) const {
    if (group.members.size() >= kMostMembers || group.sizes.empty()) return false;
    const bool same = iteration.sizes == group.sizes;
    if (same && !iteration.rows && !group.rows) {
      return sameLayout(typeOf(n), typeOf(group.layout));
    }
    if (iteration.product && group.products >= kMostProducts) return false;
    const bool row = !iteration.rows && iteration.sizes == rowSizes(group.sizes);
    const bool lengths = iteration.product || group.products > 0;
    if (!same && !row && !(lengths && rowSizes(iteration.sizes) == rowSizes(group.sizes))) {
      return false;
    }
    return isRowMajor(typeOf(n)) && inRows(group) && !usesReduced(n, group);
  }

  // A reduction that left out the dimension has a result that lies otherwise than the group's rows.
  bool usesReduced(size_t n, const Open& group) const {
    bool found = false;
    visitValues(graph_.nodes[n], [&](ValueId id) {
      const int64_t maker = graph_.makers[id.index()];
      if (maker < 0 || groupOf_[static_cast<size_t>(maker)] < 0) return;
      const bool inside = std::find(group.members.begin(), group.members.end(),
                                    static_cast<size_t>(maker)) != group.members.end();
      const TensorType& type = typeOf(static_cast<size_t>(maker));
      found |= inside && type.sizes.size() != group.sizes.size();
    });
    return found;
  }

  bool merges(size_t a, size_t b) const {
    const Open& left = open_[a];
    const Open& right = open_[b];
    if (left.sizes != right.sizes || left.products + right.products > kMostProducts) return false;
    if (left.members.size() + right.members.size() >= kMostMembers) return false;
    if (left.rows || right.rows) return inRows(left) && inRows(right);
    return sameLayout(typeOf(left.layout), typeOf(right.layout));
  }

  void merge(size_t a, size_t b) {
    Open& left = open_[a];
    Open& right = open_[b];
    for (const size_t n : right.members) groupOf_[n] = static_cast<int64_t>(a);
    left.members.insert(left.members.end(), right.members.begin(), right.members.end());
    std::sort(left.members.begin(), left.members.end());
    left.rows |= right.rows;
    left.products += right.products;
    right.members.clear();
    right.closed = true;
  }

  void finish(const Open& open) {
    Group group;
    group.kind = open.rows ? Group::Kind::Rows : Group::Kind::Pointwise;
    group.members = group.nodes = open.members;
    group.sizes = open.sizes;
    findEdges(group);
    // Without removal of what is dead a group may be for nobody.
    const bool worth = open.members.size() > 1 && !group.outputs.empty();
    for (const size_t n : open.members) {
      Node& node = graph_.nodes[n];
      node.state = worth ? Node::State::Grouped : Node::State::Kept;
      node.group = worth ? graph_.groups.size() : 0;
      if (!worth) node.reason = Reason::native_alone;
    }
    if (worth) graph_.groups.push_back(std::move(group));
  }

  void findEdges(Group& group) const {
    auto isMember = [&](size_t n) {
      return std::binary_search(group.members.begin(), group.members.end(), n);
    };
    for (const size_t n : group.members) {
      const Node& node = graph_.nodes[n];
      visitValues(node, [&](ValueId id) {
        const int64_t maker = graph_.makers[id.index()];
        if (maker >= 0 && isMember(static_cast<size_t>(maker))) return;
        const auto end = group.inputs.end();
        if (std::find(group.inputs.begin(), end, id) == end) group.inputs.push_back(id);
      });
      const ValueId result = node.results[0];
      const auto& users = graph_.users[result.index()];
      const bool inner = std::all_of(users.begin(), users.end(), isMember);
      if (graph_.escapes[result.index()] || !inner) group.outputs.push_back(result);
    }
  }

  Graph& graph_;
  std::vector<int64_t> groupOf_;  // by node: in open_, or -1
  std::vector<Open> open_;
};

}  // namespace

void fuse(Graph& graph) { Fuser(graph).run(); }

}  // namespace glowplug::opt
