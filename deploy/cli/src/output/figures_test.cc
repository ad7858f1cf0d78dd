#include "deploy/cli/src/output/figures.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

TEST(Figures, AreWrittenForPeople) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1'000), "1,000");
  EXPECT_EQ(grouped(27'004'123), "27,004,123");
  EXPECT_EQ(bytes_for_people(640), "640 B");
  EXPECT_EQ(bytes_for_people(1'536), "1.5 KiB");
  EXPECT_EQ(bytes_for_people(uint64_t{1} << 30), "1 GiB");
  EXPECT_EQ(bytes_for_people(uint64_t{200} << 20), "200 MiB");
  EXPECT_EQ(time_for_people(999), "999 ns");
  EXPECT_EQ(time_for_people(12'340), "12.3 µs");
  EXPECT_EQ(time_for_people(4'560'000), "4.56 ms");
  EXPECT_EQ(time_for_people(7'800'000'000), "7.80 s");
  EXPECT_EQ(time_for_people(123'000'000), "123 ms");
  EXPECT_EQ(time_for_people(119'000'000'000), "119 s");
  EXPECT_EQ(time_for_people(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(time_for_people(18'120'000'000'000), "5 h 2 min");
  EXPECT_EQ(time_for_people(1'047'600'000'000'000), "12 d 3 h");
}

}  // namespace
}  // namespace loam::cli
