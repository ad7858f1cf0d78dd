// The calendar is that of std::chrono; the texts are read and written here, digit by digit.
#include "common/schema/calendar.h"

#include <chrono>
#include <utility>

namespace loam {
namespace {

using std::chrono::days;
using std::chrono::sys_days;
using std::chrono::year_month_day;

static_assert(sys_days(year_month_day(std::chrono::year(1), std::chrono::month(1), std::chrono::day(1)))
                  .time_since_epoch()
                  .count() == kFirstDate);
static_assert(sys_days(year_month_day(std::chrono::year(9'999), std::chrono::month(12), std::chrono::day(31)))
                  .time_since_epoch()
                  .count() == kLastDate);

constexpr int64_t kSecondUs = 1'000'000;

/// Reads a text from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  /// Takes one of these characters, and returns it; 0: another one is next.
  char take(std::string_view any_of) {
    if (text_.empty() || any_of.find(text_.front()) == std::string_view::npos) return 0;
    const char found = text_.front();
    text_.remove_prefix(1);
    return found;
  }
  /// Takes exactly `count` digits.
  std::optional<int> number(size_t count) {
    size_t taken = 0;
    const int number = digits(count, taken);
    return taken == count ? std::optional(number) : std::nullopt;
  }
  /// Takes up to `most` digits, as a number; `taken` is their count.
  int digits(size_t most, size_t& taken) {
    int number = 0;
    for (taken = 0; taken < most; ++taken) {
      const char digit = take("0123456789");
      if (digit == 0) break;
      number = number * 10 + (digit - '0');
    }
    return number;
  }

 private:
  std::string_view text_;
};

std::optional<int32_t> scan_date(Scanner& scanner) {
  const auto year = scanner.number(4);
  if (!year || *year == 0 || scanner.take("-") == 0) return std::nullopt;
  const auto month = scanner.number(2);
  if (!month || scanner.take("-") == 0) return std::nullopt;
  const auto day = scanner.number(2);
  if (!day) return std::nullopt;
  const year_month_day date(std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                            std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  return static_cast<int32_t>(sys_days(date).time_since_epoch().count());
}

/// Takes hours and minutes, "12:34", in seconds.
std::optional<int64_t> scan_minutes(Scanner& scanner, int last_hour) {
  const auto hour = scanner.number(2);
  if (!hour || *hour > last_hour || scanner.take(":") == 0) return std::nullopt;
  const auto minute = scanner.number(2);
  if (!minute || *minute > 59) return std::nullopt;
  return (*hour * 60 + *minute) * int64_t{60};
}

/// Takes the time of a day, in microseconds.
std::optional<int64_t> scan_time(Scanner& scanner) {
  const auto minutes = scan_minutes(scanner, 23);
  if (!minutes) return std::nullopt;
  int64_t us = *minutes * kSecondUs;
  if (scanner.take(":") == 0) return us;
  const auto second = scanner.number(2);
  if (!second || *second > 59) return std::nullopt;
  us += *second * kSecondUs;
  if (scanner.take(".") == 0) return us;
  size_t taken = 0;
  int64_t fraction = scanner.digits(6, taken);
  if (taken == 0) return std::nullopt;
  for (; taken < 6; ++taken) fraction *= 10;
  return us + fraction;
}

/// Takes an offset from UTC, in microseconds; 0 without one.
std::optional<int64_t> scan_offset(Scanner& scanner) {
  if (scanner.take("Zz") != 0) return 0;
  const char sign = scanner.take("+-");
  if (sign == 0) return 0;
  const auto hours = scanner.number(2);
  if (!hours || *hours > 15) return std::nullopt;  // the limit of PostgreSQL: no place on earth is farther from UTC
  int64_t seconds = *hours * int64_t{3'600};
  if (scanner.take(":") != 0) {
    const auto minutes = scanner.number(2);
    if (!minutes || *minutes > 59) return std::nullopt;
    seconds += *minutes * int64_t{60};
  }
  return (sign == '-' ? -seconds : seconds) * kSecondUs;
}

/// Appends a number with leading zeros.
void append(std::string& text, int64_t number, size_t digits) {
  const size_t at = text.size();
  text.resize(at + digits);
  for (size_t i = digits; i-- > 0; number /= 10) text[at + i] = static_cast<char>('0' + number % 10);
}

}  // namespace

std::string date_text(int32_t date) {
  const year_month_day calendar{sys_days(days(date))};
  std::string text;
  append(text, static_cast<int>(calendar.year()), 4);
  text += '-';
  append(text, static_cast<unsigned>(calendar.month()), 2);
  text += '-';
  append(text, static_cast<unsigned>(calendar.day()), 2);
  return text;
}

std::string timestamp_text(int64_t timestamp_us) {
  const int32_t date = date_of(timestamp_us);
  const int64_t us = timestamp_us - midnight_of(date);
  const int64_t second = us / kSecondUs;
  std::string text = date_text(date);
  for (const auto& [before, number] : {std::pair(' ', second / 3'600), {':', second / 60 % 60}, {':', second % 60}}) {
    text += before;
    append(text, number, 2);
  }
  if (us % kSecondUs == 0) return text;
  text += '.';
  append(text, us % kSecondUs, 6);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::optional<int32_t> parse_date(std::string_view text) {
  Scanner scanner(text);
  const auto date = scan_date(scanner);
  return scanner.at_end() ? date : std::nullopt;
}

std::optional<int64_t> parse_timestamp(std::string_view text) {
  Scanner scanner(text);
  const auto date = scan_date(scanner);
  if (!date) return std::nullopt;
  int64_t us = midnight_of(*date);
  if (scanner.take(" Tt") != 0) {
    const auto time = scan_time(scanner);
    if (!time) return std::nullopt;
    const auto offset = scan_offset(scanner);
    if (!offset) return std::nullopt;
    us += *time - *offset;
  }
  if (!scanner.at_end() || us < kFirstTimestamp || us > kLastTimestamp) return std::nullopt;
  return us;
}

}  // namespace loam
