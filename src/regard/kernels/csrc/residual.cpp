// What follows every sublayer in training: dropout, the residual connection and its norm, each row in one go.
//
// What is dropped is drawn again on the way back, which takes less time than to read it. The structures have the layout
// of those in `ops/dropout.py` and `ops/add_norm.py`. Plain C on the outside.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "dropping.hpp"
#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 30'000;  // elements; for fewer, waking one up costs more than it saves
constexpr int64_t kBlock = 64;             // rows whose changes of γ and β are summed before they are added to others

struct Join {
  int64_t B, T, D;  // sentences, positions, features: D is a multiple of 8
  Dropping dropping;
  const float *x, *y;          // what goes past the sublayer, and what comes out of it
  float *sums, *moments;       // B × T × D: x + dropped y; B × T × 2: their mean and one over their deviation
  const float *gamma, *beta;
  float eps;
};

struct JoinGradients {
  const float* output;
  float *x, *y, *gamma, *beta;
};

REGARD_AVX2 void drop(const Dropping& d, const float* x, int64_t row, int64_t first, int64_t last, float* y) {
  const __m256i threshold = _mm256_set1_epi32(d.threshold);
  const __m256 scale = _mm256_set1_ps(d.scale);
  x += row * d.elements;
  y += row * d.elements;
  int64_t e = first;
  for (; e + 8 <= last; e += 8) {
    const __m256 factors = factors_of(random_word(d.starts[row], e / 8), threshold, scale);
    _mm256_storeu_ps(y + e, _mm256_mul_ps(_mm256_loadu_ps(x + e), factors));
  }
  if (e == last) return;
  alignas(32) float factors[8];
  _mm256_store_ps(factors, factors_of(random_word(d.starts[row], e / 8), threshold, scale));
  for (int64_t i = 0; e + i < last; ++i) y[e + i] = x[e + i] * factors[i];
}

// What is left of eight elements at a time, from one that begins a word of its row on; or all of them.
class Dropped {
 public:
  REGARD_AVX2 Dropped(const Dropping& d, int64_t b, int64_t first)
      : start_(d.starts ? d.starts[b] : 0), word_(first / 8), threshold_(_mm256_set1_epi32(d.starts ? d.threshold : 0)),
        scale_(_mm256_set1_ps(d.scale)), all_(!d.starts) {}
  REGARD_AVX2 __m256 of(__m256 y, int64_t i) const {
    return all_ ? y : _mm256_mul_ps(y, factors_of(random_word(start_, word_ + i / 8), threshold_, scale_));
  }

 private:
  uint64_t start_;
  int64_t word_;
  __m256i threshold_;
  __m256 scale_;
  bool all_;
};

REGARD_AVX2 void join_row(const Join& j, int64_t row, float* output) {
  const int64_t b = row / j.T, at = row * j.D;
  const float *x = j.x + at, *y = j.y + at;
  float* sums = j.sums + at;
  output += at;
  const Dropped dropped(j.dropping, b, (row % j.T) * j.D);
  __m256 total = _mm256_setzero_ps();
  for (int64_t i = 0; i < j.D; i += 8) {
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(x + i), dropped.of(_mm256_loadu_ps(y + i), i));
    _mm256_storeu_ps(sums + i, sum);
    total = _mm256_add_ps(total, sum);
  }
  const float mean = sum_of(total) / static_cast<float>(j.D);
  const __m256 means = _mm256_set1_ps(mean);
  __m256 squares = _mm256_setzero_ps();
  for (int64_t i = 0; i < j.D; i += 8) {
    const __m256 apart = _mm256_sub_ps(_mm256_loadu_ps(sums + i), means);
    squares = _mm256_fmadd_ps(apart, apart, squares);
  }
  const float inverse = 1.0f / std::sqrt(sum_of(squares) / static_cast<float>(j.D) + j.eps);
  const __m256 inverses = _mm256_set1_ps(inverse);
  for (int64_t i = 0; i < j.D; i += 8) {
    const __m256 normal = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(sums + i), means), inverses);
    _mm256_storeu_ps(output + i, _mm256_fmadd_ps(normal, _mm256_loadu_ps(j.gamma + i), _mm256_loadu_ps(j.beta + i)));
  }
  j.moments[2 * row] = mean;
  j.moments[2 * row + 1] = inverse;
}

