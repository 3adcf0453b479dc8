#include <fmt/format.h>

#include <algorithm>

#include "opt/graph.h"

namespace glowplug::opt {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  std::vector<std::string> run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) node(n);
    for (size_t g = 0; g < graph_.groups.size(); ++g) group(g);
    for (const Convolution& c : graph_.convolutions) library("convolution", c.members, c.result);
    for (const Layer& layer : graph_.layers) library("layer", layer.members, layer.result);
    return std::move(wrong_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    wrong_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void node(size_t n) {
    const Node& node = graph_.nodes[n];
    const bool stays = node.state == Node::State::Kept || node.state == Node::State::Packed;
    if (node.barrier && !stays) say("barrier @{} was moved", node.event);
    if (n > 0 && graph_.nodes[n - 1].event >= node.event) say("@{} is out of order", node.event);
    if (node.state == Node::State::Removed) return;
    visitValues(node, [&](ValueId id) {
      const int64_t maker = graph_.makers[id.index()];
      if (maker > static_cast<int64_t>(n)) {
        say("@{} uses %{} before it is made", node.event, id.value);
      }
      if (maker < 0) return;
      const Node& made = graph_.nodes[static_cast<size_t>(maker)];
      const bool same = node.state == made.state && made.group == node.group;
      const bool alone = made.state == Node::State::Kept || made.state == Node::State::Removed ||
                         made.state == Node::State::Attention;
      if (alone || same) return;
      const char* what = made.state == Node::State::Packed  ? "convolution"
                         : made.state == Node::State::Layer ? "layer"
                                                            : "kernel";
      if (place(n) <= place(static_cast<size_t>(maker))) {
        say("@{} uses %{} before {} {} runs", node.event, id.value, what, made.group);
      }
      if (!gives(made, id)) {
        say("@{} uses %{}, which {} {} does not give", node.event, id.value, what, made.group);
      }
    });
  }

  // Where it runs: what stands for several operators in the place of the last.
  size_t place(size_t n) const {
    const Node& node = graph_.nodes[n];
    if (node.state == Node::State::Grouped) return graph_.groups[node.group].members.back();
    if (node.state == Node::State::Packed) return graph_.convolutions[node.group].members.back();
    if (node.state == Node::State::Layer) return graph_.layers[node.group].members.back();
    return n;
  }

  bool gives(const Node& node, ValueId id) const {
    if (node.state == Node::State::Packed) return graph_.convolutions[node.group].result == id;
    if (node.state == Node::State::Layer) return graph_.layers[node.group].result == id;
    const auto& outputs = graph_.groups[node.group].outputs;
    return std::find(outputs.begin(), outputs.end(), id) != outputs.end();
  }

  // Operators that one call of a library stands for.
  void library(const char* what, const std::vector<size_t>& members, ValueId result) {
    if (members.empty()) return say("a {} is empty", what);
    const size_t number = graph_.nodes[members.front()].group;
    for (size_t n = members.front(); n <= members.back(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.barrier && node.state != Node::State::Packed) {
        say("{} {} reaches across @{}", what, number, node.event);
      }
    }
    for (const size_t n : members) {
      for (const ValueId id : graph_.nodes[n].results) {
        if (graph_.escapes[id.index()] && id != result) {
          say("%{} is needed outside and {} {} does not give it", id.value, what, number);
        }
      }
    }
  }

  void group(size_t g) {
    const Group& group = graph_.groups[g];
    if (group.nodes.empty() || group.members.empty()) return say("kernel {} is empty", g);
    if (group.nodes.back() != group.members.back()) say("kernel {} lost its place", g);
    if (group.outputs.empty()) say("kernel {} gives nothing", g);
    for (size_t n = group.members.front(); n <= group.members.back(); ++n) {
      const Node& node = graph_.nodes[n];
      const bool writes = node.barrier && node.state != Node::State::Packed;
      if (writes) say("kernel {} reaches across @{}", g, node.event);
    }
    for (const size_t n : group.members) {
      const Node& node = graph_.nodes[n];
      for (const ValueId id : node.results) {
        const auto& outputs = group.outputs;
        const bool given = std::find(outputs.begin(), outputs.end(), id) != outputs.end();
        if (graph_.escapes[id.index()] && !given) {
          say("%{} is needed outside and kernel {} does not give it", id.value, g);
        }
      }
    }
  }

  const Graph& graph_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace glowplug::opt
