// Floats rounded to bytes: rows, each with a scale of its own, and weights, each output with one, whichever way they lie in
// memory.
//
// Most of it goes in strips: 32 inputs of eight rows at once, as eight registers of bytes. Rows in memory give a register for
// each row; columns give one for each four inputs, as packed weights have it; from one to the other they are turned.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "bytes.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kRows = 8;    // of a strip
constexpr int64_t kStrip = 32;  // inputs of a strip
constexpr int64_t kLine = 64;   // bytes that the processor keeps together

static_assert(kStrip / kQuad == kRows, "a strip has as many registers either way");

// Chances go from -½ to ½. Those of a row go round a circle in even steps, from a start that is scrambled from its largest
// number, but for the power of two: no row needs to know where it stands, and twice the row is rounded to twice the numbers.
// Rows and weights have steps that do not go together: the golden part of a circle of 2³², and that of the plastic number.
constexpr uint32_t kRowSteps = 0x9E3779B9u, kWeightSteps = 0xC13FA9A9u;

int32_t first_chance(float largest) {
  uint32_t bits;
  std::memcpy(&bits, &largest, sizeof bits);
  bits &= 0x7fffff;
  bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
  bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
  return static_cast<int32_t>(bits ^ bits >> 16);
}

REGARD_AVX2 inline __m256i onward(uint32_t step, int64_t count) {
  return _mm256_set1_epi32(static_cast<int32_t>(step * static_cast<uint32_t>(count)));
}

// The chances of eight numbers of a row, of which the first is at d.
REGARD_AVX2 inline __m256i chances_of_row(int32_t start, uint32_t step, int64_t d) {
  const __m256i eight = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), onward(step, 1));
  return _mm256_add_epi32(_mm256_add_epi32(_mm256_set1_epi32(start), eight), onward(step, d));
}

// Eight numbers as whole steps, each with its chance or to the nearest.
template <Rounding rounding>
REGARD_AVX2 inline __m256i whole(__m256 numbers, __m256 steps, __m256i chances) {
  __m256 scaled = _mm256_mul_ps(numbers, steps);
  if (rounding == Rounding::kByChance)
    scaled = _mm256_fmadd_ps(_mm256_cvtepi32_ps(chances), _mm256_set1_ps(1.0f / 4294967296.0f), scaled);
  return _mm256_cvtps_epi32(scaled);
}

// What 32 whole numbers are as bytes, with at most so many steps on either side of zero. Packing works on either half of a
// register by itself: in each the first four are followed by the first four of the next.
REGARD_AVX2 inline __m256i packed_bytes(const __m256i numbers[4], __m256i most) {
  const __m256i pairs = _mm256_packs_epi32(numbers[0], numbers[1]), others = _mm256_packs_epi32(numbers[2], numbers[3]);
  const __m256i least = _mm256_sub_epi8(_mm256_setzero_si256(), most);
  return _mm256_max_epi8(least, _mm256_min_epi8(most, _mm256_packs_epi16(pairs, others)));
}

// 32 numbers of a row.
template <Rounding rounding>
REGARD_AVX2 inline __m256i row_bytes(const float* x, __m256 steps, __m256i& chances, __m256i to_next, __m256i most) {
  __m256i numbers[4];
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    numbers[part] = whole<rounding>(_mm256_loadu_ps(x + 8 * part), steps, chances);
    if (rounding == Rounding::kByChance) chances = _mm256_add_epi32(chances, to_next);
  }
  return _mm256_permutevar8x32_epi32(packed_bytes(numbers, most), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Four numbers of each of eight columns, which lie side by side.
template <Rounding rounding>
REGARD_AVX2 inline __m256i column_bytes(const __m256 x[kQuad], __m256 steps, __m256i& chances, __m256i to_next,
                                        __m256i most) {
  __m256i numbers[kQuad];
#pragma GCC unroll 4
  for (int i = 0; i < kQuad; ++i) {
    numbers[i] = whole<rounding>(x[i], steps, chances);
    if (rounding == Rounding::kByChance) chances = _mm256_add_epi32(chances, to_next);
  }
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(packed_bytes(numbers, most), _mm256_broadcastsi128_si256(order));
}

REGARD_AVX2 inline __m256i load(const int32_t* numbers) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers));
}

