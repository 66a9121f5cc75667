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

// The layout is that of `_ByteProduct` in `ops/linear.py`.
struct ByteProduct {
  int64_t R, D, X;
  Floats x;           // R rows of D inputs
  Floats weight;      // X outputs of D inputs
  const float* bias;  // X, or null
  float* y;           // R × X
  int32_t rows_by_chance, weights_by_chance;  // whether they are rounded by chance, or to the nearest step
};

// Inputs whose weights for a block of outputs stay in the nearest cache while rows pass by. Where there are more, they are
// rounded and multiplied in parts, each with its own scales; their sums are floats. `ops/linear.py` has the same number.
constexpr int64_t kMostInputs = 1024;

Rounding rounding(int32_t by_chance) { return by_chance ? Rounding::kByChance : Rounding::kNearest; }

void multiply_once(const ByteProduct& p, int64_t threads) {
  thread_local std::vector<PackedWeights> room;
  std::vector<PackedWeights>& packed = room;
  const int64_t parts = (p.D + kMostInputs - 1) / kMostInputs;
  if (static_cast<int64_t>(packed.size()) < parts) packed.resize(parts);
  const auto size = [&](int64_t part) { return std::min(kMostInputs, p.D - part * kMostInputs); };
  for (int64_t part = 0; part < parts; ++part) packed[part].fit(p.X, size(part));
  threads = std::min(threads, p.R * p.D * p.X / kWorthAThread);
  in_parts(rounded_up(p.X, kLanes) / kLanes, threads, [&](int64_t first, int64_t last) {
    for (int64_t part = 0; part < parts; ++part)
      packed[part].round(p.weight.inputs_from(part * kMostInputs), first * kLanes, std::min(p.X, last * kLanes), size(part),
                         rounding(p.weights_by_chance));
  }, &share_with_team);
  in_parts(p.R, threads, [&](int64_t first, int64_t last) {
    thread_local ByteRows rows;
    for (int64_t part = 0; part < parts; ++part) {
      const PackedWeights& some = packed[part];
      const Floats x = p.x.inputs_from(part * kMostInputs);
      rows.round({x.first + first * x.row_apart, x.row_apart, x.input_apart}, last - first, size(part),
                 rounding(p.rows_by_chance));
      multiply({some.bytes.data(), some.scales.data(), some.sums.data(), part == 0 ? p.bias : nullptr, p.X, size(part)}, rows,
               last - first, 1, p.y + first * p.X, part > 0);
    }
  }, &share_with_team);
}

}  // namespace
}  // namespace regard

extern "C" int regard_byte_product(const regard::ByteProduct* product, int64_t threads) {
  return regard::guarded([&] { regard::multiply_once(*product, threads); });
}
