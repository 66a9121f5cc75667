// Work shared among threads that live as long as it takes, and what becomes of what goes wrong in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace regard {

// work(first, last) does the things from first to last; this thread does its part, and all if there is no other. What is
// thrown in a part is thrown again here, once all have ended.
template <typename Work>
void in_parts(int64_t count, int64_t threads, const Work& work) {
  threads = std::max<int64_t>(1, std::min(threads, count));
  std::vector<std::exception_ptr> thrown(threads);
  const auto part = [&work, &thrown](int64_t t, int64_t first, int64_t last) {
    try {
      work(first, last);
    } catch (...) {
      thrown[t] = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(threads);
  int64_t left = count;
  try {
    for (int64_t t = threads - 1; t > 0; --t) {
      const int64_t first = count * t / threads;
      helpers.emplace_back(part, t, first, left);
      left = first;
    }
  } catch (const std::system_error&) {  // the system gives no more threads
  }
  part(0, 0, left);
  for (std::thread& helper : helpers) helper.join();
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
