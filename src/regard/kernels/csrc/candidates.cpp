// What a search needs of the logits: log-probabilities, and the best continuations of each sentence.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "errors.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kMinLogits = 200'000;  // for each thread; for fewer, waking one up costs more than it saves
constexpr int64_t kSpan = 512;           // numbers that are summed as floats before the sum goes into a double

REGARD_AVX2 void log_softmax(float* x, int64_t W) {
  const int64_t whole = W / kLanes * kLanes;
  Vec most = Vec::all(kMinusInfinity);
  Mask nans{Vec::zero().v};
  for (int64_t w = 0; w < whole; w += kLanes) {
    const Vec logits = Vec::load(x + w);
    most = max(most, logits);
    nans = nans | is_nan(logits);
  }
  float largest = max_lane(most);
  bool nan = nans.bits() != 0;  // a maximum may forget them
  for (int64_t w = whole; w < W; ++w) {
    largest = std::max(largest, x[w]);
    nan = nan || std::isnan(x[w]);
  }
  double total = 0.0;
  const Vec top = Vec::all(largest);
  for (int64_t first = 0; first < whole; first += kSpan) {
    Vec sum = Vec::zero();
    const int64_t last = std::min(whole, first + kSpan);
    for (int64_t w = first; w < last; w += kLanes) sum = sum + exp(Vec::load(x + w) - top);
    total += sum_lanes_exactly(sum);
  }
  for (int64_t w = whole; w < W; ++w) total += std::exp(static_cast<double>(x[w] - largest));
  if (!std::isfinite(total) || !std::isfinite(largest) || nan)  // as torch does: one logit spoils its row
    return std::fill(x, x + W, std::numeric_limits<float>::quiet_NaN());
  // The largest first: next to large logits, the logarithm would lose its last bits.
  const float rest = static_cast<float>(std::log(total));
  const Vec rests = Vec::all(rest);
  for (int64_t w = 0; w < whole; w += kLanes) (Vec::load(x + w) - top - rests).store(x + w);
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

REGARD_AVX2 void find_best(const float* logs, const double* scores, int64_t N, int64_t W, Best& best) {
  for (int64_t n = 0; n < N; ++n) {
    if (scores[n] == -std::numeric_limits<double>::infinity()) continue;
    const float* row = logs + n * W;
    const int64_t whole = W / kLanes * kLanes;
    for (int64_t w = 0; w < whole; w += kLanes) {
      // Most words are not among the best; which of eight may be is one comparison, with a margin for rounding.
      const float bar = static_cast<float>(best.least() - scores[n]);
      int maybe = at_least(Vec::load(row + w), Vec::all(bar - std::fabs(bar) * 1e-6f)).bits();
      for (; maybe; maybe &= maybe - 1) {
        const int64_t at = w + __builtin_ctz(maybe);
        if (row[at] != kMinusInfinity) best.offer(scores[n] + row[at], n * W + at);
      }
    }
    for (int64_t w = whole; w < W; ++w)
      if (row[w] != kMinusInfinity) best.offer(scores[n] + row[w], n * W + w);
  }
}

}  // namespace
}  // namespace regard

extern "C" {

// In place, for each of R rows.
int regard_log_softmax(float* x, int64_t R, int64_t W, int64_t threads) {
  using namespace regard;
  const auto do_rows = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) log_softmax(x + row * W, W);
  };
  return guarded([&] {
    require(R >= 0 && W >= 0, "sizes must not be negative");
    parallel_for(R, std::min(threads, R * W / kMinLogits), do_rows);
  });
}

// The k highest totals of a row's score and a word's, best first, and where they are: row · W + word.
int regard_top_k(const float* logs, const double* scores, int64_t B, int64_t N, int64_t W, int64_t k, int64_t threads,
                 double* totals, int64_t* places) {
  using namespace regard;
  const auto do_sentences = [=](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      Best best{totals + b * k, places + b * k, k, 0};
      find_best(logs + b * N * W, scores + b * N, N, W, best);
      for (; best.count < k; ++best.count) {  // where there are fewer than k
        best.totals[best.count] = -std::numeric_limits<double>::infinity();
        best.places[best.count] = 0;
      }
    }
  };
  return guarded([&] {
    require(B >= 0 && N >= 0 && W >= 0 && k > 0, "the best continuations need sizes and a k of at least 1");
    parallel_for(B, std::min(threads, B * N * W / kMinLogits), do_sentences);
  });
}
}
