// The disk store under everything that can be wrong with a directory and its files.
#include "cache/disk_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/hash.h"

namespace glowplug::cache {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "kernel f\nsizes n\n";
const std::string kContent = std::string(
                                 "\x7f"
                                 "ELF\0 object code ",
                                 18) +
                             std::string(500, 'x');
constexpr uid_t kNobody = 65534;

class DiskStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "glowplug_cache_XXXXXX";
    root_ = mkdtemp(pattern.data());
    settings_.directory = (root_ / "some" / "where").string();
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  fs::path file(const std::string& key = kKey) const {
    return fs::path(settings_.directory) / (common::hashOf(key).hex() + ".kept");
  }
  void write(const std::string& key = kKey, const std::string& content = kContent) {
    DiskStore(settings_).save(key, content);
    ASSERT_TRUE(fs::is_regular_file(file(key)));
  }
  std::string bytes() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const std::string& bytes) const {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << bytes;
  }
  // The file is not used, for that reason, and a new one takes its place.
  void expectRejected(const std::string& reason) {
    DiskStore store(settings_);
    EXPECT_EQ(store.load(kKey), std::nullopt) << reason;
    const DiskStore::Counts counts = store.counts();
    EXPECT_EQ(counts.rejected, (std::map<std::string, uint64_t>{{reason, 1}}));
    EXPECT_EQ(counts.misses, 1u);
    EXPECT_EQ(counts.hits, 0u);
    store.save(kKey, kContent);
    EXPECT_EQ(store.load(kKey), kContent) << reason;
  }

  fs::path root_;
  Settings settings_;
};

TEST_F(DiskStoreTest, GivesWhatWasSavedInAnotherProcessToo) {
  DiskStore store(settings_);
  EXPECT_EQ(store.load(kKey), std::nullopt);
  store.save(kKey, kContent);
  store.save("other", "");
  EXPECT_EQ(store.load(kKey), kContent);
  EXPECT_EQ(store.load("other"), "");
  EXPECT_EQ(DiskStore(settings_).load(kKey), kContent);
  const DiskStore::Counts counts = store.counts();
  EXPECT_EQ(counts.hits, 2u);
  EXPECT_EQ(counts.misses, 1u);
  EXPECT_EQ(counts.writes, 2u);
  EXPECT_TRUE(counts.rejected.empty());
  store.resetCounts();
  EXPECT_EQ(store.counts().hits, 0u);
}

