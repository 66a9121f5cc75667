// The exponentials of a softmax, for attention and for the loss.
#pragma once

#include <cstdint>
#include <limits>

#include "simd.hpp"

namespace regard {

// Logits this far below the largest count as 0: subnormal numbers would slow down the products that they go into.
constexpr float kFarBelow = -80.0f;

// -∞ alone counts as 0.
constexpr float kOnlyMasked = std::numeric_limits<float>::lowest();

// e^(x - largest) of eight scores, and exactly 0 where x - largest < floor. NaN stays NaN.
REGARD_INLINE Vec softmax_weight(Vec score, Vec largest, Vec floor) {
  const Vec below = score - largest;
  return where(not_less(below, floor), exp(below));
}

// Put e^(x - largest) in the place of the n scores of a row; return their sum.
REGARD_INLINE float exponentials(float* row, int64_t n, float largest, float floor) {
  const Vec top = Vec::all(largest), lowest = Vec::all(floor);
  Vec sum = Vec::zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec weight = softmax_weight(Vec::load_some(row + i, n - i, kMinusInfinity), top, lowest);
    sum = sum + weight;
    weight.store_some(row + i, n - i);
  }
  return sum_lanes(sum);
}

}  // namespace regard
