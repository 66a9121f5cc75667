// Eight floats or integers at once (AVX2), as types with operators. Kernels are written in these; raw intrinsics are here, and
// in the int8 and float32 matrix products, which have AVX-512 versions.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#define REGARD_AVX2 __attribute__((target("avx2,fma")))
#define REGARD_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace regard {

constexpr int64_t kLanes = 8;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

inline int64_t round_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

// Eight truth values.
struct Mask {
  __m256 v;

  REGARD_INLINE int bits() const { return _mm256_movemask_ps(v); }
  REGARD_INLINE friend Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.v, b.v)}; }
};

// Eight floats.
struct Vec {
  __m256 v;

  REGARD_INLINE static Vec zero() { return {_mm256_setzero_ps()}; }
  REGARD_INLINE static Vec all(float x) { return {_mm256_set1_ps(x)}; }
  REGARD_INLINE static Vec all(const float* x) { return {_mm256_broadcast_ss(x)}; }
  REGARD_INLINE static Vec iota() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)}; }
  REGARD_INLINE static Vec load(const float* x) { return {_mm256_loadu_ps(x)}; }

  // The first `count` of eight, and `fill` for the others.
  REGARD_INLINE static Vec load_some(const float* x, int64_t count, float fill = 0.0f) {
    if (count >= kLanes) return load(x);
    alignas(32) float some[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) some[i] = i < count ? x[i] : fill;
    return {_mm256_load_ps(some)};
  }

  REGARD_INLINE void store(float* x) const { _mm256_storeu_ps(x, v); }

  REGARD_INLINE void store_some(float* x, int64_t count) const {
    if (count >= kLanes) return store(x);
    alignas(32) float some[kLanes];
    _mm256_store_ps(some, v);
    std::copy(some, some + count, x);
  }

  REGARD_INLINE friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  REGARD_INLINE friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  REGARD_INLINE friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
};

// Eight integers of 32 bits.
struct IntVec {
  __m256i v;

  REGARD_INLINE static IntVec zero() { return {_mm256_setzero_si256()}; }
  REGARD_INLINE static IntVec all(int32_t x) { return {_mm256_set1_epi32(x)}; }
  REGARD_INLINE static IntVec iota() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)}; }
  REGARD_INLINE static IntVec load(const int32_t* x) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))}; }
  // The eight bytes of a word, without a sign.
  REGARD_INLINE static IntVec bytes_of(uint64_t word) {
    return {_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(word)))};
  }
  REGARD_INLINE static IntVec bits_of(Vec x) { return {_mm256_castps_si256(x.v)}; }

  REGARD_INLINE void store(int32_t* x) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), v); }

  REGARD_INLINE friend IntVec operator+(IntVec a, IntVec b) { return {_mm256_add_epi32(a.v, b.v)}; }
  REGARD_INLINE friend IntVec operator*(IntVec a, IntVec b) { return {_mm256_mullo_epi32(a.v, b.v)}; }
  REGARD_INLINE friend IntVec operator&(IntVec a, IntVec b) { return {_mm256_and_si256(a.v, b.v)}; }
  REGARD_INLINE friend Mask operator>(IntVec a, IntVec b) { return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.v, b.v))}; }
};

// a · b + c and c - a · b, rounded once.
REGARD_INLINE Vec fmadd(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
REGARD_INLINE Vec fnmadd(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }

// Where either is NaN, the second of the two: an order that keeps NaN is chosen by the caller.
REGARD_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
REGARD_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
REGARD_INLINE IntVec max(IntVec a, IntVec b) { return {_mm256_max_epi32(a.v, b.v)}; }

// Comparisons with NaN are false, but for not_less.
REGARD_INLINE Mask at_most(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
REGARD_INLINE Mask at_least(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
REGARD_INLINE Mask not_less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NLT_UQ)}; }
REGARD_INLINE Mask is_nan(Vec a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }

// x where the mask is true (or false), and 0 elsewhere.
REGARD_INLINE Vec where(Mask mask, Vec x) { return {_mm256_and_ps(mask.v, x.v)}; }
REGARD_INLINE Vec where_not(Mask mask, Vec x) { return {_mm256_andnot_ps(mask.v, x.v)}; }
REGARD_INLINE Vec where(Mask mask, Vec x, Vec otherwise) { return {_mm256_blendv_ps(otherwise.v, x.v, mask.v)}; }
// Where a number of `by` is negative, it takes the place of x.
REGARD_INLINE Vec replaced_by_negative(Vec x, Vec by) { return {_mm256_blendv_ps(x.v, by.v, by.v)}; }

REGARD_INLINE Vec abs(Vec x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }
// |size| with the sign of x; size is not negative.
REGARD_INLINE Vec with_sign_of(Vec x, Vec size) { return {_mm256_or_ps(size.v, _mm256_and_ps(x.v, _mm256_set1_ps(-0.0f)))}; }

