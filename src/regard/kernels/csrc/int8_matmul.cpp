// y = xWᵀ + b with x and W rounded to int8 for this product: training's, whose weights change at each step.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "errors.hpp"
#include "int8.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kMinProducts = 500'000;  // for each thread; for fewer, waking one up costs more than it saves

// Inputs whose weights for a block of outputs stay in the nearest cache while rows pass by. Where there are more, they are
// rounded and multiplied in parts, each with its own scales, and their sums are floats. `int8_matmul.py` has the same number.
constexpr int64_t kMaxInputs = 1024;

int64_t parts_of(int64_t D) { return (D + kMaxInputs - 1) / kMaxInputs; }

Rounding rounding(int32_t stochastic) { return stochastic ? Rounding::kStochastic : Rounding::kNearest; }

void int8_matmul(const Int8Matmul& p, int64_t threads) {
  require(p.R >= 0 && p.D > 0 && p.X > 0, "an int8 matmul needs inputs and outputs");
  thread_local QuantizedWeights workspace;
  QuantizedWeights& weights = workspace;
  threads = std::min(threads, p.R * p.D * p.X / kMinProducts);
  weights.quantize(p.weight, p.X, p.D, rounding(p.stochastic_weights), threads);
  const auto multiply_some = [&](int64_t first, int64_t last) {
    thread_local QuantizedRows rows;
    weights.multiply(p.x.from_row(first), last - first, rounding(p.stochastic_rows), p.bias, rows, p.y + first * p.X);
  };
  parallel_for(p.R, threads, multiply_some, &run_on_openmp);
}

}  // namespace

int64_t QuantizedWeights::part_inputs(int64_t part) const { return std::min(kMaxInputs, D_ - part * kMaxInputs); }

void QuantizedWeights::quantize(const MatrixView& weight, int64_t X, int64_t D, Rounding rounding, int64_t threads) {
  X_ = X;
  D_ = D;
  const int64_t parts = parts_of(D);
  if (static_cast<int64_t>(parts_.size()) < parts) parts_.resize(parts);
  for (int64_t part = 0; part < parts; ++part) parts_[part].reserve(X, part_inputs(part));
  const auto quantize_blocks = [&](int64_t first, int64_t last) {
    for (int64_t part = 0; part < parts; ++part)
      parts_[part].quantize(weight.from_column(part * kMaxInputs), first * kBlockOutputs, std::min(X, last * kBlockOutputs),
                            part_inputs(part), rounding);
  };
  parallel_for(round_up(X, kBlockOutputs) / kBlockOutputs, threads, quantize_blocks, &run_on_openmp);
}

void QuantizedWeights::multiply(const MatrixView& x, int64_t R, Rounding rounding, const float* bias,
                                QuantizedRows& workspace, float* y) const {
  for (int64_t part = 0; part < parts_of(D_); ++part) {
    const PackedWeights& weights = parts_[part];
    const int64_t inputs = part_inputs(part);
    workspace.quantize(x.from_column(part * kMaxInputs), R, inputs, rounding);
    regard::multiply({weights.packed.data(), weights.scales.data(), weights.sums.data(), part == 0 ? bias : nullptr, X_, inputs},
                     workspace, R, 1, y, part > 0);
  }
}

}  // namespace regard

extern "C" int regard_int8_matmul(const regard::Int8Matmul* product, int64_t threads) {
  return regard::guarded([&] { regard::int8_matmul(*product, threads); });
}
