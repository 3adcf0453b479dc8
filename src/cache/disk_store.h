#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cache/private_directory.h"
#include "cache/settings.h"

namespace glowplug::cache {

// Texts and what was made of them, kept from process to process: a file for each key, under the
// key's hash. Any number of threads and processes use one directory at once. Nothing that is wrong
// with it is ever an error: what cannot be used is counted, told in one line on stderr the first
// time that reason is met, and missing.
class DiskStore {
 public:
  explicit DiskStore(Settings settings);

  // What was saved under the key, here or in another process. It has the same bytes, and nobody but
  // this user has written it (PrivateDirectory).
  std::optional<std::string> load(const std::string& key);
  // Keeps it if it can. Above the limit, files that were used longest ago go first.
  void save(const std::string& key, std::string_view content);
  // What load() gave for the key turned out to be of no use: it goes.
  void refuse(const std::string& key, std::string_view why);

  struct Counts {
    uint64_t hits = 0, misses = 0, writes = 0, evicted = 0;
    std::map<std::string, uint64_t> rejected;  // by reason
  };
  Counts counts() const;
  void resetCounts();

  const Settings& settings() const { return settings_; }

 private:
  bool isOpen();
  void reject(Rejection why, const std::string& name, std::string_view detail = {});
  void noteWritten(uint64_t bytes);
  void evict();

  const Settings settings_;
  std::mutex lock_;  // of what follows, up to the counts
  PrivateDirectory directory_;
  bool opened_ = false;
  bool writable_ = true;
  std::optional<uint64_t> total_;  // bytes there, as far as this process knows
  uint64_t sinceListed_ = 0;       // files written
  std::array<bool, kRejections> told_{};

  std::atomic<uint64_t> hits_{0}, misses_{0}, writes_{0}, evicted_{0};
  std::array<std::atomic<uint64_t>, kRejections> rejected_{};
};

}  // namespace glowplug::cache
