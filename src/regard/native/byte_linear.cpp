// xWᵀ + b with rows of x and weights rounded to bytes: one pass from floats to floats.
//
// Every row of x has a scale of its own, so that no row changes another; sums are exact. The weights are packed so that
// one load brings four inputs' bytes for each of 16 outputs. There is a kernel for AVX2 and one for AVX-512 with VNNI,
// chosen when the program runs. Plain C on the outside: it knows nothing of Python or torch.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

namespace {

constexpr int kLanes = 16;  // outputs in a block of packed weights
constexpr int kQuad = 4;    // inputs that are multiplied and added at once
constexpr int64_t kWorthAThread = 4'000'000;  // products; below, starting one costs more than it saves

struct Product {
  const uint8_t* rows;      // R × inputs, 128 for zero
  const float* row_scales;  // R
  int64_t R, inputs;        // inputs: D, rounded up to a whole quad
  const int8_t* packed;
  const float* scales;  // of the outputs
  const int32_t* sums;  // of each output's weights, for what the 128 add
  const float* bias;    // or null
  int64_t X;
  float* y;  // R × X
};

int64_t rounded_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

template <int M>
__attribute__((target("avx2,fma"))) void rows_avx2(const Product& p, int64_t row, int64_t block) {
  const int8_t* w = p.packed + block * p.inputs * kLanes;
  const uint8_t* rows = p.rows + row * p.inputs;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i low[M], high[M];  // the sums of eight lanes each
  for (int m = 0; m < M; ++m) low[m] = high[m] = _mm256_setzero_si256();
  for (int64_t d = 0; d < p.inputs; d += kQuad, w += kQuad * kLanes) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      int32_t quad;
      std::memcpy(&quad, rows + m * p.inputs + d, sizeof quad);
      const __m256i x = _mm256_set1_epi32(quad);
      // Two products are added in 16 bits: 2 · 255 · 64 fits.
      low[m] = _mm256_add_epi32(low[m], _mm256_madd_epi16(_mm256_maddubs_epi16(x, first), ones));
      high[m] = _mm256_add_epi32(high[m], _mm256_madd_epi16(_mm256_maddubs_epi16(x, second), ones));
    }
  }
  for (int half = 0; half < 2; ++half) {
    const int64_t x = block * kLanes + 8 * half;
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(p.X - x)),
                                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i offset = _mm256_slli_epi32(_mm256_maskload_epi32(p.sums + x, mask), 7);
    const __m256 scales = _mm256_maskload_ps(p.scales + x, mask);
    for (int m = 0; m < M; ++m) {
      __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(half ? high[m] : low[m], offset));
      value = _mm256_mul_ps(_mm256_mul_ps(value, scales), _mm256_set1_ps(p.row_scales[row + m]));
      if (p.bias) value = _mm256_add_ps(value, _mm256_maskload_ps(p.bias + x, mask));
      _mm256_maskstore_ps(p.y + (row + m) * p.X + x, mask, value);
    }
  }
}

template <int M>
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) void rows_vnni(const Product& p, int64_t row,
                                                                               int64_t block) {
  const int8_t* weights = p.packed + block * p.inputs * kLanes;
  __m512i total[M];
  for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_si512();
  for (int64_t d = 0; d < p.inputs; d += kQuad) {
    const __m512i w = _mm512_loadu_si512(weights + d * kLanes);
    for (int m = 0; m < M; ++m) {
      int32_t quad;
      std::memcpy(&quad, p.rows + (row + m) * p.inputs + d, sizeof quad);
      total[m] = _mm512_dpbusd_epi32(total[m], _mm512_set1_epi32(quad), w);
    }
  }
  const int64_t first = block * kLanes;
  const __mmask16 mask = first + kLanes <= p.X ? 0xffff : (1u << (p.X - first)) - 1;
  const __m512i offset = _mm512_slli_epi32(_mm512_maskz_loadu_epi32(mask, p.sums + first), 7);
  const __m512 scales = _mm512_maskz_loadu_ps(mask, p.scales + first);
  for (int m = 0; m < M; ++m) {
    __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(total[m], offset));
    value = _mm512_mul_ps(_mm512_mul_ps(value, scales), _mm512_set1_ps(p.row_scales[row + m]));
    if (p.bias) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, p.bias + first));
    _mm512_mask_storeu_ps(p.y + (row + m) * p.X + first, mask, value);
  }
}

using Rows = void (*)(const Product&, int64_t, int64_t);

struct Kernel {
  int most;          // rows at once: as many as there are registers for
  Rows by_count[13];  // for 1, 2, … rows
};

constexpr Kernel kAvx2 = {5, {nullptr, rows_avx2<1>, rows_avx2<2>, rows_avx2<3>, rows_avx2<4>, rows_avx2<5>}};
constexpr Kernel kVnni = {12, {nullptr, rows_vnni<1>, rows_vnni<2>, rows_vnni<3>, rows_vnni<4>, rows_vnni<5>,
                               rows_vnni<6>, rows_vnni<7>, rows_vnni<8>, rows_vnni<9>, rows_vnni<10>, rows_vnni<11>,
                               rows_vnni<12>}};

