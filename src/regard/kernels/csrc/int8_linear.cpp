// The int8 matrix product of decoding and training: xWᵀ + b with rows of x and weights rounded to int8.
//
// Every row of x has a scale of its own, so that no row changes another; sums are exact. The weights are packed so that
// one load brings four inputs' weights for each of 16 outputs. There is a kernel for AVX2 and one for AVX-512 with VNNI; the
// level chooses. AVX2 adds products in 16 bits: with rows in 7 bits, four of them fit, and that makes it half as fast again
// as with 8 bits and two.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "errors.hpp"
#include "int8.hpp"
#include "level.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kMinProducts = 20'000'000;  // for each thread; for fewer, waking one up costs more than it saves

constexpr int64_t kTileRows = 60;          // that pass by all weights together: they stay in the nearest cache
constexpr int64_t kTileOutputs = 1 << 16;  // their outputs should stay in the next one

struct Product {
  const uint8_t* rows;      // R × inputs, without a sign: `zero` stands for zero
  const float* row_scales;  // R
  int64_t R, inputs;        // inputs: D, rounded up
  const int8_t* packed;
  const float* scales;
  const int32_t* sums;  // for what the zeros add
  int32_t zero;
  const float* bias;
  int64_t X;
  float* y;  // R × X
  bool add;  // to what is in y already
};

REGARD_AVX2 inline __m256i load_weights(const int8_t* weights) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
}

// Groups of M rows, from row to end, for the outputs of a block.
template <int M>
REGARD_AVX2 void rows_avx2(const Product& p, int64_t row, int64_t end, int64_t block) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i mask[2], start[2];  // of eight outputs each
  __m256 scales[2], bias[2];
  for (int half = 0; half < 2; ++half) {
    const int64_t x = block * kBlockOutputs + 8 * half;
    mask[half] = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(p.X - x)), IntVec::iota().v);
    const __m256i sums = _mm256_maskload_epi32(p.sums + x, mask[half]);
    start[half] = _mm256_mullo_epi32(sums, _mm256_set1_epi32(-p.zero));
    scales[half] = _mm256_maskload_ps(p.scales + x, mask[half]);
    bias[half] = p.bias ? _mm256_maskload_ps(p.bias + x, mask[half]) : _mm256_setzero_ps();
  }
  const bool full = p.X - block * kBlockOutputs >= kBlockOutputs;  // storing under a mask takes many times as long
  for (; row < end; row += M) {
    const int8_t* w = p.packed + block * p.inputs * kBlockOutputs;
    const uint8_t* rows = p.rows + row * p.inputs;
    __m256i sums[M][2];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sums[m][0] = start[0], sums[m][1] = start[1];
    for (int64_t d = 0; d < p.inputs; d += 2 * kQuad, w += 2 * kQuad * kBlockOutputs) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        int32_t quads[2];
        std::memcpy(quads, rows + m * p.inputs + d, sizeof quads);
        const __m256i x = _mm256_set1_epi32(quads[0]), z = _mm256_set1_epi32(quads[1]);
        // Four products are added in 16 bits: 4 · 127 · 64 fits.
        const __m256i four =
            _mm256_add_epi16(_mm256_maddubs_epi16(x, load_weights(w)), _mm256_maddubs_epi16(z, load_weights(w + 64)));
        const __m256i others =
            _mm256_add_epi16(_mm256_maddubs_epi16(x, load_weights(w + 32)), _mm256_maddubs_epi16(z, load_weights(w + 96)));
        sums[m][0] = _mm256_add_epi32(sums[m][0], _mm256_madd_epi16(four, ones));
        sums[m][1] = _mm256_add_epi32(sums[m][1], _mm256_madd_epi16(others, ones));
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const __m256 row_scale = _mm256_set1_ps(p.row_scales[row + m]);
      float* y = p.y + (row + m) * p.X + block * kBlockOutputs;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256 value = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums[m][half]), scales[half]), row_scale);
        if (p.bias) value = _mm256_add_ps(value, bias[half]);
        if (p.add) value = _mm256_add_ps(value, _mm256_maskload_ps(y + 8 * half, mask[half]));
        if (full)
          _mm256_storeu_ps(y + 8 * half, value);
        else
          _mm256_maskstore_ps(y + 8 * half, mask[half], value);
      }
    }
  }
}

