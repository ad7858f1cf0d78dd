#include "deploy/cli/src/output/human_readable.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

TEST(HumanReadable, FormatsNumbersBytesAndDurations) {
  EXPECT_EQ(with_thousands_separators(0), "0");
  EXPECT_EQ(with_thousands_separators(999), "999");
  EXPECT_EQ(with_thousands_separators(1'000), "1,000");
  EXPECT_EQ(with_thousands_separators(27'004'123), "27,004,123");
  EXPECT_EQ(format_bytes(640), "640 B");
  EXPECT_EQ(format_bytes(1'536), "1.5 KiB");
  EXPECT_EQ(format_bytes(uint64_t{1} << 30), "1 GiB");
  EXPECT_EQ(format_bytes(uint64_t{200} << 20), "200 MiB");
  EXPECT_EQ(format_duration(999), "999 ns");
  EXPECT_EQ(format_duration(12'340), "12.3 µs");
  EXPECT_EQ(format_duration(4'560'000), "4.56 ms");
  EXPECT_EQ(format_duration(7'800'000'000), "7.80 s");
  EXPECT_EQ(format_duration(123'000'000), "123 ms");
  EXPECT_EQ(format_duration(119'000'000'000), "119 s");
  EXPECT_EQ(format_duration(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(format_duration(18'120'000'000'000), "5 h 2 min");
  EXPECT_EQ(format_duration(1'047'600'000'000'000), "12 d 3 h");
}

}  // namespace
}  // namespace loam::cli
