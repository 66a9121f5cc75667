// Products of rows of floats with weights that were rounded to bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "floats.hpp"

namespace regard {

constexpr int kLanes = 16;  // outputs in a block of packed weights
constexpr int kQuad = 4;    // inputs whose weights for an output lie side by side
constexpr int kInputs = 8;  // inputs come in multiples of this

inline int64_t rounded_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

// How many bytes X × D weights take.
inline int64_t packed_size(int64_t X, int64_t D) { return rounded_up(X, kLanes) * rounded_up(D, kInputs); }

// Whether this processor multiplies bytes in one instruction (AVX-512 with VNNI).
bool has_vnni();

// To how many steps on either side of zero weights may be rounded.
int32_t weight_steps();

// The byte that stands for zero in a row. Rows have one step fewer than this on either side.
int32_t zero_of_rows();

// A packed weight matrix, X × D; the layout is also that of a structure in Python.
struct Linear {
  const int8_t* packed;
  const float* scales;  // of the outputs
  const int32_t* sums;  // of each output's weights
  const float* bias;    // or null
  int64_t X, D;
};

// To the nearest step, or up or down by chance, so that what is rounded is right on average.
enum class Rounding { kNearest, kByChance };

// Rows rounded to bytes, each by itself, with room that is used again.
struct ByteRows {
  std::vector<uint8_t> rows;  // R × D, D rounded up to a multiple of kInputs
  std::vector<float> scales;  // R

  void round(const Floats& x, int64_t R, int64_t D, Rounding rounding);
};

// Weights rounded and packed, with room that is used again.
struct PackedWeights {
  std::vector<int8_t> bytes;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  void fit(int64_t X, int64_t D);
  // Round the outputs from first to last; first is at the start of a block.
  void round(const Floats& weight, int64_t first, int64_t last, int64_t D, Rounding rounding);
};

// Weights that are rounded for the products of one step, of any number of inputs: each 1,024 of them have scales of their own.
class RoundedWeights {
 public:
  void round(const Floats& weight, int64_t X, int64_t D, Rounding rounding, int64_t threads);
  // y (R × X) = x (R × D) Wᵀ + b of rows of floats, by this thread; the bias may be null.
  void multiply(const Floats& x, int64_t R, Rounding rounding, const float* bias, ByteRows& room, float* y) const;

 private:
  int64_t inputs_of(int64_t part) const;

  std::vector<PackedWeights> parts_;  // and room for more
  int64_t X_ = 0, D_ = 0;
};

// y (R × X) = x (R × D) Wᵀ + b of rows that are rounded, or that added to y.
void multiply(const Linear& weights, const ByteRows& x, int64_t R, int threads, float* y, bool add = false);

// The same of rows of floats, rounded to the nearest.
void multiply(const Linear& weights, const float* x, int64_t R, int threads, ByteRows& room, float* y);

}  // namespace regard
