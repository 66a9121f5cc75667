// Work shared among threads, and what becomes of what goes wrong in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

namespace regard {

// Do part(0), part(1), … in this thread and in others that wait for work; return once all are done.
void share(int64_t parts, const std::function<void(int64_t)>& part);

// The same by the threads of the OpenMP that this process has, which are torch's: while it computes they are awake, and
// others would have to wait for them to give their cores away. Where there is none, it is shared as above.
void share_with_team(int64_t parts, const std::function<void(int64_t)>& part);

// work(first, last) does the things from first to last, of so many; it is called for as many parts as there are threads.
// What is thrown in a part is thrown again here, once all have ended.
template <typename Work>
void in_parts(int64_t count, int64_t threads, const Work& work, decltype(&share) by = &share) {
  threads = std::max<int64_t>(1, std::min(threads, count));
  if (threads == 1) return work(0, count);
  std::vector<std::exception_ptr> thrown(threads);
  by(threads, [&](int64_t t) {
    try {
      work(count * t / threads, count * (t + 1) / threads);
    } catch (...) {
      thrown[t] = std::current_exception();
    }
  });
  for (const std::exception_ptr& one : thrown)
    if (one) std::rethrow_exception(one);
}

// For what is called from elsewhere: 0 if the work was done, 1 if there was no memory for it.
template <typename Work>
int guarded(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

}  // namespace regard