template <typename Number>
REGARD_AVX2 inline void store(Number* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

// The bits of floats without their sign: they are ordered as the numbers are, with what is not a number above all.
REGARD_AVX2 inline __m256i size_bits(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

REGARD_AVX2 int32_t largest_size(const float* row, int64_t D) {
  __m256i most = _mm256_setzero_si256();
  for (int64_t d = 0; d < D; d += 8) most = _mm256_max_epi32(most, size_bits(some_of(row + d, D - d)));
  alignas(32) int32_t sizes[8];
  store(sizes, most);
  return *std::max_element(sizes, sizes + 8);
}

// The same of R columns; memory is read in its order.
REGARD_AVX2 void largest_sizes(const float* columns, int64_t apart, int64_t R, int64_t D, int32_t* sizes) {
  for (int64_t d = 0; d < D; ++d, columns += apart) {
    int64_t r = 0;
    for (; r + 8 <= R; r += 8) store(sizes + r, _mm256_max_epi32(load(sizes + r), size_bits(_mm256_loadu_ps(columns + r))));
    if (r < R) store(sizes + r, _mm256_max_epi32(load(sizes + r), size_bits(some_of(columns + r, R - r))));
  }
}

// How a row is rounded.
struct Scale {
  float scale, steps, largest;

  Scale(int32_t size, int32_t most) {
    std::memcpy(&largest, &size, sizeof largest);
    scale = std::max(largest, 1e-30f) / most;
    if (!std::isfinite(scale)) scale = std::numeric_limits<float>::quiet_NaN();  // what is not a number must not become one
    steps = 1.0f / scale;
  }
};

// The scales of many rows.
struct Scales {
  std::vector<int32_t> sizes, chances;  // the bits of the largest number, and where the chances start
  std::vector<float> steps;

  REGARD_AVX2 void measure(const Floats& x, int64_t R, int64_t D, int32_t most, float* scales) {
    const int64_t room = rounded_up(R, kRows);
    sizes.assign(room, 0);
    chances.assign(room, 0);
    steps.assign(room, 0.0f);
    if (x.input_apart == 1)
      for (int64_t r = 0; r < R; ++r) sizes[r] = largest_size(x.first + r * x.row_apart, D);
    else
      largest_sizes(x.first, x.input_apart, R, D, sizes.data());
    for (int64_t r = 0; r < R; ++r) {
      const Scale scale(sizes[r], most);
      scales[r] = scale.scale;
      steps[r] = scale.steps;
      chances[r] = first_chance(scale.largest);
    }
  }
};

// A strip of rows in memory: one register for each.
template <Rounding rounding>
REGARD_AVX2 void strip_of_rows(const Floats& x, int64_t r, int64_t R, int64_t d, int64_t D, const Scales& scales,
                               uint32_t step, __m256i most, __m256i strip[kRows]) {
  for (int64_t i = 0; i < kRows; ++i) {
    if (r + i >= R) {
      strip[i] = _mm256_setzero_si256();
      continue;
    }
    const float* row = x.first + (r + i) * x.row_apart + d;
    alignas(32) float few[kStrip];
    if (D - d < kStrip) {
      std::fill(std::copy_n(row, D - d, few), few + kStrip, 0.0f);
      row = few;
    }
    __m256i chances = chances_of_row(scales.chances[r + i], step, d);
    strip[i] = row_bytes<rounding>(row, _mm256_set1_ps(scales.steps[r + i]), chances, onward(step, 8), most);
  }
}

// A strip of columns: one register for each four inputs.
template <Rounding rounding>
REGARD_AVX2 void strip_of_columns(const Floats& x, int64_t r, int64_t R, int64_t d, int64_t D, const Scales& scales,
                                  uint32_t step, __m256i most, __m256i strip[kRows]) {
  const __m256 steps = _mm256_loadu_ps(&scales.steps[r]);
  __m256i chances = _mm256_add_epi32(load(&scales.chances[r]), onward(step, d));
  const bool all = R - r >= kRows && D - d >= kStrip;
  for (int64_t i = 0; i < kRows; ++i) {
    const float* from = x.first + (d + i * kQuad) * x.input_apart + r;
    __m256 numbers[kQuad];
#pragma GCC unroll 4
    for (int64_t k = 0; k < kQuad; ++k, from += x.input_apart)
      numbers[k] = all ? _mm256_loadu_ps(from) : some_of(from, d + i * kQuad + k < D ? R - r : 0);
    strip[i] = column_bytes<rounding>(numbers, steps, chances, onward(step, 1), most);
  }
}

// Go through the strips of columns as they lie in memory, but so that each line of rows is written at once.
template <typename Work>
REGARD_AVX2 inline void for_strips(int64_t R, int64_t inputs, const Work& work) {
  for (int64_t start = 0; start < inputs; start += kLine)
    for (int64_t r = 0; r < R; r += kRows)
      for (int64_t d = start; d < std::min(inputs, start + kLine); d += kStrip) work(r, d);
}

// Rounds one row.
template <Rounding rounding>
REGARD_AVX2 void round_row(const float* x, int64_t D, int64_t inputs, int32_t zero, uint8_t* row, float* scale_of_row) {
  const Scale scale(largest_size(x, D), zero - 1);
  *scale_of_row = scale.scale;
  const __m256 steps = _mm256_set1_ps(scale.steps);
  const __m256i zeros = _mm256_set1_epi8(static_cast<char>(zero)), most = _mm256_set1_epi8(static_cast<char>(zero - 1));
  const __m256i to_next = onward(kRowSteps, 8);
  __m256i chances = chances_of_row(first_chance(scale.largest), kRowSteps, 0);
  int64_t d = 0;
  for (; d + kStrip <= D; d += kStrip)
    store(row + d, _mm256_add_epi8(row_bytes<rounding>(x + d, steps, chances, to_next, most), zeros));
  if (d == inputs) return;
  alignas(32) float few[kStrip] = {};
  std::copy(x + d, x + D, few);
  __m256i rest = _mm256_add_epi8(row_bytes<rounding>(few, steps, chances, to_next, most), zeros);
  std::memcpy(row + d, &rest, inputs - d);  // weights of inputs beyond D are zero
}

// Round R rows that stand in columns.
template <Rounding rounding>
REGARD_AVX2 void round_columns(const Floats& x, int64_t R, int64_t D, int64_t inputs, int32_t zero, ByteRows& to) {
  thread_local Scales room;
  Scales& scales = room;  // to look for it once is enough
  scales.measure(x, R, D, zero - 1, to.scales.data());
  const __m256i zeros = _mm256_set1_epi8(static_cast<char>(zero)), most = _mm256_set1_epi8(static_cast<char>(zero - 1));
  for_strips(R, inputs, [&](int64_t r, int64_t d) REGARD_AVX2 {
    __m256i strip[kRows];
    strip_of_columns<rounding>(x, r, R, d, D, scales, kRowSteps, most, strip);
    turn(strip);
    for (int64_t i = 0; i < std::min(kRows, R - r); ++i) {
      uint8_t* row = to.rows.data() + (r + i) * inputs + d;
      strip[i] = _mm256_add_epi8(strip[i], zeros);
      if (inputs - d >= kStrip)
        store(row, strip[i]);
      else
        std::memcpy(row, &strip[i], inputs - d);
    }
  });
}

// The sums of fours of bytes.
REGARD_AVX2 inline __m256i sums_of_quads(__m256i bytes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
}

template <Rounding rounding>
REGARD_AVX2 void round_weights(const Floats& weight, int64_t first, int64_t last, int64_t D, PackedWeights& to) {
  thread_local Scales room;
  Scales& scales = room;
  const int64_t inputs = rounded_up(D, kInputs), X = last - first;
  const Floats some{weight.first + first * weight.row_apart, weight.row_apart, weight.input_apart};
  scales.measure(some, X, D, weight_steps(), &to.scales[first]);
  std::fill_n(&to.sums[first], rounded_up(X, kRows), 0);
  const __m256i most = _mm256_set1_epi8(static_cast<char>(weight_steps()));
  const auto one = [&](int64_t x, int64_t d) REGARD_AVX2 {
    __m256i strip[kRows];
    if (some.input_apart == 1) {
      strip_of_rows<rounding>(some, x, X, d, D, scales, kWeightSteps, most, strip);
      turn(strip);
    } else {
      strip_of_columns<rounding>(some, x, X, d, D, scales, kWeightSteps, most, strip);
    }
    int8_t* block = &to.bytes[(first + x) / kLanes * kLanes * inputs + (first + x) % kLanes * kQuad + d * kLanes];
    __m256i sums = load(&to.sums[first + x]);
    for (int64_t i = 0; i < std::min(kRows, (inputs - d) / kQuad); ++i) {
      store(block + i * kQuad * kLanes, strip[i]);
      sums = _mm256_add_epi32(sums, sums_of_quads(strip[i]));
    }
    store(&to.sums[first + x], sums);
  };
  if (some.input_apart == 1) {  // memory is read in its order
    for (int64_t x = 0; x < X; x += kRows)
      for (int64_t d = 0; d < inputs; d += kStrip) one(x, d);
  } else {
    for_strips(X, inputs, one);
  }
}

}  // namespace

bool has_vnni() { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl"); }

int32_t weight_steps() { return has_vnni() ? 127 : 64; }

int32_t zero_of_rows() { return has_vnni() ? 128 : 64; }

void ByteRows::round(const Floats& x, int64_t R, int64_t D, Rounding rounding) {
  const int64_t inputs = rounded_up(D, kInputs);
  if (static_cast<int64_t>(rows.size()) < R * inputs) rows.resize(R * inputs);
  if (static_cast<int64_t>(scales.size()) < R) scales.resize(R);
  const bool by_chance = rounding == Rounding::kByChance;
  if (x.input_apart == 1) {
    const auto round = by_chance ? round_row<Rounding::kByChance> : round_row<Rounding::kNearest>;
    for (int64_t r = 0; r < R; ++r)
      round(x.first + r * x.row_apart, D, inputs, zero_of_rows(), rows.data() + r * inputs, &scales[r]);
  } else {
    const auto round = by_chance ? round_columns<Rounding::kByChance> : round_columns<Rounding::kNearest>;
    round(x, R, D, inputs, zero_of_rows(), *this);
  }
}

void PackedWeights::fit(int64_t X, int64_t D) {
  const size_t outputs = rounded_up(X, kLanes), size = packed_size(X, D);
  if (bytes.size() < size) bytes.resize(size);
  if (scales.size() < outputs) scales.resize(outputs);
  if (sums.size() < outputs) sums.resize(outputs);
}

void PackedWeights::round(const Floats& weight, int64_t first, int64_t last, int64_t D, Rounding rounding) {
  if (first >= last) return;
  const bool by_chance = rounding == Rounding::kByChance;
  const auto round = by_chance ? round_weights<Rounding::kByChance> : round_weights<Rounding::kNearest>;
  round(weight, first, last, D, *this);
}

}  // namespace regard
