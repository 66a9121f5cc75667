#include "level.hpp"

#include <atomic>

#include "errors.hpp"

namespace regard {
namespace {

Level best_level() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const bool vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl");
  return !avx2 ? kNone : avx512 && vnni ? kVnni : kAvx2;
}

std::atomic<Level>& chosen() {
  static std::atomic<Level> level = best_level();
  return level;
}

}  // namespace

Level level() { return chosen().load(std::memory_order_relaxed); }

}  // namespace regard

extern "C" {

// Changes with every change of what the functions take that the structs do not show.
int regard_version() { return 20; }

int regard_best_level() { return regard::best_level(); }

int regard_level() { return regard::level(); }

int regard_set_level(int level) {
  return regard::guarded([=] {
    regard::require(regard::kNone < level && level <= regard::best_level(), "a level that this processor does not have");
    regard::chosen().store(static_cast<regard::Level>(level));
  });
}
}
