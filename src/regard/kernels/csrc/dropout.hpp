// The random bits of dropout, as in `ops/rng.py`.
#pragma once

#include <cstdint>

#include "simd.hpp"
#include "structs.hpp"

namespace regard {

// The n-th word of eight random bytes, from 0 on: SplitMix64.
inline uint64_t random_word(uint64_t start, int64_t n) {
  uint64_t z = start + static_cast<uint64_t>(n + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Dropout of a row from an element on, a multiple of eight, eight elements at a time.
class RowDropout {
 public:
  REGARD_INLINE RowDropout(const DropoutStream& d, int64_t row, int64_t first)
      : start_(d.starts ? d.starts[row] : 0),
        word_(first / kLanes),
        threshold_(IntVec::all(d.starts ? d.threshold : 0)),
        scale_(Vec::all(d.scale)),
        keeps_all_(!d.starts) {}

  // What the elements from the i-th on are multiplied by: the scale, or 0.
  REGARD_INLINE Vec factors(int64_t i) const {
    return where_not(threshold_ > IntVec::bytes_of(random_word(start_, word_ + i / kLanes)), scale_);
  }

  REGARD_INLINE Vec operator()(Vec x, int64_t i) const { return keeps_all_ ? x : x * factors(i); }

 private:
  uint64_t start_;
  int64_t word_;
  IntVec threshold_;
  Vec scale_;
  bool keeps_all_;
};

}  // namespace regard
