// Which elements dropout keeps: a pure function of a row's start and an element's place, as `ops/draws.py` has it.
#pragma once

#include <cstdint>

#include "vectors.hpp"

namespace regard {

// The layout is that of `Dropping` in `ops/dropout.py`.
struct Dropping {
  const uint64_t* starts;  // one for each row, from which its random words are counted; null: everything is kept
  int64_t elements;        // of a row
  int32_t threshold;       // a random byte below it drops its element
  float scale;             // of what is kept
};

// The word of eight random bytes with a number, from 0 on: SplitMix64.
inline uint64_t random_word(uint64_t start, int64_t number) {
  uint64_t z = start + static_cast<uint64_t>(number + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// What eight elements are multiplied by: the scale, or nothing.
REGARD_AVX2 inline __m256 factors_of(uint64_t word, __m256i threshold, __m256 scale) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(word)));
  return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(threshold, bytes)), scale);
}

}  // namespace regard
