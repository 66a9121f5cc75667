// The moments of a row, for layer norm in training and in decoding.
#pragma once

#include <cmath>
#include <cstdint>

#include "simd.hpp"

namespace regard {

REGARD_INLINE float row_mean(const float* x, int64_t D) {
  Vec sum = Vec::zero();
  int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) sum = sum + Vec::load(x + d);
  float total = sum_lanes(sum);
  for (; d < D; ++d) total += x[d];
  return total / static_cast<float>(D);
}

// 1 / √(E[(x - mean)²] + eps)
REGARD_INLINE float row_inverse_deviation(const float* x, int64_t D, float mean, float eps) {
  const Vec means = Vec::all(mean);
  Vec squares = Vec::zero();
  int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) {
    const Vec centered = Vec::load(x + d) - means;
    squares = fmadd(centered, centered, squares);
  }
  float total = sum_lanes(squares);
  for (; d < D; ++d) total += (x[d] - mean) * (x[d] - mean);
  return 1.0f / std::sqrt(total / static_cast<float>(D) + eps);
}

}  // namespace regard
