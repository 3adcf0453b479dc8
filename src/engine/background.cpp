#include "engine/background.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "common/log.h"
#include "insight/counters.h"

namespace glowplug::engine {
namespace {

class Worker {
 public:
  void enqueue(const std::weak_ptr<Job>& job) {
    const std::lock_guard held(lock_);
    if (stopping_) return;
    jobs_.push_back(job);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock held(lock_);
    changed_.wait(held, [this] { return jobs_.empty() && !working_; });
  }

  void cancel() {
    const std::lock_guard held(lock_);
    jobs_.clear();
    if (running_) running_->stop();
    changed_.notify_all();
  }

  void stop() {
    {
      const std::lock_guard held(lock_);
      stopping_ = true;
      jobs_.clear();
      if (running_) running_->stop();
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  // Held while a job runs: fork() waits for it, since a child would find LLVM's locks as the thread
  // left them.
  std::timed_mutex& busy() { return busy_; }

 private:
  void work() {
    prepareThread();
    std::unique_lock held(lock_);
    while (true) {
      changed_.wait(held, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      std::shared_ptr<Job> job = mostUrgent();
      working_ = true;
      running_ = job.get();
      held.unlock();
      if (job) {
        const std::lock_guard busy(busy_);
        runOne(*job);
      }
      held.lock();
      running_ = nullptr;
      held.unlock();
      job.reset();  // may be the last to hold it
      held.lock();
      working_ = false;
      changed_.notify_all();
    }
  }

  // Takes it from the queue; null if its owner has let go of it.
  std::shared_ptr<Job> mostUrgent() {
    std::shared_ptr<Job> best;
    size_t place = 0;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      std::shared_ptr<Job> job = jobs_[i].lock();
      if (!job || (best && job->urgency() <= best->urgency())) continue;
      best = std::move(job);
      place = i;
    }
    jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(place));
    return best;
  }

  static void prepareThread() {
    pthread_setname_np(pthread_self(), "glowplug");
    // What a job runs in parallel would be in the way of the program's own threads, which wait for
    // each other. ATen has no function that sets the number for one thread alone; OpenMP has.
    using SetThreads = void(int);
    void* const found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (found != nullptr) reinterpret_cast<SetThreads*>(found)(1);
  }

  static void runOne(Job& job) {
    try {
      job.run();
    } catch (const std::exception& error) {
      insight::counters().addNative(common::Reason::native_failed);
      common::tell(fmt::format("a job of the background thread failed: {}", error.what()));
    }
  }

  std::mutex lock_;
  std::timed_mutex busy_;
  std::condition_variable changed_;
  std::deque<std::weak_ptr<Job>> jobs_;
  std::thread thread_;
  bool working_ = false;
  Job* running_ = nullptr;
  bool stopping_ = false;
};

std::mutex workerLock;
Worker* worker = nullptr;
pid_t owner = 0;
bool heldForFork = false;

// A child must not find a lock held by a thread that it does not have. The child's own worker is
// made anew; the old one is left alone.
void beforeFork() {
  workerLock.lock();
  // Not for ever: a job may wait for the GIL, which the thread that forks holds.
  heldForFork = owner == getpid() && worker->busy().try_lock_for(std::chrono::seconds(5));
}
void afterFork() {
  if (heldForFork) worker->busy().unlock();
  workerLock.unlock();
}

// Never destroyed: in a child process its thread does not exist, and its lock may be held.
Worker& current() {
  const std::lock_guard held(workerLock);
  if (worker != nullptr && owner == getpid()) return *worker;
  const bool first = worker == nullptr;
  worker = new Worker;
  owner = getpid();
  if (first) {
    std::atexit([] { current().stop(); });
    pthread_atfork(&beforeFork, &afterFork, &afterFork);
  }
  return *worker;
}

}  // namespace

void enqueue(const std::weak_ptr<Job>& job) { current().enqueue(job); }
void waitForJobs() { current().wait(); }
void stopJobs() { current().stop(); }
void cancelJobs() { current().cancel(); }

}  // namespace glowplug::engine
