// Texts of values: what both read, what both refuse, and what they write.
#include <array>
#include <cctype>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/schema/decimal.h"
#include "common/schema/value.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

/// Replaces, inserts or removes a character, once or twice.
std::string mutated(Random& random, std::string text, std::string_view alphabet) {
  for (size_t n = random.between(1, 2); n != 0; --n) {
    const char c = alphabet[random.below(alphabet.size())];
    const size_t at = random.below(text.size() + 1);
    if (at == text.size() || random.one_in(3)) {
      text.insert(at, 1, c);
    } else if (random.one_in(2)) {
      text[at] = c;
    } else {
      text.erase(at, 1);
    }
  }
  return text;
}

/// A number with leading zeros.
std::string padded(uint64_t number, int digits) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%0*llu", digits, static_cast<unsigned long long>(number));
  return text.data();
}

std::string digits(Random& random, size_t most) {
  std::string text;
  for (size_t n = random.below(most + 1); n != 0; --n) text += static_cast<char>('0' + random.below(10));
  return text;
}

/// A decimal in any of its forms. Its last digits are often a half of the digit before them, or just beside it.
std::string decimal_literal(Random& random) {
  static constexpr std::array kTails = {"", "5", "50", "500000", "49999", "50001", "4", "9999999"};
  static constexpr std::array kSigns = {"", "", "-", "+"};
  std::string text = kSigns[random.below(kSigns.size())];
  if (random.one_in(8)) text += "000";
  text += digits(random, random.one_in(4) ? 40 : 6);
  if (!random.one_in(4)) text += "." + digits(random, random.one_in(4) ? 40 : 6) + kTails[random.below(kTails.size())];
  if (random.one_in(4))
    text += (random.one_in(2) ? "e" : "E") + std::string(kSigns[random.below(4)]) + digits(random, 2);
  return text;
}

/// Whether an exponent has more digits than Loam reads (docs/semantics.md).
bool has_long_exponent(std::string_view text) {
  const size_t at = text.find_first_of("eE");
  return at != std::string_view::npos && text.size() - at > 5;
}

TEST(PostgresTexts, DecimalsAreReadAlike) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 6'000; ++i) {
    const FieldType type = random.one_in(2) ? random_decimal_type(random) : FieldType::decimal(9, 2);
    std::string text = decimal_literal(random);
    if (random.one_in(6)) text = mutated(random, text, "0123456789+-.eE");
    if (has_long_exponent(text)) continue;
    const auto number = parse_decimal(text, type.digits(), type.scale());
    const Result<Value> loam = number.ok() ? Result<Value>(Value::stored(type, *number)) : number.status();
    comparison.add(literal(text) + "::" + sql_type(type), outcome(loam));
  }
  EXPECT_GT(comparison.values(), 1'000u);
  EXPECT_GT(comparison.errors(), 500u);
}

TEST(PostgresTexts, IntegersAreReadAlike) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison(Errors::kOfAnyKind);
  static constexpr std::array kTypes = {FieldType::kInt16, FieldType::kInt32, FieldType::kInt64};
  for (int i = 0; i < 2'000; ++i) {
    const FieldType type = kTypes[random.below(kTypes.size())];
    const FieldType range = kTypes[random.below(kTypes.size())];
    std::string text = random_number(random, range).to_string();
    if (random.one_in(3)) text = mutated(random, text, "0123456789+-");
    comparison.add(literal(text) + "::" + sql_type(type), outcome(Value::parse(text, type)));
  }
  EXPECT_GT(comparison.values(), 500u);
  EXPECT_GT(comparison.errors(), 200u);
}

