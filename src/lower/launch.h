#pragma once

#include <cstdint>

#include "lower/convert.h"

// How a nest's machine code, or the interpreter in its place, is called.
namespace glowplug::lower {

// What went wrong in a kernel. The kernel runs on with harmless values; what it wrote is of no use.
// Threads may write at the same time: which of several errors is seen is open.
struct KernelError {
  enum Kind : int64_t { None = 0, IndexOutOfRange = 1, DivisionByZero = 2 };
  int64_t kind = None;
  int64_t index = 0;   // IndexOutOfRange: the index as it was given
  int64_t extent = 0;  // IndexOutOfRange: what it should have been below
};

struct KernelArguments {
  void* const* buffers;   // one for each of the kernel's buffers; those of Locals are not looked at
  const int64_t* sizes;   // in the kernel's order
  const Number* scalars;  // in the kernel's order
  KernelError* error;
};

// Runs items [begin, end) of one nest. Calls for disjoint ranges may run at the same time, each
// with its own scratch: localBytes() (lower/cost.h) bytes, aligned to 64. The same ranges give the
// same bits. Sines, cosines and tangents of other ranges may differ in the last place, as the
// vector math takes a shorter way where it can for all lanes: callers choose ranges that do not
// depend on the number of threads.
using NestFunction = void (*)(const KernelArguments* arguments, int64_t begin, int64_t end,
                              void* scratch);

}  // namespace glowplug::lower