REGARD_INLINE IntVec nearest_int(Vec x) { return {_mm256_cvtps_epi32(x.v)}; }
REGARD_INLINE IntVec truncated_int(Vec x) { return {_mm256_cvttps_epi32(x.v)}; }
REGARD_INLINE Vec to_float(IntVec x) { return {_mm256_cvtepi32_ps(x.v)}; }
REGARD_INLINE IntVec half_unsigned(IntVec x) { return {_mm256_srli_epi32(x.v, 1)}; }

REGARD_INLINE float max_lane(Vec x) {
  alignas(32) float lanes[kLanes];
  _mm256_store_ps(lanes, x.v);
  return *std::max_element(lanes, lanes + kLanes);
}

REGARD_INLINE int32_t max_lane(IntVec x) {
  alignas(32) int32_t lanes[kLanes];
  x.store(lanes);
  return *std::max_element(lanes, lanes + kLanes);
}

REGARD_INLINE float sum_lanes(Vec x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

REGARD_INLINE double sum_lanes_exactly(Vec x) {
  alignas(32) float lanes[kLanes];
  _mm256_store_ps(lanes, x.v);
  double sum = 0.0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// e^x for x ≤ 0: 2^n · e^r with |r| ≤ ½ ln 2, by Taylor's series to the sixth power, exact to a float's last bits.
REGARD_INLINE Vec exp(Vec x) {
  x = max(Vec::all(-87.0f), x);  // NaN stays NaN
  const Vec n{_mm256_round_ps((x * Vec::all(1.44269504f)).v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  Vec r = fnmadd(n, Vec::all(0.693145752f), x);
  r = fnmadd(n, Vec::all(1.42860677e-6f), r);
  Vec sum = Vec::all(1.0f / 720);
  for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) sum = fmadd(sum, r, Vec::all(term));
  const __m256i power = _mm256_slli_epi32((nearest_int(n) + IntVec::all(127)).v, 23);
  return sum * Vec{_mm256_castsi256_ps(power)};
}

// Eight rows of eight numbers of 32 bits: columns become rows.
REGARD_INLINE void transpose(__m256i square[kLanes]) {
  __m256i s[kLanes], t[kLanes];
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

REGARD_INLINE void transpose(Vec square[kLanes]) {
  __m256i bits[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) bits[i] = _mm256_castps_si256(square[i].v);
  transpose(bits);
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) square[i].v = _mm256_castsi256_ps(bits[i]);
}

// Thirty-two integers of 8 bits.
struct Int8Vec {
  __m256i v;

  REGARD_INLINE static Int8Vec zero() { return {_mm256_setzero_si256()}; }
  REGARD_INLINE static Int8Vec all(int32_t x) { return {_mm256_set1_epi8(static_cast<char>(x))}; }

  template <typename Int8>
  REGARD_INLINE void store(Int8* x) const {
    static_assert(sizeof(Int8) == 1, "8 bits each");
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), v);
  }

  REGARD_INLINE friend Int8Vec operator+(Int8Vec a, Int8Vec b) { return {_mm256_add_epi8(a.v, b.v)}; }

  // 32 integers with at most so many steps on either side of zero. Packing works on either half of a register by itself: in
  // each, four numbers of the first are followed by four of the second, and so on.
  REGARD_INLINE static Int8Vec packed(const IntVec numbers[4], Int8Vec most) {
    const __m256i pairs = _mm256_packs_epi32(numbers[0].v, numbers[1].v);
    const __m256i others = _mm256_packs_epi32(numbers[2].v, numbers[3].v);
    const __m256i least = _mm256_sub_epi8(_mm256_setzero_si256(), most.v);
    return {_mm256_max_epi8(least, _mm256_min_epi8(most.v, _mm256_packs_epi16(pairs, others)))};
  }

  // What was packed from 32 numbers of a row, in the row's order.
  REGARD_INLINE Int8Vec in_order() const {
    return {_mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))};
  }

  // What was packed from four rows of eight numbers, column by column.
  REGARD_INLINE Int8Vec by_columns() const {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return {_mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order))};
  }

  // The sums of each four.
  REGARD_INLINE IntVec sums_of_quads() const {
    return {_mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1))};
  }
};

// Eight rows of eight groups of four: columns become rows.
REGARD_INLINE void transpose_quads(Int8Vec square[kLanes]) {
  __m256i bits[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) bits[i] = square[i].v;
  transpose(bits);
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) square[i].v = bits[i];
}

// a · b
REGARD_AVX2 inline float dot(const float* a, const float* b, int64_t size) {
  Vec sum = Vec::zero();
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) sum = fmadd(Vec::load(a + i), Vec::load(b + i), sum);
  float total = sum_lanes(sum);
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

// y += factor · x
REGARD_AVX2 inline void add(float* y, const float* x, float factor, int64_t size) {
  const Vec factors = Vec::all(factor);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) fmadd(factors, Vec::load(x + i), Vec::load(y + i)).store(y + i);
  for (; i < size; ++i) y[i] += factor * x[i];
}

}  // namespace regard