/// A date of the form YYYY-MM-DD, often one that the calendar does not have.
std::string date_literal(Random& random) {
  static constexpr std::array<uint64_t, 14> kYears = {0,    1,    4,    100,  400,  1582, 1599,
                                                      1600, 1900, 1970, 2000, 2100, 9996, 9999};
  const uint64_t year = random.one_in(2) ? kYears[random.below(kYears.size())] : random.below(10'000);
  uint64_t month = random.between(1, 12), day = random.between(1, 28);
  if (random.one_in(2)) day = random.between(28, 31);
  if (random.one_in(3)) month = 2;
  if (random.one_in(12)) day = random.one_in(2) ? 0 : 32;
  if (random.one_in(12)) month = random.one_in(2) ? 0 : 13;
  return padded(year, 4) + "-" + padded(month, 2) + "-" + padded(day, 2);
}

/// A time of the day with an optional offset from UTC. Half of them are times of no day. Hour 24 and second 60 are
/// missing, because only PostgreSQL has them (docs/semantics.md).
std::string time_literal(Random& random) {
  const bool faulty = random.one_in(3);
  const auto part = [&](uint64_t last, uint64_t first_wrong) {
    return padded(faulty && random.one_in(4) ? random.between(first_wrong, first_wrong + 3) : random.between(0, last),
                  2);
  };
  std::string text = part(23, 25) + ":" + part(59, 60);
  if (!random.one_in(4)) {
    text += ":" + part(59, 61);
    if (random.one_in(2)) text += "." + padded(random.below(10), 1) + digits(random, 5);
  }
  if (random.one_in(3)) return text;
  if (random.one_in(3)) return text + (random.one_in(2) ? "Z" : "z");
  text += (random.one_in(2) ? "+" : "-") + part(15, 16);
  return random.one_in(2) ? text : text + ":" + part(59, 60);
}

std::string timestamp_literal(Random& random) {
  static constexpr std::array kBetween = {" ", "T", "t"};
  // The ends of the range, where an offset decides.
  static constexpr std::array kEnds = {"0001-01-01", "9999-12-31"};
  const std::string date = random.one_in(8) ? kEnds[random.below(2)] : date_literal(random);
  return random.one_in(8) ? date : date + kBetween[random.below(kBetween.size())] + time_literal(random);
}

/// A text as PostgreSQL's timestamp of UTC, refused outside of Loam's range.
std::string timestamp_of_text(std::string_view text) {
  const std::string value = "(" + literal(text) + "::timestamptz AT TIME ZONE 'UTC')";
  return "(SELECT CASE WHEN x >= '0001-01-01' AND x < '10000-01-01' THEN shown(x) ELSE refuse() END FROM (VALUES (" +
         value + ")) v(x))";
}

TEST(PostgresTexts, DatesAreReadAlike) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison(Errors::kOfAnyKind);
  for (int i = 0; i < 3'000; ++i) {
    const std::string text = date_literal(random);
    comparison.add(literal(text) + "::date", outcome(Value::parse(text, FieldType::kDate)));
  }
  EXPECT_GT(comparison.values(), 1'000u);
  EXPECT_GT(comparison.errors(), 500u);
}

TEST(PostgresTexts, TimestampsAreReadAlike) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison(Errors::kOfAnyKind);
  for (int i = 0; i < 4'000; ++i) {
    const std::string text = timestamp_literal(random);
    comparison.add(timestamp_of_text(text), outcome(Value::parse(text, FieldType::kTimestamp)));
  }
  EXPECT_GT(comparison.values(), 500u);
  EXPECT_GT(comparison.errors(), 500u);
}

TEST(PostgresTexts, WhatLoamReadsPostgresReadsAlike) {
  // PostgreSQL reads more forms, so texts that Loam refuses are no questions.
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  static constexpr std::string_view kAlphabet = "0123456789-:.+TZtz ,/x";
  for (int i = 0; i < 40'000; ++i) {
    const std::string date = mutated(random, date_literal(random), kAlphabet);
    const auto as_date = Value::parse(date, FieldType::kDate);
    if (as_date.ok()) comparison.add(literal(date) + "::date", outcome(as_date));
    const std::string timestamp = mutated(random, timestamp_literal(random), kAlphabet);
    const auto as_timestamp = Value::parse(timestamp, FieldType::kTimestamp);
    if (as_timestamp.ok()) comparison.add(timestamp_of_text(timestamp), outcome(as_timestamp));
  }
  EXPECT_GT(comparison.values(), 1'000u);
}

TEST(PostgresTexts, BooleansAreReadAlike) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  static constexpr std::array kWords = {"true", "false", "t", "f", "yes", "no", "on", "off", "1", "0", "tru", "x", ""};
  for (int i = 0; i < 500; ++i) {
    std::string text = kWords[random.below(kWords.size())];
    for (char& c : text) c = random.one_in(2) ? static_cast<char>(std::toupper(c)) : c;
    const auto loam = Value::parse(text, FieldType::kBoolean);
    if (loam.ok()) comparison.add(literal(text) + "::boolean", outcome(loam));
  }
  EXPECT_GT(comparison.values(), 50u);
}

TEST(PostgresTexts, ValuesAreWrittenAlike) {
  // From numbers, so that only one side reads or writes a text.
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 1'000; ++i) {
    const auto days = static_cast<int32_t>(random.below(kLastDate - kFirstDate + 1)) + kFirstDate;
    comparison.add("date '1970-01-01' + " + std::to_string(days), outcome(Value::date(days)));
    // Two factors, because PostgreSQL multiplies an interval by a float.
    const auto us = static_cast<int64_t>(random.below(kDayUs));
    const int64_t of_day = random.one_in(2) ? us : us / 1'000'000 * 1'000'000;
    comparison.add("timestamp '1970-01-01' + make_interval(days => " + std::to_string(days) + ") + " +
                       std::to_string(of_day) + " * interval '1 microsecond'",
                   outcome(Value::timestamp(midnight_of(days) + of_day)));
    const FieldType type = random_decimal_type(random);
    const Value decimal = random_decimal(random, type);
    comparison.add("(" + decimal_text(decimal.as_decimal(), 0) + " * '1e-" + std::to_string(type.scale()) +
                       "'::numeric)::" + sql_type(type),
                   outcome(decimal));
  }
  comparison.add("true", outcome(Value::boolean(true)));
  comparison.add("false", outcome(Value::boolean(false)));
}

}  // namespace
}  // namespace loam::testing