// With n = (h - mean) / deviation and c = γ · change: the change of h is (c - E[c] - n · E[c · n]) / deviation.
REGARD_AVX2 void join_row_backward(const Join& j, const JoinGradients& g, int64_t row, float* gamma, float* beta) {
  const int64_t b = row / j.T, at = row * j.D;
  const float *change = g.output + at, *sums = j.sums + at;
  const Dropped dropped(j.dropping, b, (row % j.T) * j.D);
  const __m256 means = _mm256_set1_ps(j.moments[2 * row]), inverses = _mm256_set1_ps(j.moments[2 * row + 1]);
  __m256 total = _mm256_setzero_ps(), along = _mm256_setzero_ps();
  for (int64_t i = 0; i < j.D; i += 8) {
    const __m256 given = _mm256_loadu_ps(change + i);
    const __m256 normal = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(sums + i), means), inverses);
    const __m256 scaled = _mm256_mul_ps(given, _mm256_loadu_ps(j.gamma + i));
    total = _mm256_add_ps(total, scaled);
    along = _mm256_fmadd_ps(scaled, normal, along);
    _mm256_storeu_ps(gamma + i, _mm256_fmadd_ps(given, normal, _mm256_loadu_ps(gamma + i)));
    _mm256_storeu_ps(beta + i, _mm256_add_ps(given, _mm256_loadu_ps(beta + i)));
  }
  const __m256 mean = _mm256_set1_ps(sum_of(total) / static_cast<float>(j.D));
  const __m256 slope = _mm256_set1_ps(sum_of(along) / static_cast<float>(j.D));
  for (int64_t i = 0; i < j.D; i += 8) {
    const __m256 normal = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(sums + i), means), inverses);
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(change + i), _mm256_loadu_ps(j.gamma + i));
    const __m256 apart = _mm256_sub_ps(_mm256_fnmadd_ps(normal, slope, scaled), mean);
    const __m256 through = _mm256_mul_ps(apart, inverses);
    _mm256_storeu_ps(g.x + at + i, through);
    _mm256_storeu_ps(g.y + at + i, dropped.of(through, i));
  }
}

}  // namespace
}  // namespace regard

extern "C" {

int regard_drop(const regard::Dropping* dropping, const float* x, int64_t rows, int64_t threads, float* y) {
  const int64_t elements = dropping->elements, pieces = (elements + 4095) / 4096;  // rows may be few and long
  const auto some = [=](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t at = piece % pieces * 4096;
      regard::drop(*dropping, x, piece / pieces, at, std::min(at + 4096, elements), y);
    }
  };
  threads = std::min(threads, rows * elements / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(rows * pieces, threads, some, &regard::share_with_team); });
}

int regard_join(const regard::Join* join, int64_t threads, float* output) {
  const auto some = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) regard::join_row(*join, row, output);
  };
  const int64_t rows = join->B * join->T;
  threads = std::min(threads, rows * join->D / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(rows, threads, some, &regard::share_with_team); });
}

int regard_join_backward(const regard::Join* join, const regard::JoinGradients* gradients, int64_t threads) {
  const int64_t rows = join->B * join->T, D = join->D, blocks = (rows + regard::kBlock - 1) / regard::kBlock;
  return regard::guarded([&] {
    // Blocks are the same for any number of threads, and so are their sums.
    std::vector<float> changes(2 * blocks * D, 0.0f);
    const auto some = [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        float* gamma = changes.data() + 2 * block * D;
        const int64_t end = std::min(rows, (block + 1) * regard::kBlock);
        for (int64_t row = block * regard::kBlock; row < end; ++row)
          regard::join_row_backward(*join, *gradients, row, gamma, gamma + D);
      }
    };
    regard::in_parts(blocks, std::min(threads, rows * D / regard::kWorthAThread), some, &regard::share_with_team);
    std::fill(gradients->gamma, gradients->gamma + D, 0.0f);
    std::fill(gradients->beta, gradients->beta + D, 0.0f);
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = 0; i < D; ++i) {
        gradients->gamma[i] += changes[2 * block * D + i];
        gradients->beta[i] += changes[(2 * block + 1) * D + i];
      }
  });
}
}
