// Work shared among threads that live as long as it takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace regard {

// work(first, last) does the things from first to last; this thread does its part, and all if there is no other.
template <typename Work>
void in_parts(int64_t count, int64_t threads, const Work& work) {
  threads = std::min(threads, count);
  std::vector<std::thread> helpers;
  int64_t left = count;
  try {
    for (int64_t t = threads - 1; t > 0; --t) {
      const int64_t first = count * t / threads;
      helpers.emplace_back([&work, first, left] { work(first, left); });
      left = first;
    }
  } catch (const std::system_error&) {  // the system gives no more threads
  }
  work(0, left);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace regard
