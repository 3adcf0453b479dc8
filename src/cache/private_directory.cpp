#include "cache/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>

namespace glowplug::cache {
namespace {

constexpr const char* kNames[] = {
#define REJECTION(name, meaning) #name,
#include "cache/rejections.def"
#undef REJECTION
};
constexpr const char* kMeanings[] = {
#define REJECTION(name, meaning) meaning,
#include "cache/rejections.def"
#undef REJECTION
};

constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr std::string_view kUnfinished = ".new";

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

bool othersMayWrite(const struct stat& facts) { return (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

void makeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), S_IRWXU);
  }
  mkdir(path.c_str(), S_IRWXU);
}

// Exactly that many bytes and no more; false if the file has another length now.
bool readAll(int file, std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  char more = 0;
  return ::read(file, &more, 1) == 0;
}

bool writeAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Of no other process, on whatever machine it runs.
std::string unfinishedName() {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) {
    random = static_cast<uint64_t>(getpid()) << 32 | static_cast<uint32_t>(clock());
  }
  return fmt::format(".{:016x}{}", random, kUnfinished);
}

}  // namespace

const char* nameOf(Rejection rejection) { return kNames[static_cast<size_t>(rejection)]; }
const char* meaningOf(Rejection rejection) { return kMeanings[static_cast<size_t>(rejection)]; }

PrivateDirectory::~PrivateDirectory() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::optional<Rejection> PrivateDirectory::open(const std::string& path) {
  constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int opened = ::open(path.c_str(), kHow);
  if (opened < 0 && errno == ENOENT) {
    makeDirectories(path);
    opened = ::open(path.c_str(), kHow);
  }
  if (opened < 0) return Rejection::directory_unusable;
  struct stat facts{};
  std::optional<Rejection> out;
  if (fstat(opened, &facts) != 0) {
    out = Rejection::directory_unusable;
  } else if (facts.st_uid != geteuid()) {
    out = Rejection::directory_foreign;
  } else if (othersMayWrite(facts)) {
    out = Rejection::directory_open;
  }
  if (out) {
    close(opened);
  } else {
    descriptor_ = opened;
  }
  return out;
}

PrivateDirectory::Content PrivateDirectory::read(const std::string& name) const {
  // A pipe must not block.
  constexpr int kHow = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const Descriptor file(openat(descriptor_, name.c_str(), kHow));
  if (file.get() < 0) {
    if (errno == ENOENT) return {};
    return {{}, errno == ELOOP ? Rejection::file_kind : Rejection::file_unreadable};
  }
  struct stat facts{};
  if (fstat(file.get(), &facts) != 0) return {{}, Rejection::file_unreadable};
  if (!S_ISREG(facts.st_mode)) return {{}, Rejection::file_kind};
  if (facts.st_uid != geteuid()) return {{}, Rejection::file_foreign};
  if (othersMayWrite(facts)) return {{}, Rejection::file_open};
  if (static_cast<uint64_t>(facts.st_size) > kLongest) return {{}, Rejection::file_size};
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  if (!readAll(file.get(), bytes)) return {{}, Rejection::file_size};
  // Where it cannot be noted the file goes earlier than it might: no harm.
  const timespec now[] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  (void)futimens(file.get(), now);
  return {std::move(bytes), {}};
}

int PrivateDirectory::write(const std::string& name, std::string_view head,
                            std::string_view body) const {
  const std::string unfinished = unfinishedName();
  constexpr int kHow = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(openat(descriptor_, unfinished.c_str(), kHow, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return errno;
  // Not forced to the disk: after a power cut the checksum tells what is missing.
  if (writeAll(file.get(), head) && writeAll(file.get(), body) &&
      renameat(descriptor_, unfinished.c_str(), descriptor_, name.c_str()) == 0) {
    return 0;
  }
  const int problem = errno;
  unlinkat(descriptor_, unfinished.c_str(), 0);
  return problem == 0 ? EIO : problem;
}

void PrivateDirectory::remove(const std::string& name) const {
  unlinkat(descriptor_, name.c_str(), 0);
}

std::vector<PrivateDirectory::File> PrivateDirectory::files() const {
  std::vector<File> out;
  // A position of its own: the descriptor's is shared with child processes.
  const int own = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return out;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(own), &closedir);
  if (!listing) {
    close(own);
    return out;
  }
  while (const dirent* entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    struct stat facts{};
    if (fstatat(descriptor_, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(facts.st_mode)) continue;
    const int64_t used = facts.st_mtim.tv_sec * kNanoseconds + facts.st_mtim.tv_nsec;
    const bool unfinished = name.size() == 17 + kUnfinished.size() && name.starts_with('.') &&
                            name.ends_with(kUnfinished);
    if (unfinished && time(nullptr) - facts.st_mtim.tv_sec > 3600) {
      remove(name);
      continue;
    }
    out.push_back({name, static_cast<uint64_t>(facts.st_size), used});
  }
  return out;
}

}  // namespace glowplug::cache
