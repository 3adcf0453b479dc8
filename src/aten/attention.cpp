// Attention, head by head: the keys are transposed once a head, and for twelve rows at a time the
// scores are made, turned into probabilities and multiplied by the values, all in the second-level
// cache. Both products are tiles of twelve rows and two vectors: 24 accumulators of the 32
// registers, so that two loads serve 24 multiplications.
#include "aten/attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
// GCC's headers leave operands open on purpose that masks make unused.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define GLOWPLUG_AVX512 __attribute__((target("avx512f")))
#endif

namespace glowplug::aten {

#if defined(__x86_64__)
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kTileRows = 12;
constexpr int64_t kTileColumns = 2 * kLanes;

int64_t padded(int64_t count) { return (count + kTileColumns - 1) / kTileColumns * kTileColumns; }

struct Tile {
  const float* a;  // [kTileRows, depth]
  int64_t aStride;
  const float* b;  // [depth, kTileColumns]
  int64_t bStride;
  float* c;  // [kTileRows, kTileColumns]
  int64_t cStride;
  int64_t depth;
};

GLOWPLUG_AVX512 void multiply(const Tile& tile) {
  __m512 sums[kTileRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  const float* b = tile.b;
  for (int64_t d = 0; d < tile.depth; ++d, b += tile.bStride) {
    const __m512 left = _mm512_loadu_ps(b);
    const __m512 right = _mm512_loadu_ps(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kTileRows; ++r) {
      const __m512 a = _mm512_set1_ps(tile.a[r * tile.aStride + d]);
      sums[r][0] = _mm512_fmadd_ps(a, left, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(a, right, sums[r][1]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r) {
    _mm512_storeu_ps(tile.c + r * tile.cStride, sums[r][0]);
    _mm512_storeu_ps(tile.c + r * tile.cStride + kLanes, sums[r][1]);
  }
}

// exp(x) for x <= 0, to about 1 ulp; NaN stays NaN, and -inf gives 0. So does what would be smaller
// than the normal numbers: with others the arithmetic of some processors takes a hundred times as
// long. x = n ln 2 + r, and exp(r) by its series up to r^6, which is below 2^-24 of it for |r| <=
// ln 2 / 2.
GLOWPLUG_AVX512 __m512 expOf(__m512 x) {
  const __m512 smallest = _mm512_set1_ps(-87.33F);
  const __mmask16 normal = _mm512_cmp_ps_mask(x, smallest, _CMP_NLT_UQ);
  x = _mm512_max_ps(smallest, x);  // of a NaN: the second operand
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)), 8);
  // ln 2 in two parts, the first with zeros at the end.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 sum = _mm512_set1_ps(1.0F / 720);
  for (const float factor : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(factor));
  }
  return _mm512_maskz_scalef_ps(normal, sum, n);
}

GLOWPLUG_AVX512 __mmask16 upTo(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xFFFF : (1U << std::max<int64_t>(count, 0)) - 1);
}

// Scores of `count` columns become the exponentials of what they are below the largest; those after
// them up to `all` become 0. Returns the sum.
GLOWPLUG_AVX512 float exponentials(float* scores, const float* mask, int64_t count, int64_t all) {
  const __m512 least = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 top = least;
  for (int64_t j = 0; j < count; j += kLanes) {
    const __mmask16 lanes = upTo(count - j);
    __m512 x = _mm512_mask_loadu_ps(least, lanes, scores + j);
    if (mask != nullptr)
      x = _mm512_mask_add_ps(x, lanes, x, _mm512_maskz_loadu_ps(lanes, mask + j));
    _mm512_mask_storeu_ps(scores + j, lanes, x);
    top = _mm512_max_ps(x, top);
  }
  const float most = _mm512_reduce_max_ps(top);
  // All of them are -inf: nothing counts. Then all exponentials are 0, NaN apart.
  const __m512 base = _mm512_set1_ps(most == -std::numeric_limits<float>::infinity() ? 0 : most);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t j = 0; j < all; j += kLanes) {
    const __mmask16 lanes = upTo(count - j);
    const __m512 x = _mm512_mask_loadu_ps(least, lanes, scores + j);
    const __m512 made = _mm512_maskz_mov_ps(lanes, expOf(_mm512_sub_ps(x, base)));
    _mm512_storeu_ps(scores + j, made);
    sum = _mm512_add_ps(sum, made);
  }
  return _mm512_reduce_add_ps(sum);
}

struct Free {
  void operator()(float* memory) const { ::operator delete(memory, std::align_val_t(64)); }
};

// Memory of a thread, kept for its next call: a page of fresh memory takes longer than what is done
// with it. At most some 1.2 MB.
float* threadMemory(int64_t count) {
  static thread_local std::unique_ptr<float, Free> memory;
  static thread_local int64_t capacity = 0;
  if (count > capacity) {
    capacity = 0;
    memory.reset();
    const auto bytes = static_cast<size_t>(count) * sizeof(float);
    memory.reset(static_cast<float*>(::operator new(bytes, std::align_val_t(64))));
    capacity = count;
  }
  return memory.get();
}

