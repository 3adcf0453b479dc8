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
    return std::move(wrong_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    wrong_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void node(size_t n) {
    const Node& node = graph_.nodes[n];
    if (node.barrier && node.state != Node::State::Kept) say("barrier @{} was moved", node.event);
    if (n > 0 && graph_.nodes[n - 1].event >= node.event) say("@{} is out of order", node.event);
    if (node.state == Node::State::Removed) return;
    visitValues(node, [&](ValueId id) {
      const int64_t maker = graph_.makers[id.index()];
      if (maker > static_cast<int64_t>(n)) {
        say("@{} uses %{} before it is made", node.event, id.value);
      }
      if (maker < 0) return;
      const Node& made = graph_.nodes[static_cast<size_t>(maker)];
      const bool same = node.state == Node::State::Grouped && made.state == Node::State::Grouped &&
                        made.group == node.group;
      if (same || made.state != Node::State::Grouped) return;
      // A kernel makes it, in the place of the kernel's last member.
      const Group& group = graph_.groups[made.group];
      const size_t here =
          node.state == Node::State::Grouped ? graph_.groups[node.group].members.back() : n;
      if (here <= group.members.back()) {
        say("@{} uses %{} before kernel {} runs", node.event, id.value, made.group);
      }
      const auto& outputs = group.outputs;
      if (std::find(outputs.begin(), outputs.end(), id) == outputs.end()) {
        say("@{} uses %{}, which kernel {} does not give", node.event, id.value, made.group);
      }
    });
  }

  void group(size_t g) {
    const Group& group = graph_.groups[g];
    if (group.nodes.empty() || group.members.empty()) return say("kernel {} is empty", g);
    if (group.nodes.back() != group.members.back()) say("kernel {} lost its place", g);
    if (group.outputs.empty()) say("kernel {} gives nothing", g);
    for (size_t n = group.members.front(); n <= group.members.back(); ++n) {
      if (graph_.nodes[n].barrier) say("kernel {} reaches across @{}", g, graph_.nodes[n].event);
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
