// xWᵀ + b with rows of x and weights rounded to bytes: one pass from floats to floats.
//
// Every row of x has a scale of its own, so that no row changes another; sums are exact. The weights are packed so that
// one load brings four inputs' bytes for each of 16 outputs. There is a kernel for AVX2 and one for AVX-512 with VNNI,
// chosen when the program runs. AVX2 adds products in 16 bits: with rows in 7 bits, four of them fit, and that makes it
// half as fast again as with 8 bits and two. Plain C on the outside: it knows nothing of Python or torch.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "bytes.hpp"
#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 20'000'000;  // products; for fewer, waking one up costs more than it saves

constexpr int64_t kTile = 60;  // rows that pass by all weights together: they stay in the nearest cache
constexpr int64_t kTileOutputs = 1 << 16;  // what comes of them should stay in the next one

struct Product {
  const uint8_t* rows;      // R × inputs, without a sign: `zero` for zero
  const float* row_scales;  // R
  int64_t R, inputs;        // inputs: D, rounded up
  const int8_t* packed;
  const float* scales;
  const int32_t* sums;  // for what the zeros add
  int32_t zero;
  const float* bias;
  int64_t X;
  float* y;  // R × X
};

REGARD_AVX2 inline __m256i lanes(const int8_t* weights) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
}

// Groups of M rows, from row to end, for the outputs of a block.
template <int M>
REGARD_AVX2 void rows_avx2(const Product& p, int64_t row, int64_t end, int64_t block) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i mask[2], start[2];  // of eight lanes each
  __m256 scales[2], bias[2];
  for (int half = 0; half < 2; ++half) {
    const int64_t x = block * kLanes + 8 * half;
    mask[half] = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(p.X - x)),
                                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i sums = _mm256_maskload_epi32(p.sums + x, mask[half]);
    start[half] = _mm256_mullo_epi32(sums, _mm256_set1_epi32(-p.zero));
    scales[half] = _mm256_maskload_ps(p.scales + x, mask[half]);
    bias[half] = p.bias ? _mm256_maskload_ps(p.bias + x, mask[half]) : _mm256_setzero_ps();
  }
  const bool whole = p.X - block * kLanes >= kLanes;  // storing under a mask takes many times as long
  for (; row < end; row += M) {
    const int8_t* w = p.packed + block * p.inputs * kLanes;
    const uint8_t* rows = p.rows + row * p.inputs;
    __m256i sums[M][2];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sums[m][0] = start[0], sums[m][1] = start[1];
    for (int64_t d = 0; d < p.inputs; d += 2 * kQuad, w += 2 * kQuad * kLanes) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        int32_t quads[2];
        std::memcpy(quads, rows + m * p.inputs + d, sizeof quads);
        const __m256i x = _mm256_set1_epi32(quads[0]), z = _mm256_set1_epi32(quads[1]);
        // Four products are added in 16 bits: 4 · 127 · 64 fits.
        const __m256i four =
            _mm256_add_epi16(_mm256_maddubs_epi16(x, lanes(w)), _mm256_maddubs_epi16(z, lanes(w + 64)));
        const __m256i others =
            _mm256_add_epi16(_mm256_maddubs_epi16(x, lanes(w + 32)), _mm256_maddubs_epi16(z, lanes(w + 96)));
        sums[m][0] = _mm256_add_epi32(sums[m][0], _mm256_madd_epi16(four, ones));
        sums[m][1] = _mm256_add_epi32(sums[m][1], _mm256_madd_epi16(others, ones));
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const __m256 row_scale = _mm256_set1_ps(p.row_scales[row + m]);
      float* y = p.y + (row + m) * p.X + block * kLanes;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256 value = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums[m][half]), scales[half]), row_scale);
        if (p.bias) value = _mm256_add_ps(value, bias[half]);
        if (whole)
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
  const int8_t* weights = p.packed + block * p.inputs * kLanes;
  const int64_t first = block * kLanes;
  const __mmask16 mask = first + kLanes <= p.X ? 0xffff : (1u << (p.X - first)) - 1;
  const __m512i sums = _mm512_maskz_loadu_epi32(mask, p.sums + first);
  const __m512i start = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-p.zero));
  const __m512 scales = _mm512_maskz_loadu_ps(mask, p.scales + first);
  const __m512 bias = p.bias ? _mm512_maskz_loadu_ps(mask, p.bias + first) : _mm512_setzero_ps();
  for (; row < end; row += M) {
    __m512i total[M];
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) total[m] = start;
    for (int64_t d = 0; d < p.inputs; d += kQuad) {
      const __m512i w = _mm512_loadu_si512(weights + d * kLanes);
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
      if (p.bias) value = _mm512_add_ps(value, bias);
      _mm512_mask_storeu_ps(p.y + (row + m) * p.X + first, mask, value);
    }
  }
}

