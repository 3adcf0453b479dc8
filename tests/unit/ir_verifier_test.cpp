// The verifier: what it says of golden traces with one thing changed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ir/parser.h"
#include "ir/verifier.h"

namespace glowplug::ir {
namespace {

std::string golden(const std::string& name) {
  std::ostringstream out;
  out << std::ifstream(GLOWPLUG_GOLDEN "/trace/" + name + ".txt").rdbuf();
  return out.str();
}

struct Change {
  const char* file;
  const char* from;  // first occurrence
  const char* to;
  const char* messages;  // joined by "; "
};

class VerifierChange : public testing::TestWithParam<Change> {};

TEST_P(VerifierChange, IsNamed) {
  const Change& change = GetParam();
  std::string text = golden(change.file);
  const size_t place = text.find(change.from);
  ASSERT_NE(place, std::string::npos) << change.from;
  text.replace(place, std::string(change.from).size(), change.to);
  const Parsed parsed = parse(text);
  ASSERT_FALSE(parsed.error) << parsed.error->text();
  EXPECT_EQ(fmt::format("{}", fmt::join(verify(parsed.trace), "; ")), change.messages);
}

const Change kSources[] = {
    {"linear", "item $3 '_parameters'", "item $4 '_parameters'",
     "source 4 (item): parent $4 does not come before"},
    {"linear", "dict $0", "dict $90",
     "source 3 (dict): parent 90 is out of range; source 3 (dict): parent $90 does not come "
     "before"},
    {"linear", "dict $0", "dict -", "source 3 (dict): needs 'parent'"},
    {"linear", "$0 = callee", "$0 = callee index=2",
     "source 0 (callee): has 'index', which its kind does not use"},
    {"linear", "arg 0", "arg -1", "source 1 (arg): index -1 is negative"},
    {"linear", "kwarg 'flag'", "kwarg -", "source 2 (kwarg): needs 'object'"},
    {"linear", "kwarg 'flag'", "kwarg #70", "source 2 (kwarg): object 70 is out of range"},
    {"control", "result 7", "result 70",
     "source 5 (result): value 70 is out of range; event 15 (return): result %70 is out of range"},
};

const Change kGuards[] = {
    {"linear", "eq $2", "eq $80", "guard 1 (eq): source 80 is out of range"},
    {"linear", "eq $2 True", "eq $2 -", "guard 1 (eq): needs 'object'"},
    {"linear", "eq $2 True", "eq $2 True other=$1",
     "guard 1 (eq): has 'other', which its kind does not use"},
    {"linear", "tensor $1 `f32[2,4]{4,1} cpu`", "tensor $1 &9",
     "guard 2 (tensor): meta 9 is out of range"},
    {"linear", "eq $2 True @model.py:13 forward", "eq $2 True @77",
     "guard 1 (eq): site 77 is out of range"},
    {"objects", "same_as $4 $5", "same_as $4 -", "guard 0 (same_as): needs 'other'"},
    {"objects", "len $3 3", "len $3 -3", "guard 4 (len): number -3 is negative"},
};

const Change kRecipes[] = {
    {"objects", "const 'k'", "const -", "recipe 0 (const): needs 'object'"},
    {"objects", "const 'k'", "const 'k' !1", "recipe 0 (const): has 1 children, against ''"},
    {"objects", "dict !0 !1", "dict !0", "recipe 4 (dict): has 1 children, against '(cc)'"},
    {"objects", "tuple !0 !0", "tuple !0 -", "recipe 2 (tuple): child 1 is absent"},
    {"objects", "tuple !0 !0", "tuple !0 !99", "recipe 2 (tuple): children 99 is out of range"},
    {"objects", "slice !0 !0 !0", "slice !0 !0",
     "recipe 10 (slice): has 2 children, against 'ccc'"},
    {"objects", "object Node !4 - !0 !11", "object Node !4",
     "recipe 11 (object): has 1 children, against 'oo(kc)'"},
    {"objects", "object Node !4 - !0 !11", "object Node !4 - !1 !11",
     "recipe 11 (object): child 2 is not a const"},
    {"objects", "object Node !4 - !0 !11", "object - !4 - !0 !11",
     "recipe 11 (object): needs 'object'"},
    {"objects", "cell !15", "cell !15 !15", "recipe 14 (cell): has 2 children, against '-'"},
    {"objects", "m.py:1> !0 !0 !0 -", "m.py:1> !0 !0 - -",
     "recipe 15 (function): child 2 is absent"},
    {"objects", "!19 = source $2", "!19 = source $2 value=%0",
     "recipe 19 (source): has 'value', which its kind does not use; recipe 19 (source): value 0 is "
     "out of range"},
};

const Change kEvents[] = {
    {"linear", "aten::linear(%0, %1, None)", "aten::linear(%0, %3, None)",
     "event 2 (op): operand %3 is not made before"},
    {"linear", "aten::linear(%0, %1, None)", "aten::linear(%2, {%0, {%1}}, None)",
     "event 2 (op): operand %2 is not made before; event 2 (op): a list operand is inside a list "
     "operand"},
    {"linear", "aten::linear(%0, %1, None)", "aten::linear(%0, %-, ^-)",
     "event 2 (op): operand is absent; event 2 (op): a constant operand is absent"},
    {"linear", "aten::linear(", "~70(", "event 2 (op): op 70 is out of range"},
    {"linear", "aten::linear(%0, %1, None)", "aten::linear(%0, %1, None) lengths=[-1, 2]",
     "event 2 (op): has 1 results, but lengths for 3"},
    {"linear", "aten::linear(%0, %1, None)", "aten::linear(%0, %1, None) sizes=[2]",
     "event 2 (op): has 'sizes', which its kind does not use"},
    {"linear", " from $1 = input", " = input", "event 0 (input): %0 has no source"},
    {"linear", "%3: tensor = op", "%3: tensor, %3 = op", "event 3 (op): result %3 is made again"},
    {"linear", "events\n", "events\n  return !0\n",
     "event 0 (return): value %3 is not made before; event 0 (return): a return before the last "
     "event"},
    {"linear", "objects\n", "values\n  %4: scalar dynamic\nobjects\n",
     "value 4 (scalar): has no sizes to depend on data; trace: value %4 is made by no event"},
    {"linear", "  return !0 @model.py:15 forward\n", "",
     "event 3 (op): the last event is not a return"},
    {"linear", "return !0", "return !0 !0", "event 4 (return): has 2 recipes, not one"},
    {"linear", "return !0", "return -", "event 4 (return): a recipe is absent"},
    {"linear", "return !0", "%4: object = return !0", "event 4 (return): has results"},
    {"control", "opaque !0 !1 !2 keywords=('end',) log_only", "opaque",
     "event 9 (opaque): has no callable"},
    {"control", "fork %4 1.5", "fork %3 1.5", "event 8 (fork): %3 is of kind tensor"},
    {"control", "fork %4 1.5", "fork %4 -", "event 8 (fork): needs 'expected'"},
    {"control", "fork %4 1.5", "fork - 1.5", "event 8 (fork): value is absent"},
    {"control", "sizes %1", "sizes %4",
     "event 3 (sizes): value %4 is not made before; event 3 (sizes): %4 is of kind scalar"},
    {"control", "state call 0 !6 !7", "state call 0", "event 5 (state): has 0 recipes"},
    {"control", "!3 = source $4", "!3 = source $7",
     "event 11 (opaque): result %7 is not made before"},
    {"control", "keywords=('end',) log_only", "keywords=('end',) writes_input",
     "event 9 (opaque): has 'writes_input', which its kind does not use"},
    {"objects", "setattr !19 !0 !20", "setattr !19 !0",
     "event 0 (effect): setattr has 2 recipes (object, name, value)"},
    {"objects", "setcell !14\n", "setcell !14 keywords=('k',)\n", "event 5 (effect): has keywords"},
};

std::string changeName(const testing::TestParamInfo<Change>& info) {
  return fmt::format("{}_{}", info.param.file, info.index);
}
INSTANTIATE_TEST_SUITE_P(Sources, VerifierChange, testing::ValuesIn(kSources), changeName);
INSTANTIATE_TEST_SUITE_P(Guards, VerifierChange, testing::ValuesIn(kGuards), changeName);
INSTANTIATE_TEST_SUITE_P(Recipes, VerifierChange, testing::ValuesIn(kRecipes), changeName);
INSTANTIATE_TEST_SUITE_P(Events, VerifierChange, testing::ValuesIn(kEvents), changeName);

TEST(Verifier, EmptyTrace) {
  EXPECT_EQ(verify(Trace()), std::vector<std::string>{"trace: has no return"});
}

TEST(Verifier, OperandWithForeignMembers) {
  Trace trace = parse(golden("linear")).trace;
  trace.events[2].operands[0].constant = IValueId(0);
  EXPECT_EQ(verify(trace), std::vector<std::string>{
                               "event 2 (op): an operand has members that its kind does not use"});
}

TEST(Verifier, TablesNeedARowForEachId) {
  Trace trace = parse(golden("linear")).trace;
  trace.operatorNames.clear();
  EXPECT_EQ(verify(trace), (std::vector<std::string>{"event 2 (op): op 0 is out of range",
                                                     "event 3 (op): op 1 is out of range"}));
}

}  // namespace
}  // namespace glowplug::ir