template <int M>
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) void rows_vnni(const Product& p, int64_t row, int64_t end,
                                                                               int64_t block) {
  const int8_t* weights = p.packed + block * p.inputs * kBlockOutputs;
  const int64_t first = block * kBlockOutputs;
  const __mmask16 mask = first + kBlockOutputs <= p.X ? 0xffff : (1u << (p.X - first)) - 1;
  const __m512i sums = _mm512_maskz_loadu_epi32(mask, p.sums + first);
  const __m512i start = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-p.zero));
  const __m512 scales = _mm512_maskz_loadu_ps(mask, p.scales + first);
  const __m512 bias = p.bias ? _mm512_maskz_loadu_ps(mask, p.bias + first) : _mm512_setzero_ps();
  for (; row < end; row += M) {
    __m512i total[M];
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) total[m] = start;
    for (int64_t d = 0; d < p.inputs; d += kQuad) {
      const __m512i w = _mm512_loadu_si512(weights + d * kBlockOutputs);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        int32_t quad;
        std::memcpy(&quad, p.rows + (row + m) * p.inputs + d, sizeof quad);
        total[m] = _mm512_dpbusd_epi32(total[m], _mm512_set1_epi32(quad), w);
      }
    }
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(total[m]), scales);
      value = _mm512_mul_ps(value, _mm512_set1_ps(p.row_scales[row + m]));
      float* y = p.y + (row + m) * p.X + first;
      if (p.bias) value = _mm512_add_ps(value, bias);
      if (p.add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, y));
      _mm512_mask_storeu_ps(y, mask, value);
    }
  }
}

using Rows = void (*)(const Product&, int64_t row, int64_t end, int64_t block);

struct Kernel {
  int most;           // rows at once: as many as there are registers for
  Rows by_count[13];  // for 1, 2, … rows
};

constexpr Kernel kAvx2Kernel = {3, {nullptr, rows_avx2<1>, rows_avx2<2>, rows_avx2<3>}};
constexpr Kernel kVnniKernel = {12, {nullptr, rows_vnni<1>, rows_vnni<2>, rows_vnni<3>, rows_vnni<4>, rows_vnni<5>,
                               rows_vnni<6>, rows_vnni<7>, rows_vnni<8>, rows_vnni<9>, rows_vnni<10>, rows_vnni<11>,
                               rows_vnni<12>}};

void blocks(const Product& p, const Kernel& kernel, int64_t first, int64_t last) {
  const int64_t fitting = std::min(kTileRows, kTileOutputs / p.X) / kernel.most * kernel.most;
  const int64_t size = std::max<int64_t>(kernel.most, fitting);
  for (int64_t tile = 0; tile < p.R; tile += size) {
    const int64_t end = std::min(p.R, tile + size);
    for (int64_t block = first; block < last; ++block)
      for (int64_t row = tile, next; row < end; row = next) {
        const int64_t left = end - row, most = kernel.most, rest = left % most;
        if (rest == 0 || left > 2 * most) {
          next = row + (rest == 0 ? left : left - rest - most);
          kernel.by_count[most](p, row, next, block);
        } else {  // what is left over is better shared as two and two than as three and one
          const int64_t count = left < most ? left : (left + 1) / 2;
          next = row + count;
          kernel.by_count[count](p, row, next, block);
        }
      }
  }
}

}  // namespace

void multiply(const LinearPointers& weights, const QuantizedRows& x, int64_t R, int64_t threads, float* y, bool add) {
  if (R == 0 || weights.X == 0) return;
  const int64_t inputs = round_up(weights.D, kInputStep);
  const Kernel& kernel = level() == kVnni ? kVnniKernel : kAvx2Kernel;
  const Product product{x.rows.data(), x.scales.data(),  R,            inputs,    weights.packed, weights.scales,
                        weights.sums,  row_zero_point(), weights.bias, weights.X, y,              add};
  if (R * inputs * weights.X < kMinProducts) threads = 1;
  parallel_for(round_up(weights.X, kBlockOutputs) / kBlockOutputs, threads,
               [&](int64_t first, int64_t last) { blocks(product, kernel, first, last); });
}

