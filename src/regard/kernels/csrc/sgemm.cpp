// y = xWᵀ + b in float32 with AVX-512, for AMD's processors, on which MKL does not use it.
//
// Rows and weights are packed in panels, so that for each input the numbers of 14 rows, and of 32 outputs, lie side by side.
// A tile of 14 × 32 sums stays in registers while 512 inputs pass by; the sums of these are added up. Which inputs go together
// does not depend on what is computed beside them.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "errors.hpp"
#include "level.hpp"
#include "structs.hpp"
#include "threads.hpp"

#define REGARD_AVX512 __attribute__((target("avx512f")))

namespace regard {
namespace {

constexpr int64_t kMinProducts = 500'000;  // for each thread; for fewer, waking one up costs more than it saves
constexpr int64_t kMinPacked = 1 << 15;    // likewise, of weights

constexpr int64_t kRegister = 16;                 // floats
constexpr int64_t kRows = 14;                     // of a tile: with 32 outputs, as many sums as there are registers for
constexpr int64_t kOutputs = 2 * kRegister;       // of a tile
constexpr int64_t kDepth = 512;                   // inputs that pass by at a time
constexpr int64_t kPackedInputs = 16;             // inputs of columns that are packed at a time
constexpr int64_t kMaxRows = 128 * kRows;         // packed at a time, by each thread
constexpr int64_t kMaxOutputs = 256 * kOutputs;   // packed at a time
constexpr int64_t kManyWeights = 1 << 20;         // as many depths are packed at a time as do not pass this
constexpr int64_t kBlockOutputs = 8 * kOutputs;   // their weights stay in the second cache while all rows pass by

REGARD_AVX512 inline __mmask16 mask_of(int64_t count) {
  return count >= kRegister ? 0xffff : count <= 0 ? 0 : (1u << count) - 1;
}

REGARD_AVX512 inline __m512 low_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

REGARD_AVX512 inline __m512 high_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// Sixteen rows of sixteen numbers: columns become rows.
REGARD_AVX512 inline void transpose(__m512 square[kRegister]) {
  __m512 s[16], t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_ps(square[i], square[i + 1]);
    s[i + 1] = _mm512_unpackhi_ps(square[i], square[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    t[i] = low_pairs(s[i], s[i + 2]);
    t[i + 1] = high_pairs(s[i], s[i + 2]);
    t[i + 2] = low_pairs(s[i + 1], s[i + 3]);
    t[i + 3] = high_pairs(s[i + 1], s[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // now by fours: the even ones of two registers, and the odd ones
    s[i] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
    s[i + 4] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    s[i + 8] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
    s[i + 12] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    square[i] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0x88);
    square[i + 8] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0xdd);
  }
}

// Pack a panel of rows that lie in memory one after the other. What is stored beyond a panel's width is in the place of the
// next input, which comes later, or behind the last.
template <int wide>
REGARD_AVX512 void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t D, float* to) {
  for (int64_t r = 0; r < wide; r += kRegister)
    for (int64_t d = 0; d < D; d += kRegister) {
      const int64_t inputs = std::min(kRegister, D - d);
      __m512 square[kRegister];
#pragma GCC unroll 16
      for (int i = 0; i < kRegister; ++i)
        square[i] = i < rows - r ? _mm512_maskz_loadu_ps(mask_of(inputs), x + (r + i) * stride + d) : _mm512_setzero_ps();
      transpose(square);
      for (int64_t i = 0; i < inputs; ++i) _mm512_storeu_ps(to + (d + i) * wide + r, square[i]);
    }
}

// Where the panel of a row starts: each takes whole registers of rows, so that no other is written to.
template <int wide>
constexpr int64_t panel_start(int64_t row, int64_t D) {
  constexpr int64_t width = (wide + kRegister - 1) / kRegister * kRegister;
  return row / wide * width * D;
}

// Pack rows that are columns in memory, and add each up if asked. Some inputs at a time, so that the lines of the cache in
// which two panels meet are still there when the second is packed.
template <int wide>
REGARD_AVX512 void pack_columns(const float* x, int64_t stride, int64_t rows, int64_t D, float* to, float* sums) {
  constexpr int kRegisters = (wide + kRegister - 1) / kRegister;
  for (int64_t first = 0; first < D; first += kPackedInputs)
    for (int64_t panel = 0; panel < rows; panel += wide) {
      const int64_t width = std::min<int64_t>(wide, rows - panel);
      __mmask16 mask[kRegisters];
      __m512 totals[kRegisters];
#pragma GCC unroll 2
      for (int i = 0; i < kRegisters; ++i) {
        mask[i] = mask_of(width - i * kRegister);
        totals[i] = sums ? _mm512_maskz_loadu_ps(mask[i], sums + panel + i * kRegister) : _mm512_setzero_ps();
      }
      float* place = to + panel_start<wide>(panel, D) + first * wide;
      const float* input = x + first * stride + panel;
      for (int64_t d = first; d < std::min(D, first + kPackedInputs); ++d, input += stride, place += wide)
#pragma GCC unroll 2
        for (int i = 0; i < kRegisters; ++i) {
          const __m512 some = _mm512_maskz_loadu_ps(mask[i], input + i * kRegister);
          _mm512_storeu_ps(place + i * kRegister, some);
          totals[i] = _mm512_add_ps(totals[i], some);
        }
      if (sums)
        for (int i = 0; i < kRegisters; ++i) _mm512_mask_storeu_ps(sums + panel + i * kRegister, mask[i], totals[i]);
    }
}

// Pack so many rows in panels, from `to` on. Sums are for columns alone.
template <int wide>
void pack(const MatrixView& x, int64_t rows, int64_t D, float* to, float* sums = nullptr) {
  if (x.row_stride == 1) return pack_columns<wide>(x.data, x.column_stride, rows, D, to, sums);
  for (int64_t row = 0; row < rows; row += wide)
    pack_rows<wide>(x.data + row * x.row_stride, x.row_stride, rows - row, D, to + panel_start<wide>(row, D));
}

// A tile of y: the sums of products, with the bias, or with what is there already.
struct Tile {
  float* y;
  int64_t X;
  const float* bias;
  __mmask16 mask[2];  // which of its outputs there are
  bool add;
};

template <int M>
REGARD_AVX512 void multiply_panels(const float* rows, const float* weights, int64_t D, const Tile& tile) {
  __m512 sums[M][2];
#pragma GCC unroll 14
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half)
      sums[m][half] = tile.bias ? _mm512_maskz_loadu_ps(tile.mask[half], tile.bias + half * kRegister) : _mm512_setzero_ps();
#pragma GCC unroll 14
  for (int m = 0; m < M; ++m) {  // fetched while the sums are made
    __builtin_prefetch(tile.y + m * tile.X, 1);
    __builtin_prefetch(tile.y + m * tile.X + kRegister, 1);
  }
  for (int64_t d = 0; d < D; ++d, rows += kRows, weights += kOutputs) {
    const __m512 low = _mm512_loadu_ps(weights), high = _mm512_loadu_ps(weights + kRegister);
#pragma GCC unroll 14
    for (int m = 0; m < M; ++m) {
      const __m512 x = _mm512_set1_ps(rows[m]);
      sums[m][0] = _mm512_fmadd_ps(x, low, sums[m][0]);
      sums[m][1] = _mm512_fmadd_ps(x, high, sums[m][1]);
    }
  }
#pragma GCC unroll 14
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int64_t place = m * tile.X + half * kRegister;
      __m512 value = sums[m][half];
      // Blocked summation: one running sum would accumulate more rounding error.
      if (tile.add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(tile.mask[half], tile.y + place));
      _mm512_mask_storeu_ps(tile.y + place, tile.mask[half], value);
    }
}

