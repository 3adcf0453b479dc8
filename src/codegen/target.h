#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What machine code is generated for: everything that the emitter asks about a machine.
namespace glowplug::codegen {

enum class Isa : uint8_t {
#define TARGET(enumerator, name, triple, cpu, lanes, vectors, scalars, half, meaning) enumerator,
#include "codegen/targets.def"
#undef TARGET
};

struct Target {
  Isa isa;
  const char* name;
  const char* triple;
  const char* cpu;
  int lanes;  // elements of a vector, of any dtype
  const char* vectorMath;
  const char* scalarMath;
  bool convertsHalf;  // has instructions between f16 and f32

  int vectorBits() const { return lanes * 32; }

  // The best one that this machine runs; nothing on a machine without one.
  static std::optional<Target> host();
  static std::optional<Target> named(std::string_view name);
  static std::vector<Target> all();
  bool runsHere() const;
};

}  // namespace glowplug::codegen
