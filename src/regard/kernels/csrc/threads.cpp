// Threads that wait for work: starting one anew for each step of a decoder takes longer than the step.

#include "threads.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace regard {
namespace {

struct Job {
  const std::function<void(int64_t)>& part;
  int64_t parts, next = 0, done = 0;
};

class Helpers {
 public:
  void share(int64_t parts, const std::function<void(int64_t)>& part) {
    Job job{part, parts};
    std::unique_lock lock(mutex_);
    jobs_.push_back(&job);
    while (count_ < parts - 1) {
      try {
        std::thread([this] { wait_for_work(); }).detach();
        ++count_;
      } catch (const std::system_error&) {  // the system gives no more threads: there is one at least, this
        break;
      }
    }
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

}  // namespace

void share(int64_t parts, const std::function<void(int64_t)>& part) {
  // They are never taken down: threads wait in them until the process ends. A process that was forked has none of its
  // parent's threads, and gets helpers of its own.
  static std::mutex mutex;
  static Helpers* helpers = nullptr;
  static pid_t owner = 0;
  Helpers* mine;
  {
    const std::lock_guard lock(mutex);
    if (owner != getpid()) {
      helpers = new Helpers;
      owner = getpid();
    }
    mine = helpers;
  }
  mine->share(parts, part);
}

namespace {

// What GNU's OpenMP calls its own, which others have by the same names.
struct Team {
  void (*run)(void (*)(void*), void*, unsigned, unsigned);
  int (*number)();
  int (*count)();
  int (*most)();

  Team() {
    run = reinterpret_cast<decltype(run)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    number = reinterpret_cast<decltype(number)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
    count = reinterpret_cast<decltype(count)>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"));
    most = reinterpret_cast<decltype(most)>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  }
};

struct Shared {
  const Team& team;
  int64_t parts;
  const std::function<void(int64_t)>& part;

  // A team may be smaller than there are parts, or larger.
  static void run(void* given) {
    const Shared& shared = *static_cast<Shared*>(given);
    for (int64_t mine = shared.team.number(); mine < shared.parts; mine += shared.team.count()) shared.part(mine);
  }
};

}  // namespace

void share_with_team(int64_t parts, const std::function<void(int64_t)>& part) {
  static const Team team;
  if (!team.run || !team.number || !team.count || !team.most) return share(parts, part);
  Shared shared{team, parts, part};
  // All of torch's threads, even if some find nothing to do: OpenMP ends those that a smaller team leaves over, and torch
  // would have to start them again. As with torch itself, a process that was forked from one with a team hangs here.
  const int64_t size = std::max<int64_t>(parts, team.most());
  team.run(&Shared::run, &shared, static_cast<unsigned>(size), 0);
}

}  // namespace regard