using MultiplyPanels = void (*)(const float*, const float*, int64_t, const Tile&);

constexpr MultiplyPanels kByRows[kRows + 1] = {
    nullptr,
    multiply_panels<1>, multiply_panels<2>,  multiply_panels<3>,  multiply_panels<4>,  multiply_panels<5>,
    multiply_panels<6>, multiply_panels<7>,  multiply_panels<8>,  multiply_panels<9>,  multiply_panels<10>,
    multiply_panels<11>, multiply_panels<12>, multiply_panels<13>, multiply_panels<14>};

// A buffer of so many floats, from the start of a cache line on.
float* aligned(std::vector<float>& buffer, int64_t size) {
  constexpr int64_t kCacheLine = kRegister * sizeof(float);
  const float* start = grown(buffer, size + kRegister);
  return buffer.data() + (kCacheLine - reinterpret_cast<uintptr_t>(start) % kCacheLine) % kCacheLine / sizeof(float);
}

// A part of a product: D inputs from start, and X outputs.
struct ProductPart {
  const Sgemm& whole;
  int64_t start, D, output, X;
  float* weights;  // packed

  // Pack the weights of panels of outputs.
  void pack_weights(int64_t from, int64_t to) const {
    const int64_t x = from * kOutputs;
    pack<kOutputs>(whole.weight.from_column(start).from_row(output + x), std::min(X, to * kOutputs) - x, D,
                   weights + panel_start<kOutputs>(x, D));
  }