using Rows = void (*)(const Product&, int64_t row, int64_t end, int64_t block);

struct Kernel {
  int32_t zero;      // rows are rounded to zero - 1 steps on either side of it
  int most;          // rows at once: as many as there are registers for
  Rows by_count[13];  // for 1, 2, … rows
};

constexpr Kernel kAvx2 = {64, 3, {nullptr, rows_avx2<1>, rows_avx2<2>, rows_avx2<3>}};
constexpr Kernel kVnni = {128, 12, {nullptr, rows_vnni<1>, rows_vnni<2>, rows_vnni<3>, rows_vnni<4>, rows_vnni<5>,
                               rows_vnni<6>, rows_vnni<7>, rows_vnni<8>, rows_vnni<9>, rows_vnni<10>, rows_vnni<11>,
                               rows_vnni<12>}};

bool has_vnni() { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl"); }

void blocks(const Product& p, const Kernel& kernel, int64_t first, int64_t last) {
  const int64_t fitting = std::min(kTile, kTileOutputs / p.X) / kernel.most * kernel.most;
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

// What is added to eight numbers before they are rounded: nothing, or chances from -½ to ½. Those of a row go round a circle
// in golden steps, from a start that is scrambled from its largest number, but for the power of two: no row needs to know
// where it stands, and twice the row is rounded to twice the numbers.
class Chances {
 public:
  REGARD_AVX2 Chances(Rounding rounding, float largest) {
    if (rounding == Rounding::kNearest) return;
    uint32_t bits;
    std::memcpy(&bits, &largest, sizeof bits);
    bits &= 0x7fffff;
    bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
    const __m256i numbers = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kGolden));
    at_ = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int32_t>(bits ^ bits >> 16)), numbers);
    size_ = _mm256_set1_ps(1.0f / 4294967296.0f);
    onward_ = _mm256_set1_epi32(static_cast<int32_t>(8u * static_cast<uint32_t>(kGolden)));
  }
  REGARD_AVX2 __m256 next() {
    const __m256 chances = _mm256_mul_ps(_mm256_cvtepi32_ps(at_), size_);
    at_ = _mm256_add_epi32(at_, onward_);
    return chances;
  }

 private:
  static constexpr int32_t kGolden = static_cast<int32_t>(0x9E3779B9u);
  __m256i at_ = _mm256_setzero_si256(), onward_ = _mm256_setzero_si256();
  __m256 size_ = _mm256_setzero_ps();
};

// Round a row to zero - 1 steps on either side of zero.
template <Rounding rounding>
REGARD_AVX2 void quantize(const float* x, int64_t D, int64_t inputs, int32_t zero, uint8_t* row, float* scale) {
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 most = _mm256_setzero_ps(), unordered = _mm256_setzero_ps();
  int64_t d = 0;
  for (; d + 8 <= D; d += 8) {
    const __m256 numbers = _mm256_loadu_ps(x + d);
    most = _mm256_max_ps(most, _mm256_and_ps(numbers, no_sign));
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q));
  }
  float largest = largest_of(most);
  bool wrong = _mm256_movemask_ps(unordered) != 0;
  for (; d < D; ++d) {
    largest = std::max(largest, std::fabs(x[d]));
    wrong = wrong || std::isnan(x[d]);
  }
  if (wrong || !std::isfinite(largest)) {  // what is not a number must not become one
    *scale = std::numeric_limits<float>::quiet_NaN();
    std::memset(row, zero, inputs);
    return;
  }
  *scale = largest / (zero - 1) + 1e-12f;
  const float steps = 1.0f / *scale;
  const __m256i zeros = _mm256_set1_epi8(static_cast<char>(zero));
  const __m256 factor = _mm256_set1_ps(steps);
  const __m256 top = _mm256_set1_ps(static_cast<float>(zero - 1)), bottom = _mm256_sub_ps(_mm256_setzero_ps(), top);
  Chances chances(rounding, largest);
  for (d = 0; d + 32 <= D; d += 32) {
    __m256i whole[4];
    for (int part = 0; part < 4; ++part) {
      __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + d + 8 * part), factor);
      if (rounding == Rounding::kByChance)
        scaled = _mm256_max_ps(bottom, _mm256_min_ps(top, _mm256_add_ps(scaled, chances.next())));
      whole[part] = _mm256_cvtps_epi32(scaled);
    }
    // Packing works on either half of a register by itself: the last line puts the fours in order again.
    const __m256i pairs = _mm256_packs_epi32(whole[0], whole[1]), others = _mm256_packs_epi32(whole[2], whole[3]);
    const __m256i mixed = _mm256_add_epi8(_mm256_packs_epi16(pairs, others), zeros);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + d), _mm256_permutevar8x32_epi32(mixed, order));
  }
  while (d < D) {
    alignas(32) float some[8];
    _mm256_store_ps(some, chances.next());
    for (int i = 0; i < 8 && d < D; ++i, ++d) {
      const float scaled = std::clamp(x[d] * steps + some[i], 1.0f - zero, zero - 1.0f);
      row[d] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(scaled)) + zero);
    }
  }
  for (; d < inputs; ++d) row[d] = zero;  // weights there are zero
}

}  // namespace

