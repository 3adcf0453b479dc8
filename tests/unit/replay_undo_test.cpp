// Effects are put back as they were, and done again as they had become.

#include <gtest/gtest.h>

#include "python_support.h"
#include "replay/undo.h"

namespace glowplug::replay {
namespace {

using cpython::Ref;
using glowplug::testing::Python;
using ir::EffectKind;

struct Case {
  EffectKind kind;
  const char* operands;  // a tuple: what the effect is about
  const char* change;    // what it does, and what is done after it
  const char* seen;      // what is looked at
};

TEST(UndoLog, PutsBackAndDoesAgain) {
  Python::run(R"(
class Thing: pass
class Slotted:
    __slots__ = ('a',)
class Counted:
    count = 1
def closure():
    value = [1]
    def inner(): return value
    return inner.__closure__[0]
)");
  const Case cases[] = {
      {EffectKind::SetAttr, "(o, 'a', 5)", "o.a = 5; o.b = 6", "sorted(vars(o).items())"},
      {EffectKind::DelAttr, "(o, 'a')", "del o.a", "sorted(vars(o).items())"},
      {EffectKind::SetAttr, "(s, 'a', 5)", "s.a = 5", "s.a"},
      {EffectKind::SetAttr, "(Counted, 'count', 5)", "Counted.count = 5", "Counted.count"},
      {EffectKind::SetItem, "(d, 'x', 1)", "d['x'] = 1; d['y'] = 2", "list(d.items())"},
      {EffectKind::DelItem, "(d, 'k')", "del d['k']", "list(d.items())"},
      {EffectKind::SetItem, "(l, 0, 9)", "l[0] = 9; l.append(3)", "l"},
      {EffectKind::CallMethod, "(list.append, l, 9)", "l.append(9)", "l"},
      {EffectKind::CallMethod, "(set.add, t, 9)", "t.add(9)", "sorted(t)"},
      {EffectKind::CallMethod, "(deque.append, q, 9)", "q.append(9)", "list(q)"},
      {EffectKind::CallMethod, "(OrderedDict.move_to_end, od, 'a')", "od.move_to_end('a')",
       "list(od)"},
      {EffectKind::SetCell, "(c, 7)", "c.cell_contents = 7", "c.cell_contents"},
  };
  for (const Case& at : cases) {
    Python::run(
        "o = Thing(); o.a = 1; s = Slotted(); s.a = 2; Counted.count = 1; d = {'k': 0, 'z': 1}\n"
        "l = [1, 2]; t = {1}; q = deque([1]); c = closure()\n"
        "od = OrderedDict(a=1, b=2)");
    std::string before = Python::text(at.seen);
    ir::Event event;
    event.kind = ir::EventKind::Effect;
    event.effect = at.kind;
    std::vector<Ref> operands;
    Ref tuple = Python::eval(at.operands);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); i++)
      operands.push_back(Ref::borrow(PyTuple_GET_ITEM(tuple.get(), i)));
    cpython::UndoLog log;
    EXPECT_TRUE(log.empty());
    ASSERT_TRUE(note(log, event, operands)) << at.change;
    Python::run(at.change);
    std::string after = Python::text(at.seen);
    EXPECT_NE(before, after) << at.change;
    ASSERT_TRUE(log.undo()) << at.change;
    EXPECT_EQ(Python::text(at.seen), before) << at.change;
    ASSERT_TRUE(log.redo()) << at.change;
    EXPECT_EQ(Python::text(at.seen), after) << at.change;
  }
}

}  // namespace
}  // namespace glowplug::replay
