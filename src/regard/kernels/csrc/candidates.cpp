// What a search needs of the logits: log-probabilities, and the best continuations of each sentence.
//
// Plain C on the outside: it knows nothing of Python or torch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 200'000;  // numbers; for fewer, waking one up costs more than it saves
constexpr int64_t kSpan = 512;  // numbers that are summed as floats before the sum goes into a double

REGARD_AVX2 void log_softmax(float* x, int64_t W) {
  const int64_t whole = W / 8 * 8;
  __m256 most = _mm256_set1_ps(kNothing), unordered = _mm256_setzero_ps();
  for (int64_t w = 0; w < whole; w += 8) {
    const __m256 numbers = _mm256_loadu_ps(x + w);
    most = _mm256_max_ps(most, numbers);
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q));
  }
  float largest = largest_of(most);
  bool wrong = _mm256_movemask_ps(unordered) != 0;  // some are not numbers, which a maximum may forget
  for (int64_t w = whole; w < W; ++w) {
    largest = std::max(largest, x[w]);
    wrong = wrong || std::isnan(x[w]);
  }
  double total = 0.0;
  const __m256 top = _mm256_set1_ps(largest);
  for (int64_t first = 0; first < whole; first += kSpan) {
    __m256 sum = _mm256_setzero_ps();
    const int64_t last = std::min(whole, first + kSpan);
    for (int64_t w = first; w < last; w += 8)
      sum = _mm256_add_ps(sum, exponential(_mm256_sub_ps(_mm256_loadu_ps(x + w), top)));
    total += exact_sum_of(sum);
  }
  for (int64_t w = whole; w < W; ++w) total += std::exp(static_cast<double>(x[w] - largest));
  if (!std::isfinite(total) || !std::isfinite(largest) || wrong) {
    std::fill(x, x + W, std::numeric_limits<float>::quiet_NaN());  // as torch does: one word tells of all
    return;
  }
  // The largest first: next to large logits, the logarithm would lose its last bits.
  const float rest = static_cast<float>(std::log(total));
  const __m256 rests = _mm256_set1_ps(rest);
  for (int64_t w = 0; w < whole; w += 8)
    _mm256_storeu_ps(x + w, _mm256_sub_ps(_mm256_sub_ps(_mm256_loadu_ps(x + w), top), rests));
  for (int64_t w = whole; w < W; ++w) x[w] = x[w] - largest - rest;
}

// The k best so far, best first; of equals, the first that came.
struct Best {
  double* totals;
  int64_t* places;
  int64_t k, count;

  double least() const { return count < k ? -std::numeric_limits<double>::infinity() : totals[k - 1]; }

  void offer(double total, int64_t place) {
    if (!(total > least())) return;
    int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && totals[at - 1] < total; --at) {
      totals[at] = totals[at - 1];
      places[at] = places[at - 1];
    }
    totals[at] = total;
    places[at] = place;
  }
};

REGARD_AVX2 void best_of(const float* logs, const double* scores, int64_t N, int64_t W,
                                                 Best& best) {
  for (int64_t n = 0; n < N; ++n) {
    if (scores[n] == -std::numeric_limits<double>::infinity()) continue;
    const float* row = logs + n * W;
    const int64_t whole = W / 8 * 8;
    for (int64_t w = 0; w < whole; w += 8) {
      // Most words are not among the best; which of eight may be is one comparison, with room for rounding.
      const float bar = static_cast<float>(best.least() - scores[n]);
      const __m256 bars = _mm256_set1_ps(bar - std::fabs(bar) * 1e-6f);
      int maybe = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(row + w), bars, _CMP_GE_OQ));
      for (; maybe; maybe &= maybe - 1) {
        const int64_t at = w + __builtin_ctz(maybe);
        if (row[at] != kNothing) best.offer(scores[n] + row[at], n * W + at);
      }
    }
    for (int64_t w = whole; w < W; ++w)
      if (row[w] != kNothing) best.offer(scores[n] + row[w], n * W + w);
  }
}

}  // namespace
}  // namespace regard

extern "C" {

// In place, for each of R rows.
int regard_log_softmax(float* x, int64_t R, int64_t W, int64_t threads) {
  const auto some = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) regard::log_softmax(x + row * W, W);
  };
  threads = std::min(threads, R * W / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(R, threads, some); });
}

// The k highest totals of a row's score and a word's, best first, and where they are: row · W + word.
int regard_best(const float* logs, const double* scores, int64_t B, int64_t N, int64_t W, int64_t k, int64_t threads,
                double* totals, int64_t* places) {
  const auto some = [=](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      regard::Best best{totals + b * k, places + b * k, k, 0};
      regard::best_of(logs + b * N * W, scores + b * N, N, W, best);
      for (; best.count < k; ++best.count) {  // where there are not so many, what is left counts for nothing
        best.totals[best.count] = -std::numeric_limits<double>::infinity();
        best.places[best.count] = 0;
      }
    }
  };
  threads = std::min(threads, B * N * W / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(B, threads, some); });
}
}
