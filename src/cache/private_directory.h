#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace glowplug::cache {

enum class Rejection : uint8_t {
#define REJECTION(name, meaning) name,
#include "cache/rejections.def"
#undef REJECTION
};
inline constexpr size_t kRejections = 0
#define REJECTION(name, meaning) +1
#include "cache/rejections.def"
#undef REJECTION
    ;
const char* nameOf(Rejection rejection);
const char* meaningOf(Rejection rejection);

// A directory of files that nobody but this user can have written.
//
// A checksum finds damage and no malice: whoever can write a file can write its checksum. What
// makes content safe to execute is who wrote it. So the directory and each file are opened first,
// without following a link at the end of the path, and then the opened thing itself is asked
// whether it belongs to the effective user and no one else may write into it; a name that is
// swapped meanwhile swaps nothing that has been opened. Who may write into a directory further up
// can put another directory of this user here, and no file of his own. Root and the user himself
// are trusted.
class PrivateDirectory {
 public:
  PrivateDirectory() = default;
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;

  // Makes it, and what is missing above it, with the user's rights only.
  std::optional<Rejection> open(const std::string& path);
  bool isOpen() const { return descriptor_ >= 0; }

  // The whole file, or why not; neither if there is no such file. It counts as used now.
  struct Content {
    std::optional<std::string> bytes;
    std::optional<Rejection> rejection;
  };
  Content read(const std::string& name) const;

  // The file appears whole or not at all, whatever processes do at once; one that is there is
  // replaced. The number of the error, or 0.
  int write(const std::string& name, std::string_view head, std::string_view body) const;

  void remove(const std::string& name) const;

  struct File {
    std::string name;
    uint64_t bytes = 0;
    int64_t used = 0;  // nanoseconds since 1970
  };
  // Plain files. What a process that ended while it wrote has left is removed after an hour.
  std::vector<File> files() const;

  // Longer files are neither written nor read.
  static constexpr uint64_t kLongest = 64 << 20;

 private:
  int descriptor_ = -1;
};

}  // namespace glowplug::cache