  void multiply(int64_t row, int64_t rows) const {
    thread_local std::vector<float> row_buffer, sum_buffer;
    float* packed = aligned(row_buffer, panel_start<kRows>(kMaxRows, kDepth));
    float* sums = output == 0 && whole.row_sums ? aligned(sum_buffer, kMaxRows) : nullptr;
    if (sums) std::fill_n(sums, rows, 0.0f);
    pack<kRows>(whole.x.from_column(start).from_row(row), rows, D, packed, sums);
    if (sums) std::transform(sums, sums + rows, whole.row_sums + row, whole.row_sums + row, std::plus<float>());
    for (int64_t block = 0; block < X; block += kBlockOutputs)
      for (int64_t r = 0; r < rows; r += kRows)
        for (int64_t x = block; x < std::min(X, block + kBlockOutputs); x += kOutputs)
          kByRows[std::min(kRows, rows - r)](packed + panel_start<kRows>(r, D), weights + panel_start<kOutputs>(x, D), D,
                                             tile(row + r, x));
  }

  Tile tile(int64_t row, int64_t x) const {
    const int64_t place = row * whole.X + output + x;
    const bool first = start == 0;
    return {whole.y + place,
            whole.X,
            whole.bias && first ? whole.bias + output + x : nullptr,
            {mask_of(X - x), mask_of(X - x - kRegister)},
            whole.add || !first};
  }
};

void sgemm(const Sgemm& p, int64_t threads) {
  require(level() == kVnni, "the float32 kernel needs AVX-512");
  require(p.R >= 0 && p.D > 0 && p.X > 0, "a float32 matmul needs inputs and outputs");
  threads = std::min(threads, p.R * p.D * p.X / kMinProducts);
  if (p.row_sums) std::fill_n(p.row_sums, p.R, 0.0f);
  thread_local std::vector<float> weight_buffer;
  const int64_t depths = (p.D + kDepth - 1) / kDepth;
  for (int64_t output = 0; output < p.X; output += kMaxOutputs) {
    const int64_t X = std::min(kMaxOutputs, p.X - output), panels = (X + kOutputs - 1) / kOutputs;
    const int64_t size = panel_start<kOutputs>(panels * kOutputs, kDepth);  // of the weights of a depth
    const int64_t together = std::clamp<int64_t>(kManyWeights / size, 1, depths);
    float* weights = aligned(weight_buffer, together * size);
    for (int64_t first = 0; first < depths; first += together) {
      const int64_t count = std::min(together, depths - first);
      const auto part = [&](int64_t at) {
        const int64_t start = (first + at) * kDepth;
        return ProductPart{p, start, std::min(kDepth, p.D - start), output, X, weights + at * size};
      };
      // Threads wait for each other twice, however many depths there are.
      const auto pack_weights = [&](int64_t from, int64_t to) {
        for (int64_t at = from / panels; at * panels < to; ++at)
          part(at).pack_weights(std::max<int64_t>(0, from - at * panels), std::min(panels, to - at * panels));
      };
      const int64_t inputs = std::min(count * kDepth, p.D - first * kDepth);
      parallel_for(count * panels, std::min(threads, X * inputs / kMinPacked), pack_weights, &run_on_openmp);
      // By rows, not by panels: of 512 rows a thread of two would have 266.
      const auto multiply_rows = [&](int64_t from, int64_t to) {
        for (int64_t at = 0; at < count; ++at)
          for (int64_t row = from; row < to; row += kMaxRows) part(at).multiply(row, std::min(kMaxRows, to - row));
      };
      parallel_for(p.R, threads, multiply_rows, &run_on_openmp);
    }
  }
}

}  // namespace
}  // namespace regard

extern "C" {

// 0: the kernel cannot run here or at this level; 1: it can; 2: and it is faster than MKL, which torch multiplies with.
int regard_sgemm_support() { return regard::level() != regard::kVnni ? 0 : __builtin_cpu_is("amd") ? 2 : 1; }

int regard_sgemm(const regard::Sgemm* product, int64_t threads) {
  return regard::guarded([&] { regard::sgemm(*product, threads); });
}
}
