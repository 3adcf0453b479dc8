#include "cpython/decoded_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cpython/ref.h"

namespace glowplug::cpython {
namespace {

// The code of `function` as the source text defines it.
Ref codeOf(const std::string& source) {
  Ref globals = Ref::steal(PyDict_New());
  Ref ran = Ref::steal(PyRun_String(source.c_str(), Py_file_input, globals.get(), globals.get()));
  EXPECT_TRUE(ran) << source;
  PyObject* function = PyDict_GetItemString(globals.get(), "function");
  return Ref::borrow(PyFunction_GetCode(function));
}

PyCodeObject* code(const Ref& ref) { return reinterpret_cast<PyCodeObject*>(ref.get()); }

std::vector<std::string> names(const DecodedCode& decoded) {
  std::vector<std::string> result;
  // The last one only guards the end.
  for (size_t i = 0; i + 1 < decoded.size(); i++) result.push_back(opName(decoded.at(i).op));
  return result;
}

const Instruction& find(const DecodedCode& decoded, Op op) {
  for (size_t i = 0; i < decoded.size(); i++)
    if (decoded.at(i).op == op) return decoded.at(i);
  ADD_FAILURE() << "no " << opName(op);
  return decoded.at(0);
}

std::string text(PyObject* unicode) { return PyUnicode_AsUTF8(unicode); }

TEST(DecodedCode, OperandsAreLookedUp) {
  Ref ref = codeOf("def function(a):\n  return a.name + glob(7)\n");
  DecodedCode decoded(code(ref));
  EXPECT_EQ(names(decoded),
            (std::vector<std::string>{"Resume", "LoadFast", "LoadAttr", "LoadGlobal", "LoadConst",
                                      "Call", "Binary", "ReturnValue"}));
  EXPECT_EQ(text(find(decoded, Op::LoadAttr).object), "name");
  EXPECT_EQ(text(find(decoded, Op::LoadGlobal).object), "glob");
  EXPECT_TRUE(find(decoded, Op::LoadGlobal).flag);  // a null is pushed below, for the call
  EXPECT_EQ(PyLong_AsLong(find(decoded, Op::LoadConst).object), 7);
  EXPECT_EQ(find(decoded, Op::Call).arg, 1);
}

TEST(DecodedCode, JumpsLeadToInstructions) {
  Ref ref = codeOf("def function(a):\n  while a:\n    a = a.next\n  return 1\n");
  DecodedCode decoded(code(ref));
  const Instruction& exit = find(decoded, Op::PopJumpIfFalse);
  EXPECT_FALSE(exit.flag);
  EXPECT_EQ(decoded.at(exit.target).op, Op::LoadConst);
  const Instruction& back = find(decoded, Op::PopJumpIfTrue);
  EXPECT_TRUE(back.flag);  // pending work is looked at on the way back
  EXPECT_EQ(decoded.at(back.target).op, Op::LoadFast);
  EXPECT_LT(decoded.at(back.target).unit, back.unit);
}

TEST(DecodedCode, ExtendedArgumentsAreFoldedIn) {
  std::string source = "def function():\n";
  for (int i = 0; i < 300; i++) source += "  x = " + std::to_string(i + 1000) + "\n";
  Ref ref = codeOf(source + "  return x\n");
  DecodedCode decoded(code(ref));
  int consts = 0;
  for (size_t i = 0; i < decoded.size(); i++) {
    const Instruction& instruction = decoded.at(i);
    if (instruction.op != Op::LoadConst) continue;
    EXPECT_EQ(PyLong_AsLong(instruction.object), 1000 + consts++);
    EXPECT_EQ(instruction.prefix, instruction.arg > 255 ? 1 : 0);
  }
  EXPECT_EQ(consts, 300);
}

TEST(DecodedCode, UnitsMapToTheirInstructionOrTheNext) {
  Ref ref = codeOf("def function(a, b):\n  return a + b\n");
  DecodedCode decoded(code(ref));
  const Instruction& binary = find(decoded, Op::Binary);
  EXPECT_EQ(binary.next, binary.unit + 2);  // one inline cache entry
  EXPECT_EQ(decoded.atUnit(binary.unit), &binary);
  EXPECT_EQ(decoded.atUnit(binary.unit + 1)->op, Op::ReturnValue);
  EXPECT_EQ(decoded.atUnit(static_cast<int32_t>(Py_SIZE(ref.get())))->op, Op::Unknown);
}

TEST(DecodedCode, HandlersCoverTheirBlock) {
  Ref ref = codeOf(
      "def function(a):\n  try:\n    a.risky()\n  except ValueError:\n    return 1\n  return 2\n");
  DecodedCode decoded(code(ref));
  const ExceptionHandler* handler = decoded.handlerOf(find(decoded, Op::LoadMethod).unit);
  ASSERT_TRUE(handler);
  EXPECT_EQ(decoded.atUnit(handler->target)->op, Op::PushExcInfo);
  EXPECT_EQ(handler->depth, 0);
  EXPECT_FALSE(decoded.handlerOf(find(decoded, Op::Resume).unit));
  // Inside the handler another one restores the exception that was handled before.
  const ExceptionHandler* cleanup = decoded.handlerOf(find(decoded, Op::CheckExcMatch).unit);
  ASSERT_TRUE(cleanup);
  EXPECT_TRUE(cleanup->pushUnit);
}

TEST(DecodedCode, QuickenedCodeDecodesTheSame) {
  Ref globals = Ref::steal(PyDict_New());
  Ref ran =
      Ref::steal(PyRun_String("def function(n):\n"
                              "  total = 0\n"
                              "  for i in range(n):\n"
                              "    total = total + i * 2\n"
                              "    if total == 3: total = total - 1\n"
                              "  return total\n",
                              Py_file_input, globals.get(), globals.get()));
  ASSERT_TRUE(ran);
  PyObject* function = PyDict_GetItemString(globals.get(), "function");
  Ref ref = Ref::borrow(PyFunction_GetCode(function));
  auto* bytes = reinterpret_cast<const uint8_t*>(code(ref)->co_code_adaptive);
  const size_t size = static_cast<size_t>(Py_SIZE(ref.get())) * sizeof(_Py_CODEUNIT);
  std::vector<uint8_t> before(bytes, bytes + size);
  DecodedCode cold(code(ref));
  for (int i = 0; i < 100; i++) Py_XDECREF(PyObject_CallFunction(function, "i", 50));
  ASSERT_NE(std::vector<uint8_t>(bytes, bytes + size), before) << "CPython has not specialised it";
  DecodedCode warm(code(ref));
  ASSERT_EQ(names(warm), names(cold));
  for (size_t i = 0; i < cold.size(); i++) {
    EXPECT_EQ(warm.at(i).unit, cold.at(i).unit);
    EXPECT_EQ(warm.at(i).arg, cold.at(i).arg);
  }
}

TEST(DecodedCode, IsKeptWithTheCodeObject) {
  Ref first = codeOf("def function():\n  return 1\n");
  const DecodedCode* decoded = decodedCode(code(first));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decodedCode(code(first)), decoded);
  // A code object that takes a dead one's address has its own.
  for (int i = 0; i < 50; i++) {
    Ref other = codeOf("def function():\n  return [" + std::to_string(i) + "]\n");
    const DecodedCode* fresh = decodedCode(code(other));
    ASSERT_TRUE(fresh);
    EXPECT_EQ(PyLong_AsLong(find(*fresh, Op::LoadConst).object), i);
  }
}

// Every instruction of the standard library's functions is known.
TEST(DecodedCode, KnowsAllOpcodes) {
  Ref globals = Ref::steal(PyDict_New());
  Ref ran = Ref::steal(PyRun_String(
      "import types, asyncio.tasks, asyncio.streams, dataclasses, typing, contextlib, inspect\n"
      "codes = []\n"
      "def add(code):\n"
      "  codes.append(code)\n"
      "  for const in code.co_consts:\n"
      "    if isinstance(const, types.CodeType): add(const)\n"
      "for module in (asyncio.tasks, asyncio.streams, dataclasses, typing, contextlib, inspect):\n"
      "  with open(module.__file__) as source: add(compile(source.read(), 'x', 'exec'))\n",
      Py_file_input, globals.get(), globals.get()));
  ASSERT_TRUE(ran);
  PyObject* codes = PyDict_GetItemString(globals.get(), "codes");
  ASSERT_GT(PyList_GET_SIZE(codes), 500);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(codes); i++) {
    DecodedCode decoded(reinterpret_cast<PyCodeObject*>(PyList_GET_ITEM(codes, i)));
    const std::vector<std::string> found = names(decoded);
    EXPECT_EQ(std::count(found.begin(), found.end(), "Unknown"), 0);
  }
}

}  // namespace
}  // namespace glowplug::cpython
