#include "cpython/exception_table.h"

#include <gtest/gtest.h>

namespace glowplug::cpython {
namespace {

std::vector<ExceptionHandler> parse(std::vector<uint8_t> bytes) {
  return parseExceptionTable(bytes.data(), bytes.size());
}

TEST(ExceptionTable, EmptyTableHasNoHandlers) { EXPECT_TRUE(parse({}).empty()); }

TEST(ExceptionTable, SmallNumbersTakeOneByte) {
  // Start 3 (bit 7 marks an entry), length 5, target 20, depth 2 with the unit pushed.
  EXPECT_EQ(parse({0x80 | 3, 5, 20, (2 << 1) | 1}),
            (std::vector<ExceptionHandler>{{3, 8, 20, 2, true}}));
}

TEST(ExceptionTable, LargeNumbersAreSixBitsAByteHighestFirst) {
  // 1000 = 15 * 64 + 40; 70000 = 17 * 4096 + 5 * 64 + 48.
  EXPECT_EQ(parse({0x80 | 0x40 | 15, 40, 1, 0x40 | 17, 0x40 | 5, 48, 0}),
            (std::vector<ExceptionHandler>{{1000, 1001, 70000, 0, false}}));
}

TEST(ExceptionTable, EntriesFollowEachOther) {
  EXPECT_EQ(parse({0x80 | 1, 2, 10, 0, 0x80 | 3, 4, 12, 3}),
            (std::vector<ExceptionHandler>{{1, 3, 10, 0, false}, {3, 7, 12, 1, true}}));
}

TEST(ExceptionTable, ATruncatedTableEndsQuietly) {
  EXPECT_EQ(parse({0x80 | 1, 2}), (std::vector<ExceptionHandler>{{1, 3, 0, 0, false}}));
}

}  // namespace
}  // namespace glowplug::cpython
