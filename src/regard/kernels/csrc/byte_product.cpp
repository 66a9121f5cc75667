// y = xWᵀ + b with x and W rounded to bytes for this product alone: training's, whose weights are others at each step.
// Plain C on the outside.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bytes.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 500'000;  // products; for fewer, waking one up costs more than it saves

// The layout is that of `_ByteProduct` in `ops/byte_product.py`.
struct ByteProduct {
  int64_t R, D, X;
  Floats x;           // R rows of D inputs
  Floats weight;      // X outputs of D inputs
  const float* bias;  // X, or null
  float* y;           // R × X
  int32_t rows_by_chance, weights_by_chance;  // whether they are rounded by chance, or to the nearest step
};

// Inputs whose weights for a block of outputs stay in the nearest cache while rows pass by. Where there are more, they are
// rounded and multiplied in parts, each with its own scales; their sums are floats. `ops/byte_product.py` has the same number.
constexpr int64_t kMostInputs = 1024;

int64_t parts_of(int64_t D) { return (D + kMostInputs - 1) / kMostInputs; }

Rounding rounding(int32_t by_chance) { return by_chance ? Rounding::kByChance : Rounding::kNearest; }

void multiply_once(const ByteProduct& p, int64_t threads) {
  thread_local RoundedWeights room;
  RoundedWeights& weights = room;
  threads = std::min(threads, p.R * p.D * p.X / kWorthAThread);
  weights.round(p.weight, p.X, p.D, rounding(p.weights_by_chance), threads);
  in_parts(p.R, threads, [&](int64_t first, int64_t last) {
    thread_local ByteRows rows;
    weights.multiply({p.x.first + first * p.x.row_apart, p.x.row_apart, p.x.input_apart}, last - first,
                     rounding(p.rows_by_chance), p.bias, rows, p.y + first * p.X);
  }, &share_with_team);
}

}  // namespace

int64_t RoundedWeights::inputs_of(int64_t part) const { return std::min(kMostInputs, D_ - part * kMostInputs); }

void RoundedWeights::round(const Floats& weight, int64_t X, int64_t D, Rounding rounding, int64_t threads) {
  X_ = X;
  D_ = D;
  const int64_t parts = parts_of(D);
  if (static_cast<int64_t>(parts_.size()) < parts) parts_.resize(parts);
  for (int64_t part = 0; part < parts; ++part) parts_[part].fit(X, inputs_of(part));
  in_parts(rounded_up(X, kLanes) / kLanes, threads, [&](int64_t first, int64_t last) {
    for (int64_t part = 0; part < parts; ++part)
      parts_[part].round(weight.inputs_from(part * kMostInputs), first * kLanes, std::min(X, last * kLanes), inputs_of(part),
                         rounding);
  }, &share_with_team);
}

void RoundedWeights::multiply(const Floats& x, int64_t R, Rounding rounding, const float* bias, ByteRows& room,
                              float* y) const {
  for (int64_t part = 0; part < parts_of(D_); ++part) {
    const PackedWeights& some = parts_[part];
    room.round(x.inputs_from(part * kMostInputs), R, inputs_of(part), rounding);
    regard::multiply({some.bytes.data(), some.scales.data(), some.sums.data(), part == 0 ? bias : nullptr, X_, inputs_of(part)},
                     room, R, 1, y, part > 0);
  }
}

}  // namespace regard

extern "C" int regard_byte_product(const regard::ByteProduct* product, int64_t threads) {
  return regard::guarded([&] { regard::multiply_once(*product, threads); });
}
