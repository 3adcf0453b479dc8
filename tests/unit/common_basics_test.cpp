// Reasons, log channels, options and the event stream.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <thread>

#include "common/events.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/options.h"
#include "common/reasons.h"

namespace glowplug::common {
namespace {

TEST(Reasons, EachHasItsOwnMessageAndHint) {
  std::set<std::string> ids, messages, hints;
  for (size_t i = 0; i < reasonCount(); ++i) {
    const auto reason = static_cast<Reason>(i);
    ids.insert(info(reason).id);
    messages.insert(info(reason).message);
    hints.insert(info(reason).hint);
    EXPECT_EQ(reasonNamed(info(reason).id), reason);
    EXPECT_GT(std::string(info(reason).hint).size(), 20u) << info(reason).id;
    EXPECT_EQ(std::string(info(reason).hint).back(), '.') << info(reason).id;
    EXPECT_NE(std::string(info(reason).message).back(), '.') << info(reason).id;
  }
  EXPECT_EQ(ids.size(), reasonCount());
  EXPECT_EQ(messages.size(), reasonCount());
  EXPECT_EQ(hints.size(), reasonCount());
  EXPECT_EQ(reasonNamed("no_such_reason"), std::nullopt);
}

TEST(Reasons, RefusalText) {
  Refusal refusal{Reason::opaque_call, "zlib.crc32", "model.py", 12};
  EXPECT_EQ(refusal.text(),
            "model.py:12: a C function that is not known was called between tensor operators: "
            "zlib.crc32");
  EXPECT_EQ(refusal.textWithHint(), refusal.text() + "\n  hint: " + info(Reason::opaque_call).hint);
  EXPECT_EQ((Refusal{Reason::coroutine, "", "", 0}.text()), info(Reason::coroutine).message);
}

class Logs : public testing::Test {
 protected:
  void TearDown() override { setLogs(""); }
};

TEST_F(Logs, OnlyTheChosenChannelsWrite) {
  EXPECT_EQ(setLogs("guards, breaks"), "");
  EXPECT_TRUE(logs(Channel::Guards));
  EXPECT_TRUE(logs(Channel::Breaks));
  EXPECT_FALSE(logs(Channel::Plans));
  testing::internal::CaptureStderr();
  log(Channel::Guards, "{} of {}", 1, 2);
  log(Channel::Plans, "unseen");
  log(Channel::Breaks, "first\nsecond\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[glowplug guards] 1 of 2\n[glowplug breaks] first\n[glowplug breaks] second\n");
}

TEST_F(Logs, UnknownChannelsAreNamedAndTheOthersCount) {
  EXPECT_EQ(
      setLogs("plans,guardz,,x"),
      "unknown channel 'guardz', 'x'; there are all, guards, recompiles, breaks, graphs, plans, "
      "events, native, calls, cache");
  EXPECT_TRUE(logs(Channel::Plans));
  EXPECT_EQ(setLogs("all"), "");
  EXPECT_TRUE(logs(Channel::Calls));
  EXPECT_EQ(setLogs(""), "");
  EXPECT_FALSE(logs(Channel::Plans));
}

TEST(OptionTable, DefaultsFitTheirRanges) {
  std::set<std::string> names;
  for (const OptionInfo& option : optionTable()) {
    EXPECT_LE(option.least, option.value) << option.name;
    EXPECT_GE(option.most, option.value) << option.name;
    EXPECT_FALSE(std::string(option.doc).empty());
    names.insert(option.name);
    // Each default can be set as text, and then changes nothing.
    Options options;
    EXPECT_EQ(options.set(option.name, std::to_string(option.value)), "");
    EXPECT_EQ(options, Options());
  }
  EXPECT_EQ(names,
            (std::set<std::string>{
                "max_traces",    "max_events", "max_forks", "audit",   "verify",
                "verify_digits", "native",     "noop",      "dce",     "convolutions",
                "layout",        "linears",    "attention", "prepare", "symbols",
                "fuse",          "cse",        "pool",      "freeze",  "packed_weights_mb"}));
}

TEST(OptionTable, SetFromText) {
  Options options;
  EXPECT_EQ(options.set("max_traces", "3"), "");
  EXPECT_EQ(options.maxTraces, 3);
  EXPECT_EQ(options.set("audit", "True"), "");
  EXPECT_TRUE(options.audit);
  EXPECT_EQ(options.set("audit", "off"), "");
  EXPECT_FALSE(options.audit);
}

TEST(OptionTable, ErrorsNameTheOptionAndChangeNothing) {
  Options options;
  EXPECT_EQ(options.set("fast_mathz", "1"),
            "unknown option 'fast_mathz'; known options: max_traces, max_events, max_forks, "
            "verify, verify_digits, audit, native, noop, dce, convolutions, layout, linears, "
            "attention, prepare, symbols, fuse, cse, pool, freeze, packed_weights_mb");
  EXPECT_EQ(options.set("max_traces", "0"),
            "option 'max_traces' must be a whole number from 1 to 64, not '0'");
  for (const char* bad : {"", "3.5", "x", " 3", "3 ", "99999999999999999999", "65"}) {
    EXPECT_NE(options.set("max_traces", bad), "") << bad;
  }
  EXPECT_EQ(options.set("audit", "2"), "option 'audit' must be true or false, not '2'");
  EXPECT_NE(options.set({{"max_forks", "5"}, {"max_events", "-1"}}), "");
  EXPECT_EQ(options, Options());
  EXPECT_EQ(options.set({{"max_forks", "5"}, {"max_events", "10"}}), "");
  EXPECT_EQ(options.maxForks, 5);
  EXPECT_EQ(options.maxEvents, 10);
}

TEST(OptionTable, Environment) {
  ::setenv("GLOWPLUG_MAX_TRACES", "5", 1);
  ::setenv("GLOWPLUG_AUDIT", "maybe", 1);
  std::vector<std::string> complaints;
  const Options options = Options::fromEnvironment(complaints);
  ::unsetenv("GLOWPLUG_MAX_TRACES");
  ::unsetenv("GLOWPLUG_AUDIT");
  EXPECT_EQ(options.maxTraces, 5);
  EXPECT_FALSE(options.audit);
  EXPECT_EQ(complaints, std::vector<std::string>{
                            "GLOWPLUG_AUDIT: option 'audit' must be true or false, not 'maybe'"});
}

TEST(EventStream, NothingIsKeptWhenNobodyListens) {
  ASSERT_FALSE(listening());
  emit(CallRecord{});
  EXPECT_TRUE(take().empty());
  startListening();
  startListening();
  emit(CallRecord{.entry = 7, .kind = CallRecord::Kind::Recorded});
  stopListening();
  EXPECT_TRUE(listening());
  emit(CallRecord{.entry = 8});
  const std::vector<CallRecord> records = take();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].entry, 7u);
  EXPECT_STREQ(nameOf(records[0].kind), "recorded");
  EXPECT_EQ(records[1].entry, 8u);
  EXPECT_TRUE(take().empty());
  emit(CallRecord{});
  stopListening();
  EXPECT_FALSE(listening());
  EXPECT_TRUE(take().empty());
}

TEST(EventStream, ThreadsLoseNothing) {
  startListening();
  constexpr int kThreads = 4, kEach = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kEach; ++i) {
        emit(CallRecord{.entry = static_cast<uint64_t>(t), .start_ns = i});
      }
    });
  }
  std::vector<int64_t> next(kThreads, 0);
  size_t seen = 0;
  const auto drain = [&] {
    for (const CallRecord& record : take()) {
      EXPECT_EQ(record.start_ns, next[record.entry]++);
      ++seen;
    }
  };
  for (int i = 0; i < 100; ++i) drain();
  for (std::thread& thread : threads) thread.join();
  drain();
  stopListening();
  EXPECT_EQ(seen, static_cast<size_t>(kThreads * kEach));
}

TEST(Hashes, AreTheSameInEachProcess) {
  EXPECT_EQ(hashOf("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hashOf("kernel a"), hashOf("kernel b"));
  EXPECT_EQ(hashOf("kernel a"), hashOf("kernel a"));
}

}  // namespace
}  // namespace glowplug::common
