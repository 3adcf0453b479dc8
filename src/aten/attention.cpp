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
    const bool inPlace = depth == shape.valueDepth;
    const int64_t parts[] = {shape.depth * columns, inPlace ? 0 : shape.columns * depth,
                             kTileRows * shape.depth, kTileRows * columns, kTileRows * depth};
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
  float* values;                 // [columns, depth]; empty where v can be read in place
  float* query;                  // [kTileRows, depth of q]: times the scale
  float* scores;                 // [kTileRows, columns]
  float* result;                 // [kTileRows, depth]
};

// to[c * toStride + r] = from[r * fromStride + c] of kLanes x kLanes numbers, of which `rows` and
// `columns` are there; the others become 0 where they are rows and are left out where columns.
GLOWPLUG_AVX512 void transpose(const float* from, int64_t fromStride, int64_t rows, int64_t columns,
                               float* to, int64_t toStride) {
  __m512 x[kLanes], y[kLanes];
  const __mmask16 there = upTo(columns);
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r)
    x[r] = r < rows ? _mm512_maskz_loadu_ps(there, from + r * fromStride) : _mm512_setzero_ps();
  // Within the 128-bit quarters: pairs of rows, then fours.
#pragma GCC unroll 8
  for (int r = 0; r < kLanes; r += 2) {
    y[r] = _mm512_unpacklo_ps(x[r], x[r + 1]);
    y[r + 1] = _mm512_unpackhi_ps(x[r], x[r + 1]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kLanes; r += 4) {
    const __m512d low = _mm512_castps_pd(y[r]), lowNext = _mm512_castps_pd(y[r + 2]);
    const __m512d high = _mm512_castps_pd(y[r + 1]), highNext = _mm512_castps_pd(y[r + 3]);
    x[r] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, lowNext));
    x[r + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, lowNext));
    x[r + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high, highNext));
    x[r + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high, highNext));
  }
  // x[4 i + c] holds column c, c + 4, c + 8, c + 12 of rows 4 i to 4 i + 3: the quarters change
  // places.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 a = _mm512_shuffle_f32x4(x[c], x[c + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(x[c], x[c + 4], 0xDD);
    const __m512 e = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0xDD);
    y[c] = _mm512_shuffle_f32x4(a, b, 0x88);
    y[c + 8] = _mm512_shuffle_f32x4(a, b, 0xDD);
    y[c + 4] = _mm512_shuffle_f32x4(d, e, 0x88);
    y[c + 12] = _mm512_shuffle_f32x4(d, e, 0xDD);
  }
  for (int64_t c = 0; c < std::min(columns, kLanes); ++c) _mm512_storeu_ps(to + c * toStride, y[c]);
}

// to = from * factor; what lies behind `count`, up to `all`, becomes 0.
GLOWPLUG_AVX512 void scaled(float* to, const float* from, int64_t count, float factor,
                            int64_t all) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t j = 0; j < all; j += kLanes) {
    const __m512 x = _mm512_maskz_loadu_ps(upTo(count - j), from + j);
    _mm512_mask_storeu_ps(to + j, upTo(all - j), _mm512_mul_ps(x, factors));
  }
}

// What there is of one head; rows are so many elements apart.
struct Head {
  const float *q, *k, *v, *mask;
  float* out;
  int64_t qRow, kRow, vRow, maskRow, outRow;
};

// Transposes the keys, and copies the values to where their rows are whole tiles wide.
void prepare(const AttentionShape& shape, Head& head, Scratch& scratch) {
  for (int64_t j = 0; j < scratch.columns; j += kLanes) {
    for (int64_t d = 0; d < shape.depth; d += kLanes) {
      transpose(head.k + j * head.kRow + d, head.kRow, shape.columns - j, shape.depth - d,
                scratch.keys + d * scratch.columns + j, scratch.columns);
    }
  }
  if (scratch.depth == shape.valueDepth) return;
  for (int64_t j = 0; j < shape.columns; ++j) {
    scaled(scratch.values + j * scratch.depth, head.v + j * head.vRow, shape.valueDepth, 1,
           scratch.depth);
  }
  head.v = scratch.values;
  head.vRow = scratch.depth;
}

// Rows [first, first + count); at most kTileRows.
void attendRows(const AttentionShape& shape, const Head& head, int64_t first, int64_t count,
                Scratch& scratch) {
  for (int64_t r = 0; r < kTileRows; ++r) {
    const float* from = head.q + (first + std::min(r, count - 1)) * head.qRow;
    scaled(scratch.query + r * shape.depth, from, shape.depth, shape.scale, shape.depth);
  }
  const int64_t seen =
      shape.causal ? std::min(first + count, shape.columns) : shape.columns;  // by any of them
  for (int64_t j = 0; j < seen; j += kTileColumns) {
    multiply({scratch.query, shape.depth, scratch.keys + j, scratch.columns, scratch.scores + j,
              scratch.columns, shape.depth});
  }
  float sums[kTileRows] = {};
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t row = first + std::min(r, count - 1);
    const int64_t own = shape.causal ? std::min(row + 1, shape.columns) : shape.columns;
    const float* added = head.mask == nullptr ? nullptr : head.mask + row * head.maskRow;
    sums[r] = exponentials(scratch.scores + r * scratch.columns, added, own, seen);
  }
  for (int64_t d = 0; d < scratch.depth; d += kTileColumns) {
    multiply({scratch.scores, scratch.columns, head.v + d, head.vRow, scratch.result + d,
              scratch.depth, seen});
  }
  for (int64_t r = 0; r < count; ++r) {
    const float factor = sums[r] == 0 ? 0 : 1 / sums[r];
    scaled(head.out + (first + r) * head.outRow, scratch.result + r * scratch.depth,
           shape.valueDepth, factor, shape.valueDepth);
  }
}

}  // namespace

bool hasAttention() { return __builtin_cpu_supports("avx512f") != 0; }

void runAttention(const AttentionShape& shape, const AttentionTensors& t) {
  at::parallel_for(0, shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    Scratch scratch(shape);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t batch = item / shape.heads, head = item % shape.heads;
      const auto at = [&](auto* data, const AttentionStrides& strides, int64_t number) {
        return data == nullptr ? data : data + batch * strides.batch + number * strides.head;
      };
      const int64_t key = head / shape.headsPerKey;
      Head own{at(t.q, t.qStrides, head),
               at(t.k, t.kStrides, key),
               at(t.v, t.vStrides, key),
               at(t.mask, t.maskStrides, head),
               at(t.out, t.outStrides, head),
               t.qStrides.row,
               t.kStrides.row,
               t.vStrides.row,
               t.maskStrides.row,
               t.outStrides.row};
      prepare(shape, own, scratch);
      for (int64_t row = 0; row < shape.rows; row += kTileRows)
        attendRows(shape, own, row, std::min(kTileRows, shape.rows - row), scratch);
    }
  });
}

#else

bool hasAttention() { return false; }
void runAttention(const AttentionShape&, const AttentionTensors&) {}

#endif

}  // namespace glowplug::aten
