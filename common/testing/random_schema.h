// Random schemas, rows and queries for model tests. Included by tests only.
#pragma once

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/schema/calendar.h"
#include "common/schema/decimal.h"
#include "common/schema/query.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "common/testing/random.h"

namespace loam::testing {

/// The kinds of values that the random functions generate. Differential tests exclude the values that the other system
/// does not have.
struct ValueRules {
  bool nan = true;            ///< floats may be NaN
  bool infinity = true;       ///< floats may be infinite
  bool extremes = true;       ///< integers may be the smallest and largest of their type
  bool whole_floats = false;  ///< finite floats are whole numbers, whose sums are exact in any order
};

inline bool any_type(FieldType) { return true; }

/// A type that a field may have, and that `allowed` returns true for.
inline FieldType random_type(Random& random, bool (*allowed)(FieldType) = any_type) {
  for (;;) {
    const FieldType type(static_cast<FieldType::Kind>(
        random.between(static_cast<uint64_t>(FieldType::kInt16), static_cast<uint64_t>(FieldType::kDecimal))));
    if (!allowed(type)) continue;
    if (type != FieldType::kDecimal) return type;
    const auto digits = static_cast<uint8_t>(random.between(1, kMaxDecimalDigits));
    return FieldType::decimal(digits, static_cast<uint8_t>(random.below(digits + 1)));
  }
}

/// A schema of 1 to `max_fields` fields of random types for which `allowed` returns true.
inline Schema random_schema(Random& random, size_t max_fields = 12, bool (*allowed)(FieldType) = any_type) {
  std::vector<Field> fields(1 + random.below(max_fields));
  for (size_t i = 0; i < fields.size(); ++i) {
    fields[i] = {"f" + std::to_string(i), random_type(random, allowed), random.one_in(2)};
  }
  return Schema::make(std::move(fields)).value();
}

/// A short text of few distinct pieces, some of them of several bytes in UTF-8.
inline std::string random_text(Random& random, size_t max_size = 12) {
  static constexpr const char* kPieces[] = {"a", "b", "ab", "ba", "Z", "é", "€", "𝄞", " ", "aab"};
  std::string text;
  for (size_t n = random.below(max_size / 2 + 1); n != 0; --n) text += kPieces[random.below(std::size(kPieces))];
  return text;
}

/// A number from -10 to 10, or sometimes `low` or `high`.
inline int64_t random_integer(Random& random, int64_t low, int64_t high, const ValueRules& rules) {
  if (rules.extremes && random.one_in(8)) return random.one_in(2) ? low : high;
  return static_cast<int64_t>(random.below(21)) - 10;
}

/// A number from -10 to 10, or sometimes -0.0, NaN or an infinity.
inline double random_real(Random& random, const ValueRules& rules) {
  if (rules.nan && random.one_in(12)) return std::numeric_limits<double>::quiet_NaN();
  if (rules.infinity && random.one_in(12)) {
    return random.one_in(2) ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }
  if (random.one_in(12)) return -0.0;
  const double whole = static_cast<double>(random.below(21)) - 10;
  return rules.whole_floats ? whole : whole / 4;
}

/// A value of this type, never NULL. There are few distinct values, so that a test often compares equal ones.
inline Value random_value(Random& random, FieldType type, const ValueRules& rules = {}) {
  switch (type) {
    case FieldType::kInt16:
      return Value::int16(static_cast<int16_t>(
          random_integer(random, std::numeric_limits<int16_t>::min(), std::numeric_limits<int16_t>::max(), rules)));
    case FieldType::kInt32:
      return Value::int32(static_cast<int32_t>(
          random_integer(random, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), rules)));
    case FieldType::kFloat32:
      return Value::float32(static_cast<float>(random_real(random, rules)));
    case FieldType::kFloat64:
      return Value::float64(random_real(random, rules));
    case FieldType::kText:
      return Value::text(random_text(random));
    case FieldType::kBlob: {
      Buffer bytes(random.below(5));
      for (std::byte& b : bytes) b = static_cast<std::byte>(random.one_in(2) ? random.below(3) : random.below(256));
      return Value::blob(bytes);
    }
    case FieldType::kBoolean:
      return Value::boolean(random.one_in(2));
    case FieldType::kDate:
      return Value::date(static_cast<int32_t>(random_integer(random, kFirstDate, kLastDate, rules)));
    case FieldType::kTimestamp:
      return Value::timestamp(random_integer(random, kFirstTimestamp, kLastTimestamp, rules));
    case FieldType::kDecimal: {
      // The few numbers around 0 that fit, and now and then one at or near the ends of the range.
      const Int128 last = power_of_ten(type.digits()) - 1;
      if (rules.extremes && random.one_in(8)) return Value::stored(type, random.one_in(2) ? last : -last);
      if (rules.extremes && random.one_in(16)) return Value::stored(type, last - static_cast<Int128>(random.below(9)));
      return Value::stored(type, Int128{random_integer(random, 0, 0, {.extremes = false})} % (last + 1));
    }
    default:
      return Value::int64(
          random_integer(random, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), rules));
  }
}