void multiply(const LinearPointers& weights, const float* x, int64_t R, int64_t threads, QuantizedRows& workspace, float* y) {
  workspace.quantize({x, weights.D, 1}, R, weights.D, Rounding::kNearest);
  multiply(weights, workspace, R, threads, y);
}

}  // namespace regard

extern "C" {

int64_t regard_packed_size(int64_t X, int64_t D) { return regard::packed_size(X, D); }

// Pack int8 weights, X × D.
int regard_pack(const int8_t* weights, int64_t X, int64_t D, int8_t* packed, int32_t* sums) {
  using namespace regard;
  return guarded([=] {
    require(X >= 0 && D >= 0, "sizes must not be negative");
    const int64_t inputs = round_up(D, kInputStep);
    std::fill_n(packed, packed_size(X, D), 0);
    for (int64_t x = 0; x < X; ++x) {
      int8_t* block = packed + x / kBlockOutputs * inputs * kBlockOutputs;
      sums[x] = 0;
      for (int64_t d = 0; d < D; ++d) {
        block[d / kQuad * kQuad * kBlockOutputs + x % kBlockOutputs * kQuad + d % kQuad] = weights[x * D + d];
        sums[x] += weights[x * D + d];
      }
    }
  });
}

// Pack some of the outputs of a packed matrix by themselves.
int regard_select_outputs(const regard::LinearPointers* all, const int32_t* outputs, int64_t count, int8_t* packed,
                          float* scales, int32_t* sums, float* bias) {
  using namespace regard;
  return guarded([=] {
    require(count >= 0, "the number of outputs must not be negative");
    for (int64_t i = 0; i < count; ++i)
      require(0 <= outputs[i] && outputs[i] < all->X, "an output that the matrix does not have was selected");
    const int64_t inputs = round_up(all->D, kInputStep);
    std::fill_n(packed, packed_size(count, all->D), 0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t x = outputs[i];
      const int8_t* from = all->packed + x / kBlockOutputs * inputs * kBlockOutputs + x % kBlockOutputs * kQuad;
      int8_t* to = packed + i / kBlockOutputs * inputs * kBlockOutputs + i % kBlockOutputs * kQuad;
      for (int64_t at = 0; at < inputs * kBlockOutputs; at += kQuad * kBlockOutputs) std::copy_n(from + at, kQuad, to + at);
      scales[i] = all->scales[x];
      sums[i] = all->sums[x];
      if (bias) bias[i] = all->bias[x];
    }
  });
}

// For N rows of each of B sentences, the outputs that are selected for it, each in its own place of W.
int regard_shortlist_linear(const regard::LinearPointers* selected, const int32_t* const* outputs, const float* x, int64_t B,
                            int64_t N, int64_t W, int64_t threads, float* y) {
  using namespace regard;
  const auto multiply_some = [=](int64_t first, int64_t last) {
    thread_local QuantizedRows workspace;
    thread_local std::vector<float> few;
    for (int64_t b = first; b < last; ++b) {
      const LinearPointers& weights = selected[b];
      const float* found = grown(few, N * weights.X);
      multiply(weights, x + b * N * weights.D, N, 1, workspace, few.data());
      for (int64_t n = 0; n < N; ++n)
        for (int64_t i = 0; i < weights.X; ++i) y[(b * N + n) * W + outputs[b][i]] = found[n * weights.X + i];
    }
  };
  return guarded([&] {
    require(B >= 0 && N >= 0 && W >= 0, "sizes must not be negative");
    parallel_for(B, threads, multiply_some);
  });
}

int regard_linear(const regard::LinearPointers* weights, const float* x, int64_t R, int64_t threads, float* y) {
  using namespace regard;
  thread_local QuantizedRows workspace;
  return guarded([&] {
    require(R >= 0, "the number of rows must not be negative");
    multiply(*weights, x, R, threads, workspace, y);
  });
}
}
