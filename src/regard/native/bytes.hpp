// Products of rows of floats with weights that were rounded to bytes.
#pragma once

#include <cstdint>
#include <vector>


namespace regard {

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

// y (R × X) = x (R × D) Wᵀ + b, each row of x rounded by itself.
void multiply(const Linear& weights, const float* x, int64_t R, int threads, ByteRows& room, float* y);

}  // namespace regard
