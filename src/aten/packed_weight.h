#pragma once

#include <Python.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// A weight in the layout that oneDNN multiplies by fastest, and whether what it was made of is
// still what it was.
//
// A tensor is known by a weak reference, so its address tells it; its storage, data pointer and
// version counter tell that nobody has written to it. Writes that the counter does not see come
// from aliases without a shared counter, which Python gets from `.data`: see unversioned.h. An
// alias made by C++ code (`variable_data()`, a raw pointer) that writes without telling the counter
// is not noticed.
namespace glowplug::aten {

// Who calls packs, in the place of the first call's operator: a page of fresh memory costs more
// than the copy, and a thread that packed beside the program's own would hold those up by as much.
// So that no call stalls, packing takes a few milliseconds at first, and then as long as what ran
// without packed weights has earned it. Any thread.
class PackingTime {
 public:
  using Duration = std::chrono::nanoseconds;

  bool any() const { return left_.load(std::memory_order_relaxed) > 0; }
  void earn(std::chrono::duration<double, std::nano> time) {
    left_.fetch_add(static_cast<int64_t>(time.count()), std::memory_order_relaxed);
  }
  void spend(Duration packing) { left_.fetch_sub(packing.count(), std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> left_{20'000'000};
};

enum class Packing : uint8_t {
  Done,
  Later,  // it is written or held by others now; calls try again
  Never,  // its writers cannot be noticed, or the limit is reached
};

// A tensor that does not live for this.
class KnownTensor {
 public:
  explicit KnownTensor(PyObject* tensor);  // a Python tensor, with the GIL
  ~KnownTensor();
  KnownTensor(const KnownTensor&) = delete;
  KnownTensor& operator=(const KnownTensor&) = delete;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};
using KnownTensors = std::vector<std::shared_ptr<const KnownTensor>>;

struct LinearPacking {
  bool transposed = false;  // the weight is [in, out]
  int64_t rows = 0;         // of the left operand to expect

  // Products with other numbers of rows may have it too.
  bool operator==(const LinearPacking& other) const { return transposed == other.transposed; }
};

struct ConvolutionPacking {
  std::vector<int64_t> padding, stride, dilation, inputSizes;
  std::vector<int64_t> after;  // padding behind the input; empty: as much as before it
  int64_t groups = 1;
  // A batch norm that is part of the packed weight and bias. The sources are then: weight, running
  // mean, running variance, and bias, gamma and beta as far as they are there.
  bool normed = false, hasBias = false, hasGamma = false, hasBeta = false;
  double epsilon = 0;
  // What the call adds to the result and does with it; oneDNN may choose the layout by it.
  bool biased = false, adds = false;
  std::string activation = "none", algorithm;
  bool prepared = false;  // a primitive is kept

  bool operator==(const ConvolutionPacking&) const = default;
};

// Whether torch's library shows oneDNN's functions, so that primitives can be kept. The first call
// takes some milliseconds.
bool keepsPrimitives();

class PackedBytes;

class PackedWeight {
 public:
  PackedWeight(KnownTensors sources, LinearPacking how, std::shared_ptr<PackedBytes> budget);
  PackedWeight(KnownTensors sources, ConvolutionPacking how, std::shared_ptr<PackedBytes> budget);
  ~PackedWeight();
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  // Whether it can be packed, now. On any thread, without the GIL.
  Packing possible() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Packed weights of one entry: what is equal is packed once, as long as a recording has it, and all
// together take no more than `limit` bytes. Any thread.
class PackedWeights {
 public:
  explicit PackedWeights(uint64_t limit);
  ~PackedWeights();
  std::shared_ptr<PackedWeight> get(const KnownTensors& sources, const LinearPacking& how);
  std::shared_ptr<PackedWeight> get(const KnownTensors& sources, const ConvolutionPacking& how);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct PackedCounts {
  uint64_t bytes = 0;    // now, of all entries
  uint64_t refused = 0;  // weights that were not packed because the limit was reached
  uint64_t failed = 0;   // weights that oneDNN did not pack, or not convolve with
};
PackedCounts packedCounts();
void resetPackedCounts();

}  // namespace glowplug::aten
