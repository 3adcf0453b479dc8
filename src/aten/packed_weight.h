#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

// A weight of a linear layer in the layout that oneDNN multiplies by fastest, and whether it is
// still the weight that was packed.
//
// The tensor is known by a weak reference, so its address tells it; its storage, data pointer and
// version counter tell that nobody has written to it. Writes that the counter does not see come
// from aliases without a shared counter, which Python gets from `.data`: see unversioned.h. An
// alias made by C++ code (`variable_data()`, a raw pointer) that writes without telling the counter
// is not noticed.
namespace glowplug::aten {

enum class Packing : uint8_t {
  Done,
  Later,  // it is written or held by others now; calls try again
  Never,  // its writers cannot be noticed
};

class PackedWeight {
 public:
  // `tensor`: a Python tensor, with the GIL; [out, in], or [in, out] if transposed. `rows` of the
  // left operand to expect.
  PackedWeight(PyObject* tensor, bool transposed, int64_t rows);
  ~PackedWeight();
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  // On any thread, without the GIL.
  Packing pack();

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::aten
