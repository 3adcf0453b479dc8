#include "cpython/decoded_code.h"

#include <opcode.h>

#include <array>
#include <new>

extern "C" {
const unsigned char* glowplugOriginalOpcodes(void);
const unsigned char* glowplugOpcodeCaches(void);
}

namespace glowplug::cpython {

namespace {

enum class Operand : uint8_t {
  None,
  Plain,
  Local,
  Name,
  GlobalName,
  Const,
  Forward,
  Backward,
  Interruptible
};

struct OpcodeRow {
  Op op = Op::Unknown;
  Operand operand = Operand::Plain;
  bool skipped = false;
};

constexpr std::array<OpcodeRow, 256> makeRows() {
  std::array<OpcodeRow, 256> rows{};
#define OPCODE(name, neutral, operand) rows[name] = {Op::neutral, Operand::operand, false};
#define SKIPPED(name) rows[name] = {Op::Unknown, Operand::None, true};
#include "cpython/opcodes_3_11.def"
  return rows;
}

constexpr std::array<OpcodeRow, 256> kRows = makeRows();

// Jumps are given code units first; their instruction's index is known only after the last one.
void setOperand(Instruction& instruction, const OpcodeRow& row, uint32_t arg, PyCodeObject* code) {
  instruction.arg = static_cast<int32_t>(arg);
  switch (row.operand) {
    case Operand::None:
    case Operand::Plain:
    case Operand::Local:
      break;
    case Operand::Name:
      instruction.object = PyTuple_GET_ITEM(code->co_names, arg);
      break;
    case Operand::GlobalName:
      instruction.object = PyTuple_GET_ITEM(code->co_names, arg >> 1);
      instruction.flag = arg & 1;
      break;
    case Operand::Const:
      instruction.object = PyTuple_GET_ITEM(code->co_consts, arg);
      break;
    case Operand::Forward:
      instruction.target = instruction.next + instruction.arg;
      break;
    case Operand::Interruptible:
      instruction.flag = true;
      [[fallthrough]];
    case Operand::Backward:
      instruction.target = instruction.next - instruction.arg;
      break;
  }
}

bool isJump(Operand operand) {
  return operand == Operand::Forward || operand == Operand::Backward ||
         operand == Operand::Interruptible;
}

}  // namespace

const char* opName(Op op) {
  static constexpr const char* kNames[] = {
#define INLINE(name) #name,
#define FAMILY(name, family) #name,
#include "cpython/instructions.def"
  };
  return kNames[static_cast<size_t>(op)];
}

DecodedCode::DecodedCode(PyCodeObject* code) {
  decode(code);
  handlers_ = parseExceptionTable(
      reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_exceptiontable)),
      static_cast<size_t>(PyBytes_GET_SIZE(code->co_exceptiontable)));
}

void DecodedCode::decode(PyCodeObject* code) {
  const unsigned char* original = glowplugOriginalOpcodes();
  const unsigned char* caches = glowplugOpcodeCaches();
  const auto* units = reinterpret_cast<const _Py_CODEUNIT*>(code->co_code_adaptive);
  const int32_t count = static_cast<int32_t>(Py_SIZE(code));
  std::vector<size_t> jumps;
  indexOfUnit_.resize(static_cast<size_t>(count) + 1);
  uint32_t extended = 0;
  uint8_t prefix = 0;
  int32_t position = 0;
  while (position < count) {
    const int opcode = original[_Py_OPCODE(units[position])];
    const uint32_t arg = extended | _Py_OPARG(units[position]);
    const int32_t next = position + 1 + caches[opcode];
    const OpcodeRow& row = kRows[static_cast<size_t>(opcode)];
    for (int32_t unit = position; unit < next && unit < count; unit++)
      indexOfUnit_[static_cast<size_t>(unit)] =
          static_cast<int32_t>(instructions_.size() + (unit > position && !row.skipped ? 1 : 0));
    extended = opcode == EXTENDED_ARG ? arg << 8 : 0;
    if (!row.skipped) {
      Instruction instruction;
      instruction.op = row.op;
      instruction.prefix = prefix;
      instruction.unit = position;
      instruction.next = next;
      setOperand(instruction, row, arg, code);
      if (row.op == Op::Unknown) instruction.arg = opcode;
      if (isJump(row.operand)) jumps.push_back(instructions_.size());
      instructions_.push_back(instruction);
    }
    prefix = opcode == EXTENDED_ARG ? static_cast<uint8_t>(prefix + 1) : uint8_t{0};
    position = next;
  }
  indexOfUnit_[static_cast<size_t>(count)] = static_cast<int32_t>(instructions_.size());
  // Running off the end is an error in the code, not a crash.
  Instruction end;
  end.op = Op::Unknown;
  end.unit = count ? count - 1 : 0;
  end.next = count;
  instructions_.push_back(end);
  for (size_t index : jumps) {
    Instruction& jump = instructions_[index];
    const bool inside = jump.target >= 0 && jump.target <= count;
    jump.target = indexOfUnit_[static_cast<size_t>(inside ? jump.target : count)];
  }
}

const ExceptionHandler* DecodedCode::handlerOf(int32_t unit) const {
  for (const ExceptionHandler& handler : handlers_) {
    if (handler.start > unit) break;
    if (unit < handler.end) return &handler;
  }
  return nullptr;
}

namespace {

void freeDecodedCode(void* decoded) { delete static_cast<DecodedCode*>(decoded); }

Py_ssize_t extraIndex() {
  static const Py_ssize_t index = _PyEval_RequestCodeExtraIndex(freeDecodedCode);
  return index;
}

}  // namespace

const DecodedCode* decodedCode(PyCodeObject* code) {
  auto* object = reinterpret_cast<PyObject*>(code);
  void* known = nullptr;
  if (_PyCode_GetExtra(object, extraIndex(), &known) < 0) return nullptr;
  if (known) return static_cast<DecodedCode*>(known);
  try {
    auto* decoded = new DecodedCode(code);
    if (_PyCode_SetExtra(object, extraIndex(), decoded) < 0) {
      delete decoded;
      return nullptr;
    }
    return decoded;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return nullptr;
  }
}

}  // namespace glowplug::cpython
