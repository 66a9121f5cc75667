// Floats rounded to int8: rows, each with a scale of its own, and weights, each output with one, whichever way they lie in
// memory.
//
// Most of it goes in strips: 32 inputs of eight rows at once, as eight registers. Rows in memory give a register for each row;
// columns give one for each four inputs, as packed weights have it; a transpose leads from one to the other.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "int8.hpp"
#include "level.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kRows = kLanes;   // of a strip
constexpr int64_t kStrip = 32;      // inputs of a strip
constexpr int64_t kCacheLine = 64;  // bytes

static_assert(kStrip / kQuad == kRows, "a strip has as many registers either way");

// The noise of stochastic rounding goes from -½ to ½. That of a row goes round a circle in even steps, from a start that is
// hashed from its largest number, but for the power of two: no row needs to know where it stands, and twice the row is rounded
// to twice the numbers. Rows and weights have steps that do not go together: the golden part of a circle of 2³², and that of
// the plastic number.
constexpr uint32_t kRowStep = 0x9E3779B9u, kWeightStep = 0xC13FA9A9u;

int32_t noise_start(float largest) {
  uint32_t bits;
  std::memcpy(&bits, &largest, sizeof bits);
  bits &= 0x7fffff;
  bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
  bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
  return static_cast<int32_t>(bits ^ bits >> 16);
}

REGARD_INLINE IntVec noise_steps(uint32_t step, int64_t count) {
  return IntVec::all(static_cast<int32_t>(step * static_cast<uint32_t>(count)));
}

// The noise of eight numbers of a row, of which the first is at d.
REGARD_INLINE IntVec row_noise(int32_t start, uint32_t step, int64_t d) {
  return IntVec::all(start) + IntVec::iota() * noise_steps(step, 1) + noise_steps(step, d);
}

// Eight numbers as whole steps.
template <Rounding rounding>
REGARD_INLINE IntVec rounded(Vec numbers, Vec inverse_scale, IntVec noise) {
  Vec scaled = numbers * inverse_scale;
  if (rounding == Rounding::kStochastic) scaled = fmadd(to_float(noise), Vec::all(1.0f / 4294967296.0f), scaled);
  return nearest_int(scaled);
}

// 32 numbers of a row.
template <Rounding rounding>
REGARD_INLINE Int8Vec quantized_row(const float* x, Vec inverse_scale, IntVec& noise, IntVec to_next, Int8Vec most) {
  IntVec numbers[4];
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    numbers[part] = rounded<rounding>(Vec::load(x + kLanes * part), inverse_scale, noise);
    if (rounding == Rounding::kStochastic) noise = noise + to_next;
  }
  return Int8Vec::packed(numbers, most).in_order();
}

// Four numbers of each of eight columns, which lie side by side.
template <Rounding rounding>
REGARD_INLINE Int8Vec quantized_columns(const Vec x[kQuad], Vec inverse_scale, IntVec& noise, IntVec to_next, Int8Vec most) {
  IntVec numbers[kQuad];
#pragma GCC unroll 4
  for (int i = 0; i < kQuad; ++i) {
    numbers[i] = rounded<rounding>(x[i], inverse_scale, noise);
    if (rounding == Rounding::kStochastic) noise = noise + to_next;
  }
  return Int8Vec::packed(numbers, most).by_columns();
}

// The bits of floats without their sign: they are ordered as the magnitudes are, with NaN above all.
REGARD_INLINE IntVec magnitude_bits(Vec x) { return IntVec::bits_of(x) & IntVec::all(0x7fffffff); }

REGARD_AVX2 int32_t largest_magnitude(const float* row, int64_t D) {
  IntVec most = IntVec::zero();
  for (int64_t d = 0; d < D; d += kLanes) most = max(most, magnitude_bits(Vec::load_some(row + d, D - d)));
  return max_lane(most);
}

// The same of R columns; memory is read in its order.
REGARD_AVX2 void largest_magnitudes(const float* columns, int64_t stride, int64_t R, int64_t D, int32_t* magnitudes) {
  for (int64_t d = 0; d < D; ++d, columns += stride) {
    int64_t r = 0;
    for (; r + kLanes <= R; r += kLanes)
      max(IntVec::load(magnitudes + r), magnitude_bits(Vec::load(columns + r))).store(magnitudes + r);
    if (r < R)
      max(IntVec::load(magnitudes + r), magnitude_bits(Vec::load_some(columns + r, R - r))).store(magnitudes + r);
  }
}

// How a row is rounded.
struct Scale {
  float scale, inverse, largest;

