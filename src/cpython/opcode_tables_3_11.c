// C, because the header's tables use designated initialisers that are not C++.
#define Py_BUILD_CORE 1
#include <Python.h>
#define NEED_OPCODE_TABLES
#include <internal/pycore_opcode.h>

// The opcode that a quickened one stands for.
const unsigned char* glowplugOriginalOpcodes(void) { return _PyOpcode_Deopt; }
// The inline cache entries that follow an opcode, in code units.
const unsigned char* glowplugOpcodeCaches(void) { return _PyOpcode_Caches; }