/// A value for each field of the schema. Nullable fields are sometimes NULL.
inline std::vector<Value> random_row(Random& random, const Schema& schema, const ValueRules& rules = {}) {
  std::vector<Value> row;
  for (const Field& field : schema.fields()) {
    row.push_back(field.nullable && random.one_in(4) ? Value::null() : random_value(random, field.type, rules));
  }
  return row;
}

/// The values as the bytes of a row.
inline Buffer build_row(const Schema& schema, const std::vector<Value>& values) {
  RowBuilder builder(schema);
  for (size_t i = 0; i < values.size(); ++i) {
    const Status status = builder.set(i, values[i]);
    LOAM_CHECK(status.ok(), "a random value fits its field");
  }
  const Bytes row = builder.finish().value();
  return Buffer(row.begin(), row.end());
}

/// The numbers of at least one field of the schema, each once, in random order.
inline std::vector<uint16_t> random_fields(Random& random, const Schema& schema) {
  std::vector<uint16_t> numbers(schema.size());
  std::iota(numbers.begin(), numbers.end(), uint16_t{0});
  std::shuffle(numbers.begin(), numbers.end(), random);
  numbers.resize(random.between(1, schema.size()));
  return numbers;
}

/// The schema of the rows that a projection on these fields returns.
inline Schema projected_schema(const Schema& schema, const std::vector<uint16_t>& numbers) {
  std::vector<Field> fields;
  fields.reserve(numbers.size());
  for (const uint16_t number : numbers) fields.push_back(schema.field(number));
  return Schema::make(std::move(fields)).value();
}

/// A predicate on a random field, with an operator that the type of the field allows.
inline Predicate random_predicate(Random& random, const Schema& schema, const ValueRules& rules = {}) {
  Predicate predicate;
  predicate.field = static_cast<uint16_t>(random.below(schema.size()));
  const FieldType type = schema.field(predicate.field).type;
  const auto last = type == FieldType::kText ? PredicateOp::kContains : PredicateOp::kIsNotNull;
  predicate.op = static_cast<PredicateOp>(random.between(1, static_cast<uint64_t>(last)));
  if (predicate.op == PredicateOp::kIsNull || predicate.op == PredicateOp::kIsNotNull) return predicate;
  const size_t operands = predicate.op == PredicateOp::kIn ? random.between(1, 6) : 1;
  for (size_t i = 0; i < operands; ++i) {
    const bool piece = type == FieldType::kText && predicate.op >= PredicateOp::kPrefix;
    predicate.operands.push_back(piece ? Value::text(random_text(random, 4)) : random_value(random, type, rules));
  }
  return predicate;
}

/// A conjunction of at most 3 clauses, each a disjunction of 1 to 3 predicates. Without clauses it selects all rows.
inline Selection random_selection(Random& random, const Schema& schema, const ValueRules& rules = {}) {
  Selection selection;
  selection.all.resize(random.below(4));
  for (Clause& clause : selection.all) {
    for (size_t n = random.between(1, 3); n != 0; --n) clause.any.push_back(random_predicate(random, schema, rules));
  }
  return selection;
}

/// A valid query: a projection, perhaps with a top-k or a limit, or an aggregation, perhaps with groups.
inline Query random_query(Random& random, const Schema& schema, const ValueRules& rules = {}) {
  Query query;
  query.where = random_selection(random, schema, rules);
  const auto any_field = [&] { return static_cast<uint16_t>(random.below(schema.size())); };
  if (random.one_in(2)) {
    for (size_t n = random.below(5); n != 0; --n) query.select.push_back(any_field());
    query.with_key = random.one_in(2) || query.select.empty();
    query.with_version = random.one_in(3);
    if (random.one_in(3)) {
      query.top_k = TopK{any_field(), random.between(1, 12), random.one_in(2)};
    } else if (random.one_in(4)) {
      query.limit = random.between(1, 20);
    }
    return query;
  }
  if (random.one_in(2)) {
    for (size_t n = random.between(1, kMaxGroupBy); n != 0; --n) query.group_by.push_back(any_field());
  }
  for (size_t n = random.between(query.group_by.empty() ? 1 : 0, 5); n != 0; --n) {
    Aggregate aggregate{static_cast<AggregateOp>(random.between(1, 6)), any_field()};
    if (!is_number(schema.field(aggregate.field).type) &&
        (aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg)) {
      aggregate.op = AggregateOp::kMin;
    }
    query.aggregates.push_back(aggregate);
  }
  return query;
}

}  // namespace loam::testing
