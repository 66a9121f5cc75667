// Which instructions kernels use: the best that the processor has, unless another level is chosen.
#pragma once

#include <cstdint>

namespace regard {

// Numbered as in `kernels/bindings.py`.
enum Level : int { kNone = 0, kAvx2 = 1, kVnni = 2 };

Level level();

}  // namespace regard