int weight_steps() { return has_vnni() ? 127 : 64; }

void multiply(const Linear& weights, const float* x, int64_t R, int threads, ByteRows& room, float* y,
              Rounding rounding) {
  if (R == 0 || weights.X == 0) return;
  const int64_t D = weights.D, inputs = rounded_up(D, kInputs);
  const Kernel& kernel = has_vnni() ? kVnni : kAvx2;
  if (static_cast<int64_t>(room.rows.size()) < R * inputs) room.rows.resize(R * inputs);
  if (static_cast<int64_t>(room.scales.size()) < R) room.scales.resize(R);
  const auto round = rounding == Rounding::kNearest ? quantize<Rounding::kNearest> : quantize<Rounding::kByChance>;
  for (int64_t row = 0; row < R; ++row)
    round(x + row * D, D, inputs, kernel.zero, room.rows.data() + row * inputs, &room.scales[row]);
  const Product product{room.rows.data(), room.scales.data(), R,           inputs,       weights.packed, weights.scales,
                        weights.sums,     kernel.zero,        weights.bias, weights.X,    y};
  if (R * inputs * weights.X < kWorthAThread) threads = 1;
  in_parts(rounded_up(weights.X, kLanes) / kLanes, threads,
           [&](int64_t first, int64_t last) { blocks(product, kernel, first, last); });
}

}  // namespace regard

extern "C" {

// Changes with every change of what these functions take.
int regard_version() { return 11; }

// 0: this processor is not supported; 1: AVX2, where weights must not be larger than 64; 2: VNNI.
int regard_level() {
  if (regard::has_vnni()) return 2;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
}

int64_t regard_packed_size(int64_t X, int64_t D) {
  return regard::packed_size(X, D);
}

void regard_pack(const int8_t* weights, int64_t X, int64_t D, int8_t* packed, int32_t* sums) {
  using namespace regard;
  const int64_t inputs = rounded_up(D, kInputs);
  std::memset(packed, 0, packed_size(X, D));
  for (int64_t x = 0; x < X; ++x) {
    int8_t* block = packed + x / kLanes * inputs * kLanes;
    sums[x] = 0;
    for (int64_t d = 0; d < D; ++d) {
      block[d / kQuad * kQuad * kLanes + x % kLanes * kQuad + d % kQuad] = weights[x * D + d];
      sums[x] += weights[x * D + d];
    }
  }
}

// Pack some of the outputs of a packed matrix by themselves.
void regard_choose(const regard::Linear* all, const int32_t* outputs, int64_t count, int8_t* packed, float* scales,
                   int32_t* sums, float* bias) {
  using namespace regard;
  const int64_t inputs = rounded_up(all->D, kInputs);
  std::memset(packed, 0, packed_size(count, all->D));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t x = outputs[i];
    const int8_t* from = all->packed + x / kLanes * inputs * kLanes + x % kLanes * kQuad;
    int8_t* to = packed + i / kLanes * inputs * kLanes + i % kLanes * kQuad;
    for (int64_t at = 0; at < inputs * kLanes; at += kQuad * kLanes) std::memcpy(to + at, from + at, kQuad);
    scales[i] = all->scales[x];
    sums[i] = all->sums[x];
    if (bias) bias[i] = all->bias[x];
  }
}

// For N rows of each of B sentences, the outputs that are chosen for it, each in its own place of W.
int regard_chosen(const regard::Linear* chosen, const int32_t* const* outputs, const float* x, int64_t B, int64_t N,
                  int64_t W, int threads, float* y) {
  const auto some = [=](int64_t first, int64_t last) {
    thread_local regard::ByteRows room;
    thread_local std::vector<float> few;
    for (int64_t b = first; b < last; ++b) {
      const regard::Linear& weights = chosen[b];
      if (static_cast<int64_t>(few.size()) < N * weights.X) few.resize(N * weights.X);
      regard::multiply(weights, x + b * N * weights.D, N, 1, room, few.data());
      for (int64_t n = 0; n < N; ++n)
        for (int64_t i = 0; i < weights.X; ++i) y[(b * N + n) * W + outputs[b][i]] = few[n * weights.X + i];
    }
  };
  return regard::guarded([&] { regard::in_parts(B, threads, some); });
}

int regard_linear(const regard::Linear* weights, const float* x, int64_t R, int threads, float* y) {
  thread_local regard::ByteRows room;
  return regard::guarded([&] { regard::multiply(*weights, x, R, threads, room, y); });
}
}
