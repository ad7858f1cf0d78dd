#include "common/schema/calendar.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam {
namespace {

/// The day after, by the rules of the Gregorian calendar alone.
void next_day(int& year, int& month, int& day) {
  static constexpr std::array<int, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  const int last = kDays[static_cast<size_t>(month - 1)] + (leap && month == 2 ? 1 : 0);
  if (++day <= last) return;
  day = 1;
  if (++month <= 12) return;
  month = 1;
  ++year;
}

std::string plain_text(int year, int month, int day) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%04d-%02d-%02d", year, month, day);
  return text.data();
}

TEST(Calendar, EveryDateOfTheRange) {
  int year = 1, month = 1, day = 1;
  for (int32_t date = kFirstDate; date <= kLastDate; ++date) {
    const std::string text = plain_text(year, month, day);
    ASSERT_EQ(date_text(date), text);
    ASSERT_EQ(parse_date(text), date);
    next_day(year, month, day);
  }
  EXPECT_EQ(year, 10'000);
  EXPECT_EQ(date_text(0), "1970-01-01");
}

TEST(Calendar, RefusesWhatIsNoDate) {
  for (const std::string_view text : {"",
                                      "2024",
                                      "2024-02",
                                      "2024-02-30",
                                      "2023-02-29",
                                      "1900-02-29",
                                      "2024-13-01",
                                      "2024-00-10",
                                      "2024-01-00",
                                      "0000-01-01",
                                      "10000-01-01",
                                      "2024-1-01",
                                      "24-01-01",
                                      "2024-01-01 ",
                                      " 2024-01-01",
                                      "2024/01/01",
                                      "-001-01-01",
                                      "2024-01-01T00:00",
                                      "+2024-01-01",
                                      "2024-01-1x"}) {
    EXPECT_EQ(parse_date(text), std::nullopt) << text;
  }
}

TEST(Calendar, TimestampsAsTexts) {
  constexpr int64_t kNoon = 12 * int64_t{3'600'000'000};
  const struct {
    int64_t us;
    std::string_view text;
  } cases[] = {{0, "1970-01-01 00:00:00"},
               {-1, "1969-12-31 23:59:59.999999"},
               {kNoon, "1970-01-01 12:00:00"},
               {kNoon + 500'000, "1970-01-01 12:00:00.5"},
               {kNoon + 1, "1970-01-01 12:00:00.000001"},
               {kFirstTimestamp, "0001-01-01 00:00:00"},
               {kLastTimestamp, "9999-12-31 23:59:59.999999"}};
  for (const auto& [us, text] : cases) {
    EXPECT_EQ(timestamp_text(us), text);
    EXPECT_EQ(parse_timestamp(text), us);
  }
}

TEST(Calendar, ReadsEveryFormOfATimestamp) {
  const int64_t expected = *parse_timestamp("2024-02-29 12:34:56.789");
  for (const std::string_view text :
       {"2024-02-29T12:34:56.789", "2024-02-29t12:34:56.789000", "2024-02-29 12:34:56.789Z", "2024-02-29 12:34:56.789z",
        "2024-02-29T14:34:56.789+02", "2024-02-29T14:34:56.789+02:00", "2024-02-29 07:04:56.789-05:30",
        "2024-03-01 03:34:56.789+15"}) {
    EXPECT_EQ(parse_timestamp(text), expected) << text;
  }
  EXPECT_EQ(parse_timestamp("2024-02-29"), midnight_of(*parse_date("2024-02-29")));
  EXPECT_EQ(parse_timestamp("2024-02-29 00:01"), midnight_of(*parse_date("2024-02-29")) + 60'000'000);
  EXPECT_EQ(parse_timestamp("0001-01-01 01:00+01:00"), kFirstTimestamp);
}

TEST(Calendar, RefusesWhatIsNoTimestamp) {
  for (const std::string_view text :
       {"", "12:00", "2024-02-29 ", "2024-02-29 1:00", "2024-02-29 24:00", "2024-02-29 12:60", "2024-02-29 12:00:60",
        "2024-02-29 12:00:00.", "2024-02-29 12:00:00.1234567", "2024-02-29 12:00:00 Z", "2024-02-29 12:00+16",
        "2024-02-29 12:00+1", "2024-02-29 12:00+01:60", "2024-02-29 12:00x", "2024-02-29Z", "2023-02-29 12:00",
        "0001-01-01 00:00+01", "9999-12-31 23:59-01"}) {
    EXPECT_EQ(parse_timestamp(text), std::nullopt) << text;
  }
}

TEST(Calendar, RandomTimestampsRoundTrip) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 100'000; ++i) {
    const auto span = static_cast<uint64_t>(kLastTimestamp - kFirstTimestamp) + 1;
    const int64_t us = kFirstTimestamp + static_cast<int64_t>(random.below(span));
    ASSERT_EQ(parse_timestamp(timestamp_text(us)), us);
    const int32_t date = date_of(us);
    ASSERT_LE(midnight_of(date), us);
    ASSERT_GT(midnight_of(date + 1), us);
  }
}

}  // namespace
}  // namespace loam
