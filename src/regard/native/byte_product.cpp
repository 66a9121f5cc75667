// y = xWᵀ + b with x and W rounded to bytes for this product alone: training's, whose weights are others at each step.
// Plain C on the outside.

#include <algorithm>
#include <cstdint>

#include "bytes.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 500'000;  // products; for fewer, waking one up costs more than it saves

// The layout is that of `_ByteProduct` in `ops/linear.py`.
struct ByteProduct {
  int64_t R, D, X;
  Floats x;           // R rows of D inputs
  Floats weight;      // X outputs of D inputs
  const float* bias;  // X, or null
  float* y;           // R × X
  int32_t by_chance;  // whether rows are rounded by chance, or to the nearest step
};

void multiply_once(const ByteProduct& p, int64_t threads) {
  thread_local PackedWeights room;
  PackedWeights& packed = room;
  packed.fit(p.X, p.D);
  threads = std::min(threads, p.R * p.D * p.X / kWorthAThread);
  in_parts(rounded_up(p.X, kLanes) / kLanes, threads, [&](int64_t first, int64_t last) {
    packed.round(p.weight, first * kLanes, std::min(p.X, last * kLanes), p.D);
  }, &share_with_team);
  const Linear weights{packed.bytes.data(), packed.scales.data(), packed.sums.data(), p.bias, p.X, p.D};
  in_parts(p.R, threads, [&](int64_t first, int64_t last) {
    thread_local ByteRows rows;
    rows.round({p.x.first + first * p.x.row_apart, p.x.row_apart, p.x.input_apart}, last - first, p.D,
               p.by_chance ? Rounding::kByChance : Rounding::kNearest);
    multiply(weights, rows, last - first, 1, p.y + first * p.X);
  }, &share_with_team);
}

}  // namespace
}  // namespace regard

extern "C" int regard_byte_product(const regard::ByteProduct* product, int64_t threads) {
  return regard::guarded([&] { regard::multiply_once(*product, threads); });
}
