#include "cache/disk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "common/hash.h"
#include "common/log.h"

namespace glowplug::cache {
namespace {

using common::Hash;

// What a file begins with; the key and the content follow, and nothing else.
struct Head {
  char magic[8];
  uint64_t format;
  uint64_t keyBytes, contentBytes;
  Hash hash;  // of key and content
};
static_assert(sizeof(Head) == 48);
constexpr char kMagic[8] = {'g', 'l', 'o', 'w', 'p', 'l', 'u', 'g'};
constexpr uint64_t kFormat = 1;

constexpr std::string_view kSuffix = ".kept";
// Other processes write as well, so the directory is listed again from time to time.
constexpr uint64_t kWritesBetweenLists = 256;

std::string fileOf(const std::string& key) {
  return common::hashOf(key).hex() + std::string(kSuffix);
}

// Nothing else in the directory is ever counted or removed.
bool isOwn(const std::string& name) {
  return name.size() == 32 + kSuffix.size() && name.ends_with(kSuffix) &&
         std::all_of(name.begin(), name.begin() + 32,
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

std::optional<Rejection> problemOf(std::string_view file, const std::string& key) {
  Head head;
  if (file.size() < sizeof head) return Rejection::file_size;
  std::memcpy(&head, file.data(), sizeof head);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.format != kFormat) {
    return Rejection::file_format;
  }
  const uint64_t rest = file.size() - sizeof head;
  if (head.keyBytes > rest || head.contentBytes != rest - head.keyBytes) {
    return Rejection::file_size;
  }
  file.remove_prefix(sizeof head);
  if (common::hashOf(file) != head.hash) return Rejection::file_checksum;
  if (file.substr(0, head.keyBytes) != key) return Rejection::file_key;
  return std::nullopt;
}

}  // namespace

DiskStore::DiskStore(Settings settings) : settings_(std::move(settings)) {}

bool DiskStore::isOpen() {
  if (!settings_.on) return false;
  if (!opened_) {
    opened_ = true;
    const std::optional<Rejection> problem = settings_.directory.empty()
                                                 ? Rejection::directory_unusable
                                                 : directory_.open(settings_.directory);
    if (problem) reject(*problem, "");
  }
  return directory_.isOpen();
}

void DiskStore::reject(Rejection why, const std::string& name, std::string_view detail) {
  const auto index = static_cast<size_t>(why);
  rejected_[index].fetch_add(1, std::memory_order_relaxed);
  const std::string place = settings_.directory.empty() ? "no home" : settings_.directory;
  const std::string line = fmt::format("cache: {}{}{}: {}{}{}", place, name.empty() ? "" : "/",
                                       name, meaningOf(why), detail.empty() ? "" : ": ", detail);
  if (!std::exchange(told_[index], true)) {
    common::tell(line);
  } else {
    common::log(common::Channel::Cache, "{}", line);
  }
}

std::optional<std::string> DiskStore::load(const std::string& key) {
  const std::lock_guard held(lock_);
  if (!isOpen()) return std::nullopt;
  const std::string name = fileOf(key);
  PrivateDirectory::Content file = directory_.read(name);
  if (file.bytes && !file.rejection) file.rejection = problemOf(*file.bytes, key);
  if (file.rejection) reject(*file.rejection, name);
  if (!file.bytes || file.rejection) {
    misses_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  hits_.fetch_add(1, std::memory_order_relaxed);
  file.bytes->erase(0, sizeof(Head) + key.size());
  return std::move(file.bytes);
}

void DiskStore::save(const std::string& key, std::string_view content) {
  const std::lock_guard held(lock_);
  if (!isOpen() || !writable_) return;
  const uint64_t bytes = sizeof(Head) + key.size() + content.size();
  if (bytes > std::min(settings_.bytes, PrivateDirectory::kLongest)) return;
  std::string body = key;
  body += content;
  Head head{{}, kFormat, key.size(), content.size(), common::hashOf(body)};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  const std::string name = fileOf(key);
  const int problem =
      directory_.write(name, {reinterpret_cast<const char*>(&head), sizeof head}, body);
  if (problem != 0) {
    writable_ = false;  // what is there can still be read
    reject(Rejection::write, name, std::strerror(problem));
    return;
  }
  writes_.fetch_add(1, std::memory_order_relaxed);
  noteWritten(bytes);
}

void DiskStore::refuse(const std::string& key, std::string_view why) {
  const std::lock_guard held(lock_);
  if (!isOpen()) return;
  const std::string name = fileOf(key);
  reject(Rejection::content, name, why);
  directory_.remove(name);
}

void DiskStore::noteWritten(uint64_t bytes) {
  if (total_) *total_ += bytes;
  if (!total_ || *total_ > settings_.bytes || ++sinceListed_ >= kWritesBetweenLists) evict();
}

void DiskStore::evict() {
  std::vector<PrivateDirectory::File> files = directory_.files();
  std::erase_if(files, [](const auto& file) { return !isOwn(file.name); });
  sinceListed_ = 0;
  uint64_t total = 0;
  for (const auto& file : files) total += file.bytes;
  if (total > settings_.bytes) {
    std::sort(files.begin(), files.end(),
              [](const auto& a, const auto& b) { return a.used < b.used; });
    // Some room for what comes next, so that not each file written lists the directory.
    const uint64_t wanted = settings_.bytes - settings_.bytes / 8;
    for (size_t i = 0; i + 1 < files.size() && total > wanted; ++i) {
      directory_.remove(files[i].name);
      total -= files[i].bytes;
      evicted_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  total_ = total;
}

DiskStore::Counts DiskStore::counts() const {
  Counts out{hits_, misses_, writes_, evicted_, {}};
  for (size_t i = 0; i < kRejections; ++i) {
    if (const uint64_t count = rejected_[i])
      out.rejected[nameOf(static_cast<Rejection>(i))] = count;
  }
  return out;
}

void DiskStore::resetCounts() {
  for (auto* count : {&hits_, &misses_, &writes_, &evicted_}) count->store(0);
  for (auto& count : rejected_) count = 0;
}

}  // namespace glowplug::cache
