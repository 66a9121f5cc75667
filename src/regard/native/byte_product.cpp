// y = xWᵀ + b with x and W rounded to bytes for this product alone: training's, whose weights are others at each step.
// Plain C on the outside.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "bytes.hpp"
#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 500'000;  // products; for fewer, waking one up costs more than it saves

// The layout is that of `_ByteProduct` in `ops/linear.py`.
struct ByteProduct {
  int64_t R, D, X;
  const float* x;       // R × D
  const float* weight;  // of X outputs and D inputs
  int64_t output_apart, input_apart;  // how far apart they are in memory; one of the two is 1
  const float* bias;    // X, or null
  float* y;             // R × X
  int32_t by_chance;    // whether rows are rounded by chance, or to the nearest step
};

// Weights rounded and packed, with room that is used again.
struct Packed {
  std::vector<int8_t> bytes;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  void fit(int64_t X, int64_t D) {
    const size_t outputs = rounded_up(X, kLanes), size = packed_size(X, D);
    if (bytes.size() < size) bytes.resize(size);
    if (scales.size() < outputs) scales.resize(outputs), sums.resize(outputs);
  }
};

REGARD_AVX2 inline __m256i size_bits(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

// The scale of weights of which the largest has these bits, without its sign; what is not a number stays none.
float scale_for(int32_t largest) {
  if (largest >= 0x7f800000) return std::numeric_limits<float>::quiet_NaN();
  float value;
  std::memcpy(&value, &largest, sizeof value);
  return std::max(value, 1e-12f) / weight_steps();
}

REGARD_AVX2 inline __m256i rounded(__m256 weights, __m256 steps) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(weights, steps));
}

// Four bytes of each of eight lanes, the first of them the lowest.
REGARD_AVX2 inline __m256i quads(const __m256i parts[kQuad]) {
  const __m256i byte = _mm256_set1_epi32(0xff);
  __m256i all = _mm256_and_si256(parts[0], byte);
  all = _mm256_or_si256(all, _mm256_slli_epi32(_mm256_and_si256(parts[1], byte), 8));
  all = _mm256_or_si256(all, _mm256_slli_epi32(_mm256_and_si256(parts[2], byte), 16));
  return _mm256_or_si256(all, _mm256_slli_epi32(parts[3], 24));
}

// Eight outputs that lie side by side in memory, of which `there` are there; d goes through the inputs.
struct Outputs {
  const float* weight;
  int64_t apart, there;

  REGARD_AVX2 __m256 at(int64_t d) const {
    if (there == 8) return _mm256_loadu_ps(weight + d * apart);
    alignas(32) float some[8] = {};
    for (int64_t i = 0; i < there; ++i) some[i] = weight[d * apart + i];
    return _mm256_load_ps(some);
  }
};

// Eight rows of D floats become D rows of eight; of the rows, `there` are there.
REGARD_AVX2 void turn(const float* rows, int64_t apart, int64_t there, int64_t D, float* turned) {
  int64_t d = 0;
  if (there == 8)
    for (; d + 8 <= D; d += 8) {
      __m256 r[8], s[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows + i * apart + d);
#pragma GCC unroll 4
      for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
      }
#pragma GCC unroll 2
      for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(turned + (d + i) * 8, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(turned + (d + i + 4) * 8, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
      }
    }
  for (; d < D; ++d)
    for (int64_t i = 0; i < 8; ++i) turned[d * 8 + i] = i < there ? rows[i * apart + d] : 0.0f;
}

// Pack eight outputs into their half of a block.
REGARD_AVX2 void pack(const Outputs& outputs, int64_t D, int8_t* block, float* scales, int32_t* sums) {
  __m256i most = _mm256_setzero_si256();
  for (int64_t d = 0; d < D; ++d) most = _mm256_max_epi32(most, size_bits(outputs.at(d)));
  alignas(32) int32_t largest[8];
  alignas(32) float by[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(largest), most);
  for (int i = 0; i < 8; ++i) {
    scales[i] = scale_for(largest[i]);
    by[i] = scales[i] > 0.0f ? 1.0f / scales[i] : 0.0f;
  }
  const __m256 steps = _mm256_load_ps(by);
  __m256i sum = _mm256_setzero_si256();
  for (int64_t d = 0; d < rounded_up(D, kInputs); d += kQuad, block += kQuad * kLanes) {
    __m256i parts[kQuad];
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i) {
      parts[i] = d + i < D ? rounded(outputs.at(d + i), steps) : _mm256_setzero_si256();
      sum = _mm256_add_epi32(sum, parts[i]);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(block), quads(parts));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), sum);
}

// Pack the blocks from first to last.
void pack(const ByteProduct& p, Packed& packed, int64_t first, int64_t last) {
  thread_local std::vector<float> room;
  const int64_t inputs = rounded_up(p.D, kInputs);
  for (int64_t x = first * kLanes; x < last * kLanes; x += 8) {
    int8_t* block = packed.bytes.data() + x / kLanes * kLanes * inputs + x % kLanes * kQuad;
    const float* weight = p.weight + x * p.output_apart;
    const int64_t there = std::clamp<int64_t>(p.X - x, 0, 8);
    Outputs outputs{weight, p.input_apart, there};
    if (p.output_apart != 1) {
      outputs = {at_least(room, 8 * p.D), 8, 8};
      turn(weight, p.output_apart, there, p.D, room.data());
    }
    pack(outputs, p.D, block, &packed.scales[x], &packed.sums[x]);
  }
}

void multiply_once(const ByteProduct& p, int64_t threads) {
  thread_local Packed room;
  Packed& packed = room;
  packed.fit(p.X, p.D);
  threads = std::min(threads, p.R * p.D * p.X / kWorthAThread);
  in_parts(rounded_up(p.X, kLanes) / kLanes, threads,
           [&](int64_t first, int64_t last) { pack(p, packed, first, last); }, &share_with_team);
  const Linear weights{packed.bytes.data(), packed.scales.data(), packed.sums.data(), p.bias, p.X, p.D};
  in_parts(p.R, threads, [&](int64_t first, int64_t last) {
    thread_local ByteRows rows;
    multiply(weights, p.x + first * p.D, last - first, 1, rows, p.y + first * p.X,
             p.by_chance ? Rounding::kByChance : Rounding::kNearest);
  }, &share_with_team);
}

}  // namespace
}  // namespace regard

extern "C" int regard_byte_product(const regard::ByteProduct* product, int64_t threads) {
  return regard::guarded([&] { regard::multiply_once(*product, threads); });
}
