#pragma once

#include <cstdint>

// softmax(q k^T * scale + mask) v for float32 on processors with AVX-512, where ATen's kernel
// makes its products with MKL in small blocks: 197 rows of 64, 12 heads take that 0.85 ms.
namespace glowplug::aten {

struct AttentionShape {
  int64_t batch = 0, heads = 0, rows = 0, columns = 0, depth = 0, valueDepth = 0;
  int64_t headsPerKey = 1;  // so many heads in a row share keys and values
  bool causal = false;      // column j counts for row i if j <= i
  float scale = 1;
};

// In elements, for batch, head, row; along the last dimension it is 1.
struct AttentionStrides {
  int64_t batch = 0, head = 0, row = 0;
};

struct AttentionTensors {
  const float *q, *k, *v;
  const float* mask;  // added to the products; may be null
  float* out;
  AttentionStrides qStrides, kStrides, vStrides, maskStrides, outStrides;
};

// Whether this processor has what it takes.
bool hasAttention();

// Through at::parallel_for; the result does not depend on the number of threads. A row that
// nothing counts for is 0, as with ATen.
void runAttention(const AttentionShape& shape, const AttentionTensors& tensors);

}  // namespace glowplug::aten
