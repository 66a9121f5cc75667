// Cross-entropy and its gradient in the place of the logits, each row in one go. Plain C on the outside.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 20'000;  // logits; for fewer, waking a thread up costs more than it saves

// Eight logits from w on of W, and what can never be for those beyond.
REGARD_AVX2 inline __m256 logits_at(const float* logits, int64_t w, int64_t W) {
  if (w + 8 <= W) return _mm256_loadu_ps(logits + w);
  alignas(32) float some[8];
  for (int64_t i = 0; i < 8; ++i) some[i] = w + i < W ? logits[w + i] : kNothing;
  return _mm256_load_ps(some);
}

REGARD_AVX2 inline void put(__m256 values, float* row, int64_t w, int64_t W) {
  if (w + 8 <= W) return _mm256_storeu_ps(row + w, values);
  alignas(32) float some[8];
  _mm256_store_ps(some, values);
  std::copy(some, some + W - w, row + w);
}

// Puts softmax(z) - (1 - ε) · one-hot in the place of z; gives -log p + ε · z of the label.
REGARD_AVX2 float surprise(float* row, int64_t W, int64_t label, float smoothing) {
  const float given = row[label];
  __m256 most = _mm256_set1_ps(kNothing);
  for (int64_t w = 0; w < W; w += 8) most = _mm256_max_ps(logits_at(row, w, W), most);
  const float largest = largest_of(most);
  const __m256 top = _mm256_set1_ps(largest);
  __m256 sums = _mm256_setzero_ps();
  for (int64_t w = 0; w < W; w += 8) {
    const __m256 below = _mm256_sub_ps(logits_at(row, w, W), top);
    // Where nothing is left it is 0: numbers too small to be normal would slow the products down that they go into.
    const __m256 some = _mm256_cmp_ps(below, _mm256_set1_ps(-80.0f), _CMP_NLT_UQ);
    const __m256 chance = _mm256_and_ps(some, exponential(below));
    sums = _mm256_add_ps(sums, chance);
    put(chance, row, w, W);
  }
  const float sum = sum_of(sums);
  const __m256 inverse = _mm256_set1_ps(1.0f / sum);
  for (int64_t w = 0; w < W; w += 8) put(_mm256_mul_ps(logits_at(row, w, W), inverse), row, w, W);
  row[label] -= 1.0f - smoothing;
  return std::log(sum) + (largest - given) + smoothing * given;
}

}  // namespace
}  // namespace regard

extern "C" int regard_surprise(float* logits, const int64_t* labels, int64_t R, int64_t W, float smoothing,
                               int64_t threads, float* surprises) {
  const auto some = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      surprises[row] = regard::surprise(logits + row * W, W, labels[row], smoothing);
  };
  threads = std::min(threads, R * W / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(R, threads, some, &regard::share_with_team); });
}
