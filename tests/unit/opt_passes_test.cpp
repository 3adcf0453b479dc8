// Passes from text to text: tests/golden/opt has a trace, a line "---- passes", and the graph after
// them. GLOWPLUG_UPDATE=1 writes what comes out.
#include "opt/passes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/parser.h"
#include "opt/operators.h"

namespace glowplug::opt {
namespace {

struct Golden {
  std::string trace, passes, expected;
};

Golden read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  const size_t mark = text.find("---- ");
  if (mark == std::string::npos) return {text, "", ""};
  const size_t line = text.find('\n', mark);
  return {text.substr(0, mark), text.substr(mark + 5, line - mark - 5), text.substr(line + 1)};
}

std::vector<bool> escapesOf(const ir::Trace& trace) {
  std::vector<bool> out(trace.values.size(), false);
  for (const ir::Recipe& recipe : trace.recipes) {
    if (recipe.value.valid()) out[recipe.value.index()] = true;
  }
  return out;
}

// Without torch a name tells of writes.
Graph graphOfText(const std::string& text) {
  const ir::Parsed parsed = ir::parse(text);
  EXPECT_FALSE(parsed.error) << parsed.error->text();
  const ir::Trace& trace = parsed.trace;
  auto mayWrite = [&](common::OperatorId op) {
    return baseName(trace.operatorNames[op.index()]).ends_with('_');
  };
  Graph graph = graphOf(trace, 0, trace.events.size() - 1, escapesOf(trace), mayWrite);
  for (size_t v = 0; v < trace.values.size(); ++v) {
    const common::MetaId meta = trace.values[v].meta;
    const std::string& type = meta.valid() ? trace.metaTexts[meta.index()] : std::string();
    graph.frozen[v] = type.ends_with("Parameter") || type.ends_with("Buffer");
  }
  return graph;
}

std::string after(const Golden& golden) {
  Graph graph = graphOfText(golden.trace);
  std::vector<std::string_view> without;
  for (const PassInfo& pass : passTable()) {
    if (golden.passes.find(pass.name) == std::string::npos) without.push_back(pass.name);
  }
  EXPECT_EQ(runPasses(graph, without).size() + without.size(), passTable().size());
  return print(graph);
}

TEST(Passes, GiveTheGoldenGraphs) {
  const std::filesystem::path folder = std::filesystem::path(GLOWPLUG_GOLDEN) / "opt";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    const Golden golden = read(entry.path());
    const std::string found = after(golden);
    if (std::getenv("GLOWPLUG_UPDATE") != nullptr) {
      std::ofstream(entry.path()) << golden.trace << "---- " << golden.passes << "\n" << found;
    } else {
      EXPECT_EQ(found, golden.expected);
    }
    ++count;
  }
  EXPECT_GE(count, 3u);
}

TEST(Passes, AVerifierFindsWhatIsWrong) {
  const std::filesystem::path folder = std::filesystem::path(GLOWPLUG_GOLDEN) / "opt";
  Graph graph = graphOfText(read(folder / "fuse.txt").trace);
  runPasses(graph);
  ASSERT_TRUE(verify(graph).empty());
  ASSERT_FALSE(graph.groups.empty());
  Graph silent = graph;
  silent.groups[0].outputs.clear();
  EXPECT_FALSE(verify(silent).empty());
  Graph moved = graph;
  moved.nodes[moved.groups[0].members[0]].barrier = true;
  EXPECT_FALSE(verify(moved).empty());
}

TEST(Types, AreReadFromTheTextsOfMetadata) {
  const auto type = parseType("f32[2,3]{3,1} cpu grad Parameter");
  ASSERT_TRUE(type);
  EXPECT_EQ(type->dtype, "f32");
  EXPECT_EQ(type->sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(type->strides, (std::vector<int64_t>{3, 1}));
  EXPECT_TRUE(type->grad);
  EXPECT_TRUE(parseType("f32[]{} cpu"));
  EXPECT_FALSE(parseType("f32[2,3]{3,1} cuda:0"));
  EXPECT_FALSE(parseType("f32[2,3] cpu Sparse"));
  EXPECT_FALSE(parseType("f32[2]{1} cpu conj"));
  EXPECT_FALSE(parseType("f32[2]{1} cpu MySubclass"));
}

TEST(Constants, AreReadFromTheirTexts) {
  EXPECT_EQ(parseConstant("2").kind, Operand::Kind::Integer);
  EXPECT_EQ(parseConstant("1e-05").real, 1e-05);
  EXPECT_EQ(parseConstant("number(Double 0.5)").real, 0.5);
  EXPECT_EQ(parseConstant("number(Long 3)").integer, 3);
  EXPECT_EQ(parseConstant("[-1, 2]").integers, (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(parseConstant("True").kind, Operand::Kind::Bool);
  EXPECT_EQ(parseConstant("\"tanh\"").text, "tanh");
  EXPECT_EQ(parseConstant("tensor(Float 1.0)").kind, Operand::Kind::Other);
}

}  // namespace
}  // namespace glowplug::opt
