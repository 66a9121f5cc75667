// Matrix products of rows with weights, both rounded to int8.
#pragma once

#include <cstdint>
#include <vector>

#include "simd.hpp"
#include "structs.hpp"

namespace regard {

constexpr int kBlockOutputs = 16;  // outputs in a block of packed weights
constexpr int kQuad = 4;           // inputs whose weights for an output lie side by side
constexpr int kInputStep = 8;      // inputs come in multiples of this

// How many bytes X × D packed weights take.
inline int64_t packed_size(int64_t X, int64_t D) { return round_up(X, kBlockOutputs) * round_up(D, kInputStep); }

// To how many steps on either side of zero weights are rounded at this level.
int32_t weight_steps();

// The value that stands for zero in a row, which has one step fewer than this on either side.
int32_t row_zero_point();

// Stochastic rounding is unbiased.
enum class Rounding { kNearest, kStochastic };

// Rows rounded to int8, each with a scale of its own.
struct QuantizedRows {
  std::vector<uint8_t> rows;  // R × D, D rounded up to a multiple of kInputStep
  std::vector<float> scales;  // R

  void quantize(const MatrixView& x, int64_t R, int64_t D, Rounding rounding);
};

// Weights rounded and packed, each output with a scale of its own.
struct PackedWeights {
  std::vector<int8_t> packed;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  void reserve(int64_t X, int64_t D);
  // Round the outputs from first to last; first is at the start of a block.
  void quantize(const MatrixView& weight, int64_t first, int64_t last, int64_t D, Rounding rounding);
};

// Weights that are rounded for the products of one step, of any number of inputs: each 1,024 of them have scales of their own.
class QuantizedWeights {
 public:
  void quantize(const MatrixView& weight, int64_t X, int64_t D, Rounding rounding, int64_t threads);
  // y (R × X) = x (R × D) Wᵀ + b, by this thread; the bias may be null.
  void multiply(const MatrixView& x, int64_t R, Rounding rounding, const float* bias, QuantizedRows& workspace,
                float* y) const;

 private:
  int64_t part_inputs(int64_t part) const;

  std::vector<PackedWeights> parts_;  // there may be more than are in use
  int64_t X_ = 0, D_ = 0;
};

// y (R × X) = x (R × D) Wᵀ + b of quantized rows, or that added to y.
void multiply(const LinearPointers& weights, const QuantizedRows& x, int64_t R, int64_t threads, float* y, bool add = false);

// The same of rows of floats, rounded to the nearest step.
void multiply(const LinearPointers& weights, const float* x, int64_t R, int64_t threads, QuantizedRows& workspace, float* y);

}  // namespace regard
