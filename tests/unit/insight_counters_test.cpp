#include "insight/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace glowplug::insight {
namespace {

using common::Reason;

TEST(Counters, EachKindIsCountedApart) {
  Counters counters;
  counters.add(Stat::calls);
  counters.add(Stat::ops_recorded, 12);
  counters.addBreak(Reason::opaque_call);
  counters.addBreak(Reason::opaque_call);
  counters.addRefusal(Reason::no_recipe);
  counters.addRecompile("L.x: size of dim 0: 3, was 2");
  const Counters::Snapshot seen = counters.snapshot();
  EXPECT_EQ(seen.stats.size(), kStatCount);
  EXPECT_EQ(seen.stats.at("calls"), 1u);
  EXPECT_EQ(seen.stats.at("ops_recorded"), 12u);
  EXPECT_EQ(seen.stats.at("replays"), 0u);
  EXPECT_EQ(seen.graphBreak, (Tally{{"opaque_call", 2}}));
  EXPECT_EQ(seen.refusals, (Tally{{"no_recipe", 1}}));
  EXPECT_EQ(seen.recompiles, (Tally{{"L.x: size of dim 0: 3, was 2", 1}}));
}

TEST(Counters, ResetForgetsAll) {
  Counters counters;
  counters.add(Stat::replays, 3);
  counters.addBreak(Reason::data_value);
  counters.addRefusal(Reason::threads);
  counters.addRecompile("x");
  counters.reset();
  const Counters::Snapshot seen = counters.snapshot();
  for (const auto& [name, count] : seen.stats) EXPECT_EQ(count, 0u) << name;
  EXPECT_TRUE(seen.graphBreak.empty());
  EXPECT_TRUE(seen.refusals.empty());
  EXPECT_TRUE(seen.recompiles.empty());
}

TEST(Counters, ThreadsLoseNothing) {
  Counters counters;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counters] {
      for (int i = 0; i < 2000; ++i) {
        counters.add(Stat::calls);
        counters.addBreak(Reason::opaque_call);
        if (i % 100 == 0) counters.snapshot();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.snapshot().stats.at("calls"), 8000u);
  EXPECT_EQ(counters.snapshot().graphBreak.at("opaque_call"), 8000u);
}

TEST(Counters, TheProcessHasOneSet) {
  counters().reset();
  counters().add(Stat::forks);
  EXPECT_EQ(counters().snapshot().stats.at("forks"), 1u);
  counters().reset();
}

}  // namespace
}  // namespace glowplug::insight
