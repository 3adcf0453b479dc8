#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

// One thread that works off jobs without the GIL, the most urgent one first and below the priority
// of the threads that call. It starts with the first job and ends with the process; a child process
// made by fork has none until it asks for one, and no jobs.
namespace glowplug::engine {

// Jobs with a higher rank first; of equal ones that which a call has asked for last; else in the
// order in which they came.
struct Urgency {
  int rank = 0;
  uint64_t wanted = 0;

  auto operator<=>(const Urgency&) const = default;
};

class Job {
 public:
  virtual ~Job() = default;
  // On the thread. Touches no Python object; what it throws is caught and counted.
  virtual void run() = 0;
  // Asked each time that the thread looks for a job.
  virtual Urgency urgency() const { return {}; }

  // A long job asks this now and then, and ends early: its work has been cancelled.
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  void stop() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> stopped_{false};
};

// A job whose owner lets go of it before it begins is not run.
void enqueue(const std::weak_ptr<Job>& job);

// Returns when no job waits or runs. Not with the GIL held: others may need it meanwhile.
void waitForJobs();

// Forgets the jobs that have not begun, and stops the one that runs.
void cancelJobs();

// The same, waits for the one that runs, and takes no more. Not with the GIL held.
void stopJobs();

}  // namespace glowplug::engine