bool has_vnni() { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl"); }

void blocks(const Product& p, const Kernel& kernel, int64_t first, int64_t last) {
  // A block of weights stays in the nearest cache while all rows pass by it.
  for (int64_t block = first; block < last; ++block)
    for (int64_t row = 0; row < p.R; row += kernel.most)
      kernel.by_count[std::min<int64_t>(kernel.most, p.R - row)](p, row, block);
}

// Round a row to bytes, from 1 to 255, with 128 for zero.
__attribute__((target("avx2,fma"))) void quantize(const float* x, int64_t D, int64_t inputs, uint8_t* row,
                                                  float* scale) {
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 most = _mm256_setzero_ps(), unordered = _mm256_setzero_ps();
  int64_t d = 0;
  for (; d + 8 <= D; d += 8) {
    const __m256 numbers = _mm256_loadu_ps(x + d);
    most = _mm256_max_ps(most, _mm256_and_ps(numbers, no_sign));
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q));
  }
  alignas(32) float found[8];
  _mm256_store_ps(found, most);
  float largest = *std::max_element(found, found + 8);
  bool wrong = _mm256_movemask_ps(unordered) != 0;
  for (; d < D; ++d) {
    largest = std::max(largest, std::fabs(x[d]));
    wrong = wrong || std::isnan(x[d]);
  }
  if (wrong || !std::isfinite(largest)) {  // what is not a number must not become one
    *scale = std::numeric_limits<float>::quiet_NaN();
    std::memset(row, 128, inputs);
    return;
  }
  *scale = largest * (1.0f / 127.0f) + 1e-12f;
  const __m256 step = _mm256_set1_ps(*scale);
  const __m256i added = _mm256_set1_epi32(128);
  for (d = 0; d + 8 <= D; d += 8) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x + d), step));
    const __m256i moved = _mm256_add_epi32(whole, added);
    // The lowest byte of each of eight numbers, side by side.
    const __m256i low = _mm256_shuffle_epi8(moved, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                                    0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    const int32_t first = _mm256_extract_epi32(low, 0), second = _mm256_extract_epi32(low, 4);
    std::memcpy(row + d, &first, 4);
    std::memcpy(row + d + 4, &second, 4);
  }
  for (; d < D; ++d) row[d] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(x[d] / *scale)) + 128);
  for (; d < inputs; ++d) row[d] = 128;  // weights there are zero
}

}  // namespace

extern "C" {

// Changes with every change of what these functions take.
int regard_version() { return 2; }

// 0: this processor is not supported; 1: AVX2, where weights must not be larger than 64; 2: VNNI.
int regard_level() {
  if (has_vnni()) return 2;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
}

int64_t regard_packed_size(int64_t X, int64_t D) { return rounded_up(X, kLanes) * rounded_up(D, kQuad); }

void regard_pack(const int8_t* weights, int64_t X, int64_t D, int8_t* packed, int32_t* sums) {
  const int64_t inputs = rounded_up(D, kQuad);
  std::memset(packed, 0, regard_packed_size(X, D));
  for (int64_t x = 0; x < X; ++x) {
    int8_t* block = packed + x / kLanes * inputs * kLanes;
    sums[x] = 0;
    for (int64_t d = 0; d < D; ++d) {
      block[d / kQuad * kQuad * kLanes + x % kLanes * kQuad + d % kQuad] = weights[x * D + d];
      sums[x] += weights[x * D + d];
    }
  }
}

void regard_linear(const float* x, int64_t R, int64_t D, const int8_t* packed, const float* scales,
                   const int32_t* sums, const float* bias, int64_t X, int threads, float* y) {
  const int64_t inputs = rounded_up(D, kQuad);
  thread_local std::vector<uint8_t> rows;
  thread_local std::vector<float> row_scales;
  rows.resize(R * inputs);
  row_scales.resize(R);
  for (int64_t row = 0; row < R; ++row)
    quantize(x + row * D, D, inputs, rows.data() + row * inputs, &row_scales[row]);
  const Product product{rows.data(), row_scales.data(), R, inputs, packed, scales, sums, bias, X, y};
  const Kernel& kernel = has_vnni() ? kVnni : kAvx2;
  const int64_t count = rounded_up(X, kLanes) / kLanes;
  if (R * inputs * X < kWorthAThread) threads = 1;
  std::vector<std::thread> helpers;
  int64_t last = count;  // of the blocks that are left to this thread
  try {
    for (int t = threads - 1; t > 0; --t) {
      const int64_t first = count * t / threads;
      helpers.emplace_back([&product, &kernel, first, last] { blocks(product, kernel, first, last); });
      last = first;
    }
  } catch (const std::system_error&) {  // the system gives no more threads
  }
  blocks(product, kernel, 0, last);
  for (std::thread& helper : helpers) helper.join();
}
}
