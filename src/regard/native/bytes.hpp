// Products of rows of floats with weights that were rounded to bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace regard {

constexpr int kLanes = 16;  // outputs in a block of packed weights
constexpr int kQuad = 4;    // inputs whose weights for an output lie side by side
constexpr int kInputs = 8;  // inputs come in multiples of this

inline int64_t rounded_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

// How many bytes X × D weights take.
inline int64_t packed_size(int64_t X, int64_t D) { return rounded_up(X, kLanes) * rounded_up(D, kInputs); }

// To how many steps on either side of zero weights may be rounded.
int weight_steps();

// A packed weight matrix, X × D; the layout is also that of a structure in Python.
struct Linear {
  const int8_t* packed;
  const float* scales;  // of the outputs
  const int32_t* sums;  // of each output's weights
  const float* bias;    // or null
  int64_t X, D;
};

// Rows rounded to bytes, with room that is used again.
struct ByteRows {
  std::vector<uint8_t> rows;
  std::vector<float> scales;
};

// To the nearest step, or up or down by chance, so that what is rounded is right on average.
enum class Rounding { kNearest, kByChance };

// y (R × X) = x (R × D) Wᵀ + b, each row of x rounded by itself.
void multiply(const Linear& weights, const float* x, int64_t R, int threads, ByteRows& room, float* y,
              Rounding rounding = Rounding::kNearest);

}  // namespace regard
