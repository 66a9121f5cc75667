// Rows of floats as they lie in memory.
#pragma once

#include <cstdint>

namespace regard {

// Of the distances between two rows and between two inputs, one is 1.
struct Floats {
  const float* first;
  int64_t row_apart, input_apart;

  Floats inputs_from(int64_t d) const { return {first + d * input_apart, row_apart, input_apart}; }
};

}  // namespace regard
