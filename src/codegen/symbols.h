#pragma once

#include <string>
#include <vector>

#include "codegen/target.h"
#include "lower/loop_ir.h"

// What generated code calls: vector math and a few functions of C's library. Addresses are taken
// when Glowplug is linked, so nothing is looked up by name in the process, where torch has another
// SLEEF.
namespace glowplug::codegen {

struct Symbol {
  std::string name;
  const void* address;
};

// All functions that code for this machine may call.
const std::vector<Symbol>& runtimeSymbols();

// SLEEF's function for an operation on that many lanes; empty if there is none.
std::string mathSymbol(lower::Op op, bool isDouble, int lanes, const Target& target);

inline constexpr const char* kIntegerPowerSymbol = "glowplug_integer_power";

}  // namespace glowplug::codegen
