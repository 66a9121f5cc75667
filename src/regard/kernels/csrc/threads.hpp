// Work divided among threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

namespace regard {

using Part = std::function<void(int64_t)>;

// Do part(0), part(1), … in this thread and in those of a pool; return once all are done. Idle threads of the pool sleep: they
// do not spin beside whatever else runs.
void run_on_pool(int64_t parts, const Part& part);

// The same by the threads of the OpenMP that this process has, which are torch's: while it computes they are awake, and a pool
// would wait for them to give their cores away. Without one, and in a forked process, whose OpenMP has lost its threads, the
// pool does it.
void run_on_openmp(int64_t parts, const Part& part);

// work(first, last) does the items from first to last, of `count`; it is called once for each thread.
// What is thrown in a part is thrown again here, once all have ended.
template <typename Work>
void parallel_for(int64_t count, int64_t threads, const Work& work, decltype(&run_on_pool) run = &run_on_pool) {
  threads = std::max<int64_t>(1, std::min(threads, count));
  if (threads == 1) return work(0, count);
  std::vector<std::exception_ptr> thrown(threads);
  run(threads, [&](int64_t t) {
    try {
      work(count * t / threads, count * (t + 1) / threads);
    } catch (...) {
      thrown[t] = std::current_exception();
    }
  });
  for (const std::exception_ptr& one : thrown)
    if (one) std::rethrow_exception(one);
}

// A buffer that grows to what is needed, and is used again.
template <typename Number>
Number* grown(std::vector<Number>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
  return buffer.data();
}

}  // namespace regard
