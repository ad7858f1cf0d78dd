// The calendar is that of std::chrono.
#include "common/expression/date_parts.h"

#include <chrono>

#include "common/base/assert.h"
#include "common/schema/calendar.h"

namespace loam {
namespace {

using std::chrono::day;
using std::chrono::days;
using std::chrono::month;
using std::chrono::sys_days;
using std::chrono::weekday;
using std::chrono::year_month_day;

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kMinuteUs = 60 * kSecondUs;
constexpr int64_t kHourUs = 60 * kMinuteUs;

sys_days day_of(int32_t date) { return sys_days(days(date)); }
int32_t number(sys_days at) { return static_cast<int32_t>(at.time_since_epoch().count()); }
int64_t number(month m) { return static_cast<unsigned>(m); }
int64_t number(day d) { return static_cast<unsigned>(d); }

/// 1 for Monday to 7 for Sunday.
int iso_weekday(sys_days at) { return static_cast<int>(weekday(at).iso_encoding()); }

/// The week of a day belongs to the year of its Thursday.
sys_days thursday_of(sys_days at) { return at + days(4 - iso_weekday(at)); }

int32_t day_of_year(sys_days at) { return number(at) - number(year_month_day(at).year() / 1 / 1) + 1; }

month first_month_of_quarter(month m) { return month((static_cast<unsigned>(m) - 1) / 3 * 3 + 1); }

/// The microseconds since midnight.
int64_t time_of(int64_t timestamp_us) { return timestamp_us - midnight_of(date_of(timestamp_us)); }

}  // namespace

int64_t part_of_date(DatePart part, int32_t date) {
  const sys_days at = day_of(date);
  const year_month_day ymd(at);
  switch (part) {
    case DatePart::kYear:
      return static_cast<int>(ymd.year());
    case DatePart::kQuarter:
      return (number(ymd.month()) + 2) / 3;
    case DatePart::kMonth:
      return number(ymd.month());
    case DatePart::kWeek:
      return (day_of_year(thursday_of(at)) - 1) / 7 + 1;
    case DatePart::kDay:
      return number(ymd.day());
    case DatePart::kEpoch:
      return date * kDayUs;
    case DatePart::kDayOfWeek:
      return iso_weekday(at) % 7;
    case DatePart::kIsoDayOfWeek:
      return iso_weekday(at);
    case DatePart::kDayOfYear:
      return day_of_year(at);
    case DatePart::kIsoYear:
      return static_cast<int>(year_month_day(thursday_of(at)).year());
    default:
      break;
  }
  LOAM_DCHECK(false, "the type of the column allows no other part");
  return 0;
}

int64_t part_of_timestamp(DatePart part, int64_t timestamp_us) {
  const int64_t time = time_of(timestamp_us);
  switch (part) {
    case DatePart::kHour:
      return time / kHourUs;
    case DatePart::kMinute:
      return time % kHourUs / kMinuteUs;
    case DatePart::kSecond:
      return time % kMinuteUs;
    case DatePart::kEpoch:
      return timestamp_us;
    default:
      return part_of_date(part, date_of(timestamp_us));
  }
}

int32_t truncated_date(DatePart part, int32_t date) {
  const sys_days at = day_of(date);
  const year_month_day ymd(at);
  switch (part) {
    case DatePart::kYear:
      return number(ymd.year() / 1 / 1);
    case DatePart::kQuarter:
      return number(ymd.year() / first_month_of_quarter(ymd.month()) / 1);
    case DatePart::kMonth:
      return number(ymd.year() / ymd.month() / 1);
    case DatePart::kWeek:
      return number(at - days(iso_weekday(at) - 1));  // the first date is a Monday
    default:
      return date;
  }
}

int64_t truncated_timestamp(DatePart part, int64_t timestamp_us) {
  const int64_t time = time_of(timestamp_us);
  switch (part) {
    case DatePart::kHour:
      return timestamp_us - time % kHourUs;
    case DatePart::kMinute:
      return timestamp_us - time % kMinuteUs;
    case DatePart::kSecond:
      return timestamp_us - time % kSecondUs;
    default:
      return midnight_of(truncated_date(part, date_of(timestamp_us)));
  }
}

}  // namespace loam