  Scale(int32_t magnitude, int32_t most) {
    std::memcpy(&largest, &magnitude, sizeof largest);
    scale = std::max(largest, 1e-30f) / most;
    if (!std::isfinite(scale)) scale = std::numeric_limits<float>::quiet_NaN();  // NaN and ∞ must not become numbers
    inverse = 1.0f / scale;
  }
};

// The scales of many rows.
struct Scales {
  std::vector<int32_t> magnitudes, noise;  // the bits of the largest magnitude, and where the noise starts
  std::vector<float> inverse;

  REGARD_AVX2 void measure(const MatrixView& x, int64_t R, int64_t D, int32_t most, float* scales) {
    const int64_t size = round_up(R, kRows);
    magnitudes.assign(size, 0);
    noise.assign(size, 0);
    inverse.assign(size, 0.0f);
    if (x.column_stride == 1)
      for (int64_t r = 0; r < R; ++r) magnitudes[r] = largest_magnitude(x.data + r * x.row_stride, D);
    else
      largest_magnitudes(x.data, x.column_stride, R, D, magnitudes.data());
    for (int64_t r = 0; r < R; ++r) {
      const Scale scale(magnitudes[r], most);
      scales[r] = scale.scale;
      inverse[r] = scale.inverse;
      noise[r] = noise_start(scale.largest);
    }
  }
};

// A strip of rows in memory: one register for each.
template <Rounding rounding>
REGARD_AVX2 void strip_of_rows(const MatrixView& x, int64_t r, int64_t R, int64_t d, int64_t D, const Scales& scales,
                               uint32_t step, Int8Vec most, Int8Vec strip[kRows]) {
  for (int64_t i = 0; i < kRows; ++i) {
    if (r + i >= R) {
      strip[i] = Int8Vec::zero();
      continue;
    }
    const float* row = x.data + (r + i) * x.row_stride + d;
    alignas(32) float few[kStrip];
    if (D - d < kStrip) {
      std::fill(std::copy_n(row, D - d, few), few + kStrip, 0.0f);
      row = few;
    }
    IntVec noise = row_noise(scales.noise[r + i], step, d);
    strip[i] = quantized_row<rounding>(row, Vec::all(scales.inverse[r + i]), noise, noise_steps(step, kLanes), most);
  }
}

// A strip of columns: one register for each four inputs.
template <Rounding rounding>
REGARD_AVX2 void strip_of_columns(const MatrixView& x, int64_t r, int64_t R, int64_t d, int64_t D, const Scales& scales,
                                  uint32_t step, Int8Vec most, Int8Vec strip[kRows]) {
  const Vec inverse = Vec::load(&scales.inverse[r]);
  IntVec noise = IntVec::load(&scales.noise[r]) + noise_steps(step, d);
  const bool all = R - r >= kRows && D - d >= kStrip;
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t input = d + i * kQuad;
    Vec numbers[kQuad];
#pragma GCC unroll 4
    for (int64_t k = 0; k < kQuad; ++k)
      numbers[k] = all ? Vec::load(x.data + (input + k) * x.column_stride + r)
                   : input + k < D ? Vec::load_some(x.data + (input + k) * x.column_stride + r, R - r)
                                   : Vec::zero();
    strip[i] = quantized_columns<rounding>(numbers, inverse, noise, noise_steps(step, 1), most);
  }
}

// Go through the strips of columns as they lie in memory, but so that each cache line of rows is written at once.
template <typename Work>
REGARD_AVX2 inline void for_strips(int64_t R, int64_t inputs, const Work& work) {
  for (int64_t start = 0; start < inputs; start += kCacheLine)
    for (int64_t r = 0; r < R; r += kRows)
      for (int64_t d = start; d < std::min(inputs, start + kCacheLine); d += kStrip) work(r, d);
}

template <Rounding rounding>
REGARD_AVX2 void quantize_row(const float* x, int64_t D, int64_t inputs, int32_t zero, uint8_t* row, float* row_scale) {
  const Scale scale(largest_magnitude(x, D), zero - 1);
  *row_scale = scale.scale;
  const Vec inverse = Vec::all(scale.inverse);
  const Int8Vec zeros = Int8Vec::all(zero), most = Int8Vec::all(zero - 1);
  const IntVec to_next = noise_steps(kRowStep, kLanes);
  IntVec noise = row_noise(noise_start(scale.largest), kRowStep, 0);
  int64_t d = 0;
  for (; d + kStrip <= D; d += kStrip) (quantized_row<rounding>(x + d, inverse, noise, to_next, most) + zeros).store(row + d);
  if (d == inputs) return;
  alignas(32) float few[kStrip] = {};
  std::copy(x + d, x + D, few);
  const Int8Vec rest = quantized_row<rounding>(few, inverse, noise, to_next, most) + zeros;
  std::memcpy(row + d, &rest, inputs - d);  // weights of inputs beyond D are zero
}

