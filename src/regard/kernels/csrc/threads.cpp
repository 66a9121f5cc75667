// A pool of threads: starting one anew for each step of a decoder takes longer than the step.

#include "threads.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace regard {
namespace {

struct Job {
  const Part& part;
  int64_t parts, next = 0, done = 0;
};

class Pool {
 public:
  void run(int64_t parts, const Part& part) {
    Job job{part, parts};
    std::unique_lock lock(mutex_);
    // Threads are started first: an error here leaves no job behind that points into a stack that is gone.
    while (count_ < parts - 1) {
      try {
        std::thread([this] { wait_for_work(); }).detach();
        ++count_;
      } catch (const std::exception&) {  // no more threads, or no memory for one: there is one at least, this
        break;
      }
    }
    jobs_.push_back(&job);
    wake_.notify_all();
    // A part that nobody has taken is done here, so that nothing depends on there being others.
    while (job.next < job.parts) do_a_part(job, lock);
    finished_.wait(lock, [&job] { return job.done == job.parts; });
  }

 private:
  void do_a_part(Job& job, std::unique_lock<std::mutex>& lock) {
    const int64_t mine = job.next++;
    if (job.next == job.parts) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
    lock.unlock();
    job.part(mine);
    lock.lock();
    if (++job.done == job.parts) finished_.notify_all();
  }

  void wait_for_work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return !jobs_.empty(); });
      do_a_part(*jobs_.front(), lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<Job*> jobs_;  // with parts that nobody has taken yet
  int64_t count_ = 0;      // of threads
};

// Never deleted: its threads wait in it until the process ends.
std::atomic<Pool*> current_pool{nullptr};
std::atomic<bool> forked{false};

// A forked process has none of its parent's threads, and a lock of theirs may be held for ever: it starts anew.
void after_fork_in_child() {
  current_pool.store(nullptr);
  forked.store(true);
}

Pool& pool() {
  Pool* found = current_pool.load();
  if (found) return *found;
  Pool* made = new Pool;
  if (current_pool.compare_exchange_strong(found, made)) return *made;
  delete made;  // another thread was faster; this one has no threads yet
  return *found;
}

const int registered = pthread_atfork(nullptr, nullptr, &after_fork_in_child);

// The functions of GNU's OpenMP, which LLVM's and Intel's have by the same names.
struct OpenMP {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  int (*thread_num)();
  int (*num_threads)();
  int (*max_threads)();

  OpenMP() {
    parallel = reinterpret_cast<decltype(parallel)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    thread_num = reinterpret_cast<decltype(thread_num)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
    num_threads = reinterpret_cast<decltype(num_threads)>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"));
    max_threads = reinterpret_cast<decltype(max_threads)>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  }

  bool found() const { return parallel && thread_num && num_threads && max_threads; }
};

struct OpenMPJob {
  const OpenMP& openmp;
  int64_t parts;
  const Part& part;

  // There may be fewer threads than parts, or more.
  static void run(void* data) {
    const OpenMPJob& job = *static_cast<OpenMPJob*>(data);
    for (int64_t mine = job.openmp.thread_num(); mine < job.parts; mine += job.openmp.num_threads()) job.part(mine);
  }
};

}  // namespace

void run_on_pool(int64_t parts, const Part& part) { pool().run(parts, part); }

void run_on_openmp(int64_t parts, const Part& part) {
  if (forked.load()) return run_on_pool(parts, part);
  static const OpenMP openmp;
  if (!openmp.found()) return run_on_pool(parts, part);
  OpenMPJob job{openmp, parts, part};
  // All of torch's threads, even if some find nothing to do: OpenMP ends those that a smaller team leaves over, and torch
  // would have to start them again.
  const int64_t size = std::max<int64_t>(parts, openmp.max_threads());
  openmp.parallel(&OpenMPJob::run, &job, static_cast<unsigned>(size), 0);
}

}  // namespace regard