TEST_F(DiskStoreTest, OnlyTheUserHasRights) {
  write();
  struct stat facts{};
  ASSERT_EQ(stat(settings_.directory.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(DiskStoreTest, SwitchedOffTouchesNothing) {
  settings_.on = false;
  DiskStore store(settings_);
  store.save(kKey, kContent);
  EXPECT_EQ(store.load(kKey), std::nullopt);
  EXPECT_FALSE(fs::exists(settings_.directory));
  EXPECT_EQ(store.counts().misses, 0u);
}

TEST_F(DiskStoreTest, CutOffAtEachLength) {
  write();
  const std::string whole = bytes();
  for (size_t length = 0; length < whole.size(); length += length < 80 ? 1 : 37) {
    replace(whole.substr(0, length));
    expectRejected("file_size");
  }
  replace(whole + "x");
  expectRejected("file_size");
}

TEST_F(DiskStoreTest, AFlippedBitAnywhere) {
  write();
  const std::string whole = bytes();
  for (size_t at = 0; at < whole.size(); at += at < 80 ? 1 : 37) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    replace(damaged);
    DiskStore store(settings_);
    EXPECT_EQ(store.load(kKey), std::nullopt) << at;
    EXPECT_EQ(store.counts().rejected.size(), 1u) << at;
  }
}

TEST_F(DiskStoreTest, AnotherFormat) {
  write();
  std::string other = bytes();
  other[8] = 2;
  replace(other);
  expectRejected("file_format");
  replace(std::string(300, '\0'));
  expectRejected("file_format");
}

TEST_F(DiskStoreTest, TheKeyIsComparedAndNotOnlyItsHash) {
  write("another key");
  fs::rename(file("another key"), file());
  expectRejected("file_key");
}

TEST_F(DiskStoreTest, ALengthThatWrapsAround) {
  write();
  std::string other = bytes();
  const uint64_t huge = ~uint64_t{0} - 3;
  std::memcpy(other.data() + 16, &huge, sizeof huge);
  replace(other);
  expectRejected("file_size");
}

TEST_F(DiskStoreTest, LinksPipesAndDirectoriesAreNoFiles) {
  write();
  const fs::path elsewhere = root_ / "elsewhere";
  fs::rename(file(), elsewhere);
  fs::create_symlink(elsewhere, file());
  expectRejected("file_kind");
  EXPECT_TRUE(fs::exists(elsewhere));
  fs::remove(file());
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  expectRejected("file_kind");
  fs::remove(file());
  fs::create_directory(file());
  DiskStore store(settings_);
  EXPECT_EQ(store.load(kKey), std::nullopt);
  store.save(kKey, kContent);  // a file does not take a directory's place
  EXPECT_EQ(store.counts().rejected,
            (std::map<std::string, uint64_t>{{"file_kind", 1}, {"write", 1}}));
}

TEST_F(DiskStoreTest, WritableByOthers) {
  write();
  for (const mode_t mode : {0666, 0620, 0602}) {
    ASSERT_EQ(chmod(file().c_str(), mode), 0);
    expectRejected("file_open");
  }
  for (const mode_t mode : {0777, 0770, 0702}) {
    ASSERT_EQ(chmod(settings_.directory.c_str(), mode), 0);
    DiskStore store(settings_);
    EXPECT_EQ(store.load(kKey), std::nullopt);
    store.save("new", kContent);
    EXPECT_FALSE(fs::exists(file("new")));
    EXPECT_EQ(store.counts().rejected, (std::map<std::string, uint64_t>{{"directory_open", 1}}));
  }
}

TEST_F(DiskStoreTest, OfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  write();
  ASSERT_EQ(chown(file().c_str(), kNobody, kNobody), 0);
  expectRejected("file_foreign");
  ASSERT_EQ(chown(settings_.directory.c_str(), kNobody, kNobody), 0);
  DiskStore store(settings_);
  EXPECT_EQ(store.load(kKey), std::nullopt);
  EXPECT_EQ(store.counts().rejected, (std::map<std::string, uint64_t>{{"directory_foreign", 1}}));
}

TEST_F(DiskStoreTest, ADirectoryThatIsALinkOrAFileOrNowhere) {
  write();
  const std::string real = settings_.directory;
  for (const std::string& path : {(root_ / "link").string(), file().string(),
                                  std::string("/proc/none/of/this"), std::string()}) {
    if (path.ends_with("link")) fs::create_directory_symlink(real, path);
    Settings settings = settings_;
    settings.directory = path;
    DiskStore store(settings);
    EXPECT_EQ(store.load(kKey), std::nullopt) << path;
    store.save(kKey, kContent);
    EXPECT_EQ(store.counts().rejected,
              (std::map<std::string, uint64_t>{{"directory_unusable", 1}}));
  }
}

// Root may do everything, so root becomes somebody else meanwhile.
TEST_F(DiskStoreTest, ReadOnlyDirectoriesAreRead) {
  const bool root = geteuid() == 0;
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  if (root) ASSERT_EQ(seteuid(kNobody), 0);
  write();
  EXPECT_EQ(chmod(settings_.directory.c_str(), 0500), 0);
  {
    DiskStore store(settings_);
    EXPECT_EQ(store.load(kKey), kContent);
    store.save("new", kContent);
    store.save("newer", kContent);  // not tried again
    EXPECT_EQ(store.load("new"), std::nullopt);
    EXPECT_EQ(store.load(kKey), kContent);
    EXPECT_EQ(store.counts().rejected, (std::map<std::string, uint64_t>{{"write", 1}}));
  }
  EXPECT_EQ(chmod(settings_.directory.c_str(), 0700), 0);
  EXPECT_EQ(chmod(file().c_str(), 0), 0);
  {
    DiskStore store(settings_);
    EXPECT_EQ(store.load(kKey), std::nullopt);
    EXPECT_EQ(store.counts().rejected, (std::map<std::string, uint64_t>{{"file_unreadable", 1}}));
  }
  if (root) ASSERT_EQ(seteuid(0), 0);
}

TEST_F(DiskStoreTest, NoRoomLeavesNothingBehind) {
  write();
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, small{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 300;  // the file would be longer: a write in the middle fails
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  DiskStore store(settings_);
  store.save("new", kContent);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(store.counts().rejected, (std::map<std::string, uint64_t>{{"write", 1}}));
  EXPECT_EQ(store.load(kKey), kContent);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(settings_.directory)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(DiskStoreTest, WhatWasUsedLongestAgoGoesFirst) {
  settings_.bytes = 8000;
  const std::string content(900, 'c');
  const auto longAgo = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (int i = 0; i < 8; ++i) {
    write(std::to_string(i), content);
    fs::last_write_time(file(std::to_string(i)), longAgo + std::chrono::seconds(i));
  }
  std::ofstream(fs::path(settings_.directory) / "notes.txt") << std::string(5000, 'n');
  DiskStore store(settings_);
  EXPECT_EQ(store.load("0"), content);  // used now
  store.save("8", content);
  EXPECT_EQ(store.counts().evicted, 2u);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(fs::exists(file(std::to_string(i))), i != 1 && i != 2) << i;
  }
  EXPECT_TRUE(fs::exists(fs::path(settings_.directory) / "notes.txt"));
  store.save("large", std::string(9000, 'l'));  // would not fit at all
  EXPECT_FALSE(fs::exists(file("large")));
}

TEST_F(DiskStoreTest, TheLimitHoldsWhileManyAreWritten) {
  settings_.bytes = 20'000;
  DiskStore store(settings_);
  for (int i = 0; i < 200; ++i) store.save(std::to_string(i), std::string(500, 'c'));
  uint64_t total = 0;
  for (const auto& entry : fs::directory_iterator(settings_.directory)) total += entry.file_size();
  EXPECT_LE(total, 20'000u);
  EXPECT_GE(total, 15'000u);
  EXPECT_EQ(store.load("199"), std::string(500, 'c'));
}

TEST_F(DiskStoreTest, UnfinishedFilesOfDeadProcessesGo) {
  write();
  const fs::path old = fs::path(settings_.directory) / ".0123456789abcdef.new";
  const fs::path young = fs::path(settings_.directory) / ".0123456789abcdee.new";
  std::ofstream(old) << "half";
  std::ofstream(young) << "half";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  DiskStore(settings_).save("new", kContent);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
}

TEST_F(DiskStoreTest, WhatIsOfNoUseGoes) {
  write();
  DiskStore store(settings_);
  store.refuse(kKey, "no code in it");
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(store.counts().rejected, (std::map<std::string, uint64_t>{{"content", 1}}));
}

// Readers and writers of the same few keys, with evictions under way.
TEST_F(DiskStoreTest, SeveralProcessesAtOnce) {
  settings_.bytes = 12'000;
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      DiskStore store(settings_);
      bool wrong = false;
      for (int i = 0; i < 400; ++i) {
        const std::string key = std::to_string((i * 7 + child) % 10);
        const auto found = store.load(key);
        wrong |= found && *found != std::string(1500, key[0]);
        store.save(key, std::string(1500, key[0]));
      }
      wrong |= !store.counts().rejected.empty();
      _exit(wrong ? 1 : 0);
    }
    children.push_back(pid);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(CacheSettings, FromTheEnvironment) {
  const auto settings = [](std::map<std::string, std::string> values, size_t complaints = 0) {
    for (const char* name : {"GLOWPLUG_CACHE", "GLOWPLUG_CACHE_DIR", "GLOWPLUG_CACHE_SIZE",
                             "XDG_CACHE_HOME", "HOME"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
    std::vector<std::string> told;
    Settings out = Settings::fromEnvironment(told);
    EXPECT_EQ(told.size(), complaints);
    return out;
  };
  const Settings plain = settings({{"HOME", "/home/me"}});
  EXPECT_TRUE(plain.on);
  EXPECT_EQ(plain.directory, "/home/me/.cache/glowplug");
  EXPECT_EQ(plain.bytes, 512u << 20);
  EXPECT_EQ(settings({{"XDG_CACHE_HOME", "/caches"}}).directory, "/caches/glowplug");
  EXPECT_EQ(settings({{"XDG_CACHE_HOME", "caches"}, {"HOME", "/h"}}).directory,
            "/h/.cache/glowplug");
  EXPECT_EQ(settings({{"GLOWPLUG_CACHE_DIR", "/x"}, {"XDG_CACHE_HOME", "/caches"}}).directory,
            "/x");
  EXPECT_EQ(settings({{"GLOWPLUG_CACHE_DIR", "x"}}).directory, (fs::current_path() / "x").string());
  EXPECT_FALSE(settings({{"GLOWPLUG_CACHE", "0"}}).on);
  EXPECT_TRUE(settings({{"GLOWPLUG_CACHE", "maybe"}}, 1).on);
  EXPECT_EQ(settings({{"GLOWPLUG_CACHE_SIZE", "3"}}).bytes, 3u << 20);
  EXPECT_EQ(settings({{"GLOWPLUG_CACHE_SIZE", "much"}}, 1).bytes, 512u << 20);
  EXPECT_EQ(settings({{"GLOWPLUG_CACHE_SIZE", "-1"}}, 1).bytes, 512u << 20);
}

}  // namespace
}  // namespace glowplug::cache