// Round R rows that are columns in memory.
template <Rounding rounding>
REGARD_AVX2 void quantize_columns(const MatrixView& x, int64_t R, int64_t D, int64_t inputs, int32_t zero, QuantizedRows& to) {
  thread_local Scales workspace;
  Scales& scales = workspace;  // a thread-local variable is looked up at each use
  scales.measure(x, R, D, zero - 1, to.scales.data());
  const Int8Vec zeros = Int8Vec::all(zero), most = Int8Vec::all(zero - 1);
  for_strips(R, inputs, [&](int64_t r, int64_t d) REGARD_AVX2 {
    Int8Vec strip[kRows];
    strip_of_columns<rounding>(x, r, R, d, D, scales, kRowStep, most, strip);
    transpose_quads(strip);
    for (int64_t i = 0; i < std::min(kRows, R - r); ++i) {
      uint8_t* row = to.rows.data() + (r + i) * inputs + d;
      strip[i] = strip[i] + zeros;
      if (inputs - d >= kStrip)
        strip[i].store(row);
      else
        std::memcpy(row, &strip[i], inputs - d);
    }
  });
}

template <Rounding rounding>
REGARD_AVX2 void quantize_weights(const MatrixView& weight, int64_t first, int64_t last, int64_t D, PackedWeights& to) {
  thread_local Scales workspace;
  Scales& scales = workspace;
  const int64_t inputs = round_up(D, kInputStep), X = last - first;
  const MatrixView some = weight.from_row(first);
  scales.measure(some, X, D, weight_steps(), &to.scales[first]);
  std::fill_n(&to.sums[first], round_up(X, kRows), 0);
  const Int8Vec most = Int8Vec::all(weight_steps());
  const auto pack_strip = [&](int64_t x, int64_t d) REGARD_AVX2 {
    Int8Vec strip[kRows];
    if (some.column_stride == 1) {
      strip_of_rows<rounding>(some, x, X, d, D, scales, kWeightStep, most, strip);
      transpose_quads(strip);
    } else {
      strip_of_columns<rounding>(some, x, X, d, D, scales, kWeightStep, most, strip);
    }
    const int64_t output = first + x, block = output / kBlockOutputs * kBlockOutputs;
    int8_t* packed = &to.packed[block * inputs + (output - block) * kQuad + d * kBlockOutputs];
    IntVec sums = IntVec::load(&to.sums[output]);
    for (int64_t i = 0; i < std::min(kRows, (inputs - d) / kQuad); ++i) {
      strip[i].store(packed + i * kQuad * kBlockOutputs);
      sums = sums + strip[i].sums_of_quads();
    }
    sums.store(&to.sums[output]);
  };
  if (some.column_stride == 1) {  // memory is read in its order
    for (int64_t x = 0; x < X; x += kRows)
      for (int64_t d = 0; d < inputs; d += kStrip) pack_strip(x, d);
  } else {
    for_strips(X, inputs, pack_strip);
  }
}

}  // namespace

int32_t weight_steps() { return level() == kVnni ? 127 : 64; }

int32_t row_zero_point() { return level() == kVnni ? 128 : 64; }

void QuantizedRows::quantize(const MatrixView& x, int64_t R, int64_t D, Rounding rounding) {
  const int64_t inputs = round_up(D, kInputStep);
  grown(rows, R * inputs);
  grown(scales, R);
  const bool stochastic = rounding == Rounding::kStochastic;
  if (x.column_stride == 1) {
    const auto quantize = stochastic ? quantize_row<Rounding::kStochastic> : quantize_row<Rounding::kNearest>;
    for (int64_t r = 0; r < R; ++r)
      quantize(x.data + r * x.row_stride, D, inputs, row_zero_point(), rows.data() + r * inputs, &scales[r]);
  } else {
    const auto quantize = stochastic ? quantize_columns<Rounding::kStochastic> : quantize_columns<Rounding::kNearest>;
    quantize(x, R, D, inputs, row_zero_point(), *this);
  }
}

void PackedWeights::reserve(int64_t X, int64_t D) {
  const int64_t outputs = round_up(X, kBlockOutputs);
  grown(packed, packed_size(X, D));
  grown(scales, outputs);
  grown(sums, outputs);
}

void PackedWeights::quantize(const MatrixView& weight, int64_t first, int64_t last, int64_t D, Rounding rounding) {
  if (first >= last) return;
  const bool stochastic = rounding == Rounding::kStochastic;
  const auto quantize = stochastic ? quantize_weights<Rounding::kStochastic> : quantize_weights<Rounding::kNearest>;
  quantize(weight, first, last, D, *this);
}

}  // namespace regard
