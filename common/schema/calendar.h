// Dates and timestamps as numbers and as texts, in the proleptic Gregorian calendar (ISO 8601).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace loam {

/// Days from 1970-01-01 to the first date, 0001-01-01.
inline constexpr int32_t kFirstDate = -719'162;
/// Days from 1970-01-01 to the last date, 9999-12-31.
inline constexpr int32_t kLastDate = 2'932'896;
/// Microseconds of a day.
inline constexpr int64_t kDayUs = int64_t{24} * 60 * 60 * 1'000'000;
/// Microseconds from 1970-01-01 00:00 UTC to the first timestamp, 0001-01-01 00:00.
inline constexpr int64_t kFirstTimestamp = kFirstDate * kDayUs;
/// Microseconds from 1970-01-01 00:00 UTC to the last timestamp, the last microsecond of 9999-12-31.
inline constexpr int64_t kLastTimestamp = (kLastDate + 1) * kDayUs - 1;

/// The day of a timestamp, as a date.
constexpr int32_t date_of(int64_t timestamp_us) {
  const int64_t day = timestamp_us / kDayUs;
  return static_cast<int32_t>(timestamp_us % kDayUs < 0 ? day - 1 : day);  // also before 1970
}
/// The timestamp at the begin of a date.
constexpr int64_t midnight_of(int32_t date) { return date * kDayUs; }

/// A date as "2024-02-29".
std::string date_text(int32_t date);
/// A timestamp as "2024-02-29 12:34:56", with up to six digits of a fraction that is not 0: "2024-02-29 12:34:56.5".
std::string timestamp_text(int64_t timestamp_us);

/// Reads a date of the form YYYY-MM-DD. Nothing: another form, or no day of the calendar.
std::optional<int32_t> parse_date(std::string_view text);
/// Reads a timestamp: a date, and then optionally a space or T, hours and minutes, seconds, a fraction of one to six
/// digits, and Z or an offset from UTC: "2024-02-29", "2024-02-29 12:34", "2024-02-29T12:34:56.789Z",
/// "2024-02-29 12:34:56+02:00". A text without an offset is in UTC. Nothing: another form, no moment of the calendar
/// (a leap second is none), or a moment outside of the range in UTC.
std::optional<int64_t> parse_timestamp(std::string_view text);

}  // namespace loam