// What is needed for one head.
struct Scratch {
  explicit Scratch(const AttentionShape& shape)
      : columns(padded(shape.columns)), depth(padded(shape.valueDepth)) {
    const int64_t parts[] = {shape.depth * columns, shape.columns * depth, kTileRows * shape.depth,
                             kTileRows * columns, kTileRows * depth};
    int64_t count = 0;
    for (const int64_t part : parts) count += (part + kLanes - 1) / kLanes * kLanes;
    float* next = threadMemory(count);
    float** places[] = {&keys, &values, &query, &scores, &result};
    for (size_t i = 0; i < 5; ++i) {
      *places[i] = next;
      next += (parts[i] + kLanes - 1) / kLanes * kLanes;
    }
  }

  const int64_t columns, depth;  // padded
  float* keys;                   // [depth of q, columns]: transposed
  float* values;                 // [columns, depth]
  float* query;                  // [kTileRows, depth of q]: times the scale
  float* scores;                 // [kTileRows, columns]
  float* result;                 // [kTileRows, depth]
};

void takeKeysAndValues(const AttentionShape& shape, const float* k, int64_t kRow, const float* v,
                       int64_t vRow, Scratch& scratch) {
  std::memset(scratch.keys, 0, static_cast<size_t>(shape.depth * scratch.columns) * sizeof(float));
  for (int64_t first = 0; first < shape.columns; first += kLanes) {
    const int64_t end = std::min(first + kLanes, shape.columns);
    for (int64_t d = 0; d < shape.depth; ++d) {
      float* to = scratch.keys + d * scratch.columns;
      for (int64_t j = first; j < end; ++j) to[j] = k[j * kRow + d];
    }
  }
  const auto bytes = static_cast<size_t>(shape.valueDepth) * sizeof(float);
  const auto rest = static_cast<size_t>(scratch.depth) * sizeof(float) - bytes;
  for (int64_t j = 0; j < shape.columns; ++j) {
    float* to = scratch.values + j * scratch.depth;
    std::memcpy(to, v + j * vRow, bytes);
    std::memset(to + shape.valueDepth, 0, rest);
  }
}

// Rows [first, first + count) of one head; at most kTileRows.
void attendRows(const AttentionShape& shape, int64_t first, int64_t count, const float* q,
                int64_t qRow, const float* mask, int64_t maskRow, float* out, int64_t outRow,
                Scratch& scratch) {
  for (int64_t r = 0; r < kTileRows; ++r) {
    float* to = scratch.query + r * shape.depth;
    const float* from = q + (first + std::min(r, count - 1)) * qRow;
    for (int64_t d = 0; d < shape.depth; ++d) to[d] = from[d] * shape.scale;
  }
  const int64_t seen =
      shape.causal ? std::min(first + count, shape.columns) : shape.columns;  // by any of them
  for (int64_t j = 0; j < seen; j += kTileColumns) {
    multiply({scratch.query, shape.depth, scratch.keys + j, scratch.columns, scratch.scores + j,
              scratch.columns, shape.depth});
  }
  float sums[kTileRows] = {};
  for (int64_t r = 0; r < kTileRows; ++r) {
    float* scores = scratch.scores + r * scratch.columns;
    const int64_t row = first + std::min(r, count - 1);
    const int64_t own = shape.causal ? std::min(row + 1, shape.columns) : shape.columns;
    const float* added = mask == nullptr ? nullptr : mask + row * maskRow;
    sums[r] = exponentials(scores, added, own, seen);
  }
  for (int64_t d = 0; d < scratch.depth; d += kTileColumns) {
    multiply({scratch.scores, scratch.columns, scratch.values + d, scratch.depth,
              scratch.result + d, scratch.depth, seen});
  }
  for (int64_t r = 0; r < count; ++r) {
    const float factor = sums[r] == 0 ? 0 : 1 / sums[r];
    const float* from = scratch.result + r * scratch.depth;
    float* to = out + (first + r) * outRow;
    for (int64_t d = 0; d < shape.valueDepth; ++d) to[d] = from[d] * factor;
  }
}

}  // namespace

bool hasAttention() { return __builtin_cpu_supports("avx512f") != 0; }

void runAttention(const AttentionShape& shape, const AttentionTensors& t) {
  at::parallel_for(0, shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    Scratch scratch(shape);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t batch = item / shape.heads, head = item % shape.heads;
      const auto of = [&](auto* data, const AttentionStrides& strides, int64_t number) {
        return data == nullptr ? data : data + batch * strides.batch + number * strides.head;
      };
      const auto at = [&](auto* data, const AttentionStrides& strides) {
        return of(data, strides, head);
      };
      const int64_t key = head / shape.headsPerKey;
      takeKeysAndValues(shape, of(t.k, t.kStrides, key), t.kStrides.row, of(t.v, t.vStrides, key),
                        t.vStrides.row, scratch);
      for (int64_t row = 0; row < shape.rows; row += kTileRows) {
        attendRows(shape, row, std::min(kTileRows, shape.rows - row), at(t.q, t.qStrides),
                   t.qStrides.row, at(t.mask, t.maskStrides), t.maskStrides.row,
                   at(t.out, t.outStrides), t.outStrides.row, scratch);
      }
    }
  });
}

#else

bool hasAttention() { return false; }
void runAttention(const AttentionShape&, const AttentionTensors&) {}

#endif

}  // namespace glowplug::aten
