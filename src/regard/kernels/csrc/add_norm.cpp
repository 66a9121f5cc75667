// What follows every sublayer in training: dropout, the residual connection and its norm, each row in one pass.
//
// What is dropped is computed again in the backward pass, which takes less time than to read a mask.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "dropout.hpp"
#include "errors.hpp"
#include "norm.hpp"
#include "simd.hpp"
#include "structs.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kMinElements = 30'000;  // for each thread; for fewer, waking one up costs more than it saves
constexpr int64_t kBlock = 64;            // rows whose gradients of γ and β are summed before they are added to others

REGARD_AVX2 void add_norm(const AddNorm& a, int64_t row, float* output) {
  const int64_t at = row * a.D;
  const float *x = a.x + at, *y = a.y + at;
  float* sums = a.sums + at;
  output += at;
  const RowDropout dropped(a.dropout, row / a.T, row % a.T * a.D);
  Vec total = Vec::zero();
  for (int64_t i = 0; i < a.D; i += kLanes) {
    const Vec sum = Vec::load(x + i) + dropped(Vec::load(y + i), i);
    sum.store(sums + i);
    total = total + sum;
  }
  const float mean = sum_lanes(total) / static_cast<float>(a.D);
  const float inverse = row_inverse_deviation(sums, a.D, mean, a.eps);
  const Vec means = Vec::all(mean), inverses = Vec::all(inverse);
  for (int64_t i = 0; i < a.D; i += kLanes) {
    const Vec normal = (Vec::load(sums + i) - means) * inverses;
    fmadd(normal, Vec::load(a.gamma + i), Vec::load(a.beta + i)).store(output + i);
  }
  a.moments[2 * row] = mean;
  a.moments[2 * row + 1] = inverse;
}

// With n = (h - mean) / deviation and c = γ · grad: the gradient of h is (c - E[c] - n · E[c · n]) / deviation.
REGARD_AVX2 void add_norm_backward(const AddNorm& a, const AddNormGradients& g, int64_t row, float* gamma, float* beta) {
  const int64_t at = row * a.D;
  const float *grad = g.output + at, *sums = a.sums + at;
  const RowDropout dropped(a.dropout, row / a.T, row % a.T * a.D);
  const Vec means = Vec::all(a.moments[2 * row]), inverses = Vec::all(a.moments[2 * row + 1]);
  Vec total = Vec::zero(), along = Vec::zero();
  for (int64_t i = 0; i < a.D; i += kLanes) {
    const Vec given = Vec::load(grad + i);
    const Vec normal = (Vec::load(sums + i) - means) * inverses;
    const Vec scaled = given * Vec::load(a.gamma + i);
    total = total + scaled;
    along = fmadd(scaled, normal, along);
    fmadd(given, normal, Vec::load(gamma + i)).store(gamma + i);
    (given + Vec::load(beta + i)).store(beta + i);
  }
  const Vec mean = Vec::all(sum_lanes(total) / static_cast<float>(a.D));
  const Vec slope = Vec::all(sum_lanes(along) / static_cast<float>(a.D));
  for (int64_t i = 0; i < a.D; i += kLanes) {
    const Vec normal = (Vec::load(sums + i) - means) * inverses;
    const Vec scaled = Vec::load(grad + i) * Vec::load(a.gamma + i);
    const Vec sum_grad = (fnmadd(normal, slope, scaled) - mean) * inverses;
    sum_grad.store(g.x + at + i);
    dropped(sum_grad, i).store(g.y + at + i);
  }
}

void check(const AddNorm& a) {
  require(a.B >= 0 && a.T >= 0, "sizes must not be negative");
  require(a.D > 0 && a.D % kLanes == 0, "the size of a row must be a multiple of 8");
}

}  // namespace
}  // namespace regard

extern "C" {

int regard_add_norm(const regard::AddNorm* a, int64_t threads, float* output) {
  using namespace regard;
  const int64_t rows = a->B * a->T;
  const auto do_rows = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) add_norm(*a, row, output);
  };
  return guarded([&] {
    check(*a);
    parallel_for(rows, std::min(threads, rows * a->D / kMinElements), do_rows, &run_on_openmp);
  });
}

int regard_add_norm_backward(const regard::AddNorm* a, const regard::AddNormGradients* gradients, int64_t threads) {
  using namespace regard;
  return guarded([&] {
    check(*a);
    const int64_t rows = a->B * a->T, D = a->D, blocks = (rows + kBlock - 1) / kBlock;
    // Blocks are the same for any number of threads, and so are their sums.
    std::vector<float> sums(2 * blocks * D, 0.0f);
    const auto do_blocks = [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        float* gamma = sums.data() + 2 * block * D;
        for (int64_t row = block * kBlock; row < std::min(rows, (block + 1) * kBlock); ++row)
          add_norm_backward(*a, *gradients, row, gamma, gamma + D);
      }
    };
    parallel_for(blocks, std::min(threads, rows * D / kMinElements), do_blocks, &run_on_openmp);
    std::fill(gradients->gamma, gradients->gamma + D, 0.0f);
    std::fill(gradients->beta, gradients->beta + D, 0.0f);
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = 0; i < D; ++i) {
        gradients->gamma[i] += sums[2 * block * D + i];
        gradients->beta[i] += sums[(2 * block + 1) * D + i];
      }
  });
}
}
