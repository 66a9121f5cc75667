// What is done to eight floats at once.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#define REGARD_AVX2 __attribute__((target("avx2,fma")))

namespace regard {

constexpr float kNothing = -std::numeric_limits<float>::infinity();  // the score of what cannot be

// Room that grows to what is needed, and is used again.
inline float* at_least(std::vector<float>& room, int64_t size) {
  if (static_cast<int64_t>(room.size()) < size) room.resize(size);
  return room.data();
}

// e^x for x ≤ 0: 2^n · e^r with |r| ≤ ½ ln 2, by Taylor's series to the sixth power, exact to a float's last bits.
REGARD_AVX2 inline __m256 exponential(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-87.0f), x);  // of the two, what is not a number stays so if it is the second
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
  __m256 sum = _mm256_set1_ps(1.0f / 720);
  for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(term));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(sum, _mm256_castsi256_ps(power));
}

// The first of eight numbers, as many as are there; the others are zero unless given.
REGARD_AVX2 inline __m256 some_of(const float* x, int64_t there, float beyond = 0.0f) {
  if (there >= 8) return _mm256_loadu_ps(x);
  alignas(32) float few[8];
  for (int64_t i = 0; i < 8; ++i) few[i] = i < there ? x[i] : beyond;
  return _mm256_load_ps(few);
}

// Eight rows of eight numbers of four bytes each: columns become rows.
REGARD_AVX2 inline void turn(__m256i square[8]) {
  __m256i s[8], t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_epi32(square[i], square[i + 1]);
    s[i + 1] = _mm256_unpackhi_epi32(square[i], square[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    t[i] = _mm256_unpacklo_epi64(s[i], s[i + 2]);
    t[i + 1] = _mm256_unpackhi_epi64(s[i], s[i + 2]);
    t[i + 2] = _mm256_unpacklo_epi64(s[i + 1], s[i + 3]);
    t[i + 3] = _mm256_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    square[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
    square[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
  }
}

REGARD_AVX2 inline float largest_of(__m256 x) {
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, x);
  return *std::max_element(lanes, lanes + 8);
}

REGARD_AVX2 inline float sum_of(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

REGARD_AVX2 inline double exact_sum_of(__m256 x) {
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, x);
  double sum = 0.0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// a · b
REGARD_AVX2 inline float dot(const float* a, const float* b, int64_t size) {
  __m256 sum = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) sum = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), sum);
  float total = sum_of(sum);
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

// y += factor · x
REGARD_AVX2 inline void add(float* y, const float* x, float factor, int64_t size) {
  const __m256 factors = _mm256_set1_ps(factor);
  int64_t i = 0;
  for (; i + 8 <= size; i += 8)
    _mm256_storeu_ps(y + i, _mm256_fmadd_ps(factors, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  for (; i < size; ++i) y[i] += factor * x[i];
}

}  // namespace regard
