#pragma once

#include <memory>

// One thread that works off jobs in the order in which they come, without the GIL. It starts with
// the first job and ends with the process; a child process made by fork has none until it asks for
// one, and no jobs.
namespace glowplug::engine {

class Job {
 public:
  virtual ~Job() = default;
  // On the thread. Touches no Python object; what it throws is caught and counted.
  virtual void run() = 0;
};

// A job whose owner lets go of it before it begins is not run.
void enqueue(const std::weak_ptr<Job>& job);

// Returns when no job waits or runs. Not with the GIL held: others may need it meanwhile.
void waitForJobs();

// Forgets the jobs that have not begun.
void cancelJobs();

// Forgets them, waits for the one that runs, and takes no more. Not with the GIL held.
void stopJobs();

}  // namespace glowplug::engine
