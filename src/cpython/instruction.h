#pragma once

#include <Python.h>

#include <cstdint>

namespace glowplug::cpython {

// What an instruction does, whatever the version of CPython calls it. See instructions.def.
enum class Op : uint8_t {
#define INLINE(name) name,
#define FAMILY(name, family) name,
#include "cpython/instructions.def"
};

const char* opName(Op op);

// One decoded instruction: extended arguments are folded in, names and constants are looked up,
// jumps name the instruction they lead to.
struct Instruction {
  Op op;
  bool flag = false;
  uint8_t prefix = 0;  // how many extended arguments stand before it
  int32_t arg = 0;
  int32_t unit = 0;  // where it is in the code, in code units
  int32_t next = 0;  // the unit after it and its inline caches
  union {
    PyObject* object = nullptr;  // borrowed from the code object
    int32_t target;              // index of an instruction
  };
};

}  // namespace glowplug::cpython
