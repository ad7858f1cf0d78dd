// The value and the errors of all operations of expressions, alone and inside one another.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/expression/builder.h"
#include "common/expression/row_mask.h"
#include "common/schema/expression.h"
#include "common/schema/schema.h"
#include "common/testing/random_expression.h"
#include "tests/postgres/expression_sql.h"
#include "tests/postgres/expression_values.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

/// A schema with a field of each type, and several texts and decimals.
Schema schema_of_all_types(Random& random) {
  std::vector<FieldType> types = {FieldType::kInt16,     FieldType::kInt32,     FieldType::kInt64, FieldType::kFloat32,
                                  FieldType::kFloat64,   FieldType::kBoolean,   FieldType::kDate,  FieldType::kDate,
                                  FieldType::kTimestamp, FieldType::kTimestamp, FieldType::kText,  FieldType::kText,
                                  FieldType::kBlob,      FieldType::kInt32,     kSeconds};
  for (int i = 0; i < 4; ++i) types.push_back(random_decimal_type(random));
  std::vector<Field> fields;
  for (const FieldType type : types) fields.push_back({"f" + std::to_string(fields.size()), type, true});
  return Schema::make(std::move(fields)).value();
}

TEST(PostgresExpressions, AllOperations) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  std::map<Operation, std::array<size_t, 3>> seen;  // values, NULLs and errors of each operation
  for (int round = 0; round < 500; ++round) {
    const Schema schema = schema_of_all_types(random);
    const std::vector<Computed> computed = RandomExpressions(random, schema).draw(16);
    std::vector<std::vector<Value>> rows(random.between(1, 4));
    for (auto& row : rows) {
      for (const Field& field : schema.fields()) row.push_back(random_cell(random, field.type));
    }
    const std::vector<Outcomes> outcomes = evaluate(schema, computed, rows);
    for (size_t row = 0; row < rows.size(); ++row) {
      ExpressionSql translator(random, schema, computed, rows[row], outcomes[row]);
      for (size_t i = 0; i < computed.size(); ++i) {
        const auto sql = translator.of(static_cast<uint16_t>(kFirstComputed + i));
        if (!sql) continue;
        const Result<Value>& loam = outcomes[row][i];
        add_case(comparison, *sql, loam);
        ++seen[computed[i].operation][!loam.ok() ? 2 : loam->is_null() ? 1 : 0];
      }
    }
  }
  EXPECT_GT(comparison.values(), 14'000u);
  EXPECT_GT(comparison.errors(), 250u);
  for (int i = static_cast<int>(Operation::kAdd); i < static_cast<int>(Operation::kBucket); ++i) {
    const auto operation = static_cast<Operation>(i);
    EXPECT_GT(seen[operation][0], 20u) << to_string(operation);
  }
}

/// The operations that a round draws. Arithmetic and casts have most of the rules.
enum class Kind { kArithmetic, kNegation, kComparison, kTemporal, kCast };

Kind random_kind(Random& random) {
  static constexpr std::array kKinds = {Kind::kArithmetic, Kind::kArithmetic, Kind::kArithmetic, Kind::kCast,
                                        Kind::kCast,       Kind::kComparison, Kind::kTemporal,   Kind::kNegation};
  return kKinds[random.below(kKinds.size())];
}

FieldType temporal_type(Random& random) { return random.one_in(2) ? FieldType::kDate : FieldType::kTimestamp; }

/// One operation on one or two fields of random types, with the casts that the builder inserts.
class RandomOperation {
 public:
  explicit RandomOperation(Random& random)
      : random_(random),
        digits_(static_cast<uint8_t>(random.between(1, random.one_in(2) ? 12 : kMaxDecimalDigits))),
        extremes_(random.one_in(2)),
        kind_(random_kind(random)),
        operation_(draw_operation()),
        schema_(draw_schema()) {}

  const Schema& schema() const { return schema_; }

  /// The columns, the last of which is the operation; none if the types do not have it.
  std::vector<Computed> columns() const {
    ExpressionBuilder builder(schema_);
    const Result<uint16_t> column = kind_ == Kind::kCast       ? builder.cast(0, schema_.field(1).type)
                                    : kind_ == Kind::kNegation ? builder.apply(operation_, {0})
                                                               : builder.apply(operation_, {0, 1});
    return column.ok() ? builder.computed() : std::vector<Computed>();
  }

  std::vector<Value> row() {
    std::vector<Value> values;
    for (const Field& field : schema_.fields()) {
      const bool any = !is_number(field.type) || (extremes_ && random_.one_in(4));
      values.push_back(any ? random_cell(random_, field.type) : number(field.type));
    }
    const FieldType type = schema_.field(0).type;
    const bool exact = is_integer(type) || type == FieldType::kDecimal;
    if (kind_ == Kind::kArithmetic && exact && type == schema_.field(1).type && !values[0].is_null()) {
      const Value other = Value::stored(type, beside_the_end(values[0].as_decimal(), type));
      if (random_.one_in(3) && fits(other)) values[1] = other;
    }
    return values;
  }

 private:
  /// The number of digits of which the type has all numbers.
  static uint8_t most_digits(FieldType type) {
    if (is_float(type)) return 17;
    if (type == FieldType::kInt16) return 4;
    if (type == FieldType::kInt32) return 9;
    return type == FieldType::kInt64 ? 18 : type.digits();
  }

  static bool fits(const Value& value) {
    return value.in_range() && (!is_integer(value.type()) || Value::parse(value.to_string(), value.type()).ok());
  }

  Operation draw_operation() {
    const auto any_of = [&](Operation first, Operation last) {
      return static_cast<Operation>(random_.between(static_cast<uint64_t>(first), static_cast<uint64_t>(last)));
    };
    switch (kind_) {
      case Kind::kArithmetic:
        return any_of(Operation::kAdd, Operation::kModulo);
      case Kind::kComparison:
        return any_of(Operation::kEqual, Operation::kGreaterEqual);
      case Kind::kTemporal:
        return any_of(Operation::kAdd, Operation::kSubtract);
      case Kind::kNegation:
        return Operation::kNegate;
      case Kind::kCast:
        break;
    }
    return Operation::kCast;
  }

  Schema draw_schema() {
    const bool numbers = kind_ != Kind::kTemporal && kind_ != Kind::kCast;
    const auto not_blob = [](FieldType type) { return type != FieldType::kBlob; };
    FieldType a = random_type(random_, numbers ? is_number : +not_blob), b = random_type(random_, is_number);
    if (numbers && random_.one_in(2)) b = a;
    if (numbers && random_.one_in(4)) {
      a = b = FieldType::decimal(kMaxDecimalDigits, static_cast<uint8_t>(random_.below(20)));
    }
    if (kind_ == Kind::kTemporal) {
      a = temporal_type(random_);
      if (random_.one_in(3)) b = temporal_type(random_);
    }
    while (kind_ == Kind::kCast && (a == b || !can_cast(a, b))) b = random_type(random_);
    return Schema::make({{"f0", a, true}, {"f1", b, true}}).value();
  }

  /// A number of at most `digits_` digits, as far as its type has them. Half of the floats have a short fraction.
  Value number(FieldType type) {
    if (is_float(type) && random_.one_in(2)) return random_number(random_, type);
    const Int128 whole = random_integer_of(random_, std::min(digits_, most_digits(type)));
    if (!is_float(type)) return Value::stored(type, whole);
    const double real = static_cast<double>(whole) / std::pow(10.0, static_cast<double>(random_.below(7)));
    return type == FieldType::kFloat64 ? Value::float64(real) : Value::float32(static_cast<float>(real));
  }

  /// A number whose result with x is the last one of its type, or beside it.
  Int128 beside_the_end(Int128 x, FieldType type) {
    const Int128 past = type == FieldType::kDecimal ? power_of_ten(kMaxDecimalDigits)
                                                    : Int128{1} << (8 * static_cast<int>(fixed_width(type)) - 1);
    const Int128 end = x < 0 ? -past : past, step = static_cast<Int128>(random_.below(3)) - 1;
    if (operation_ == Operation::kMultiply) return x == 0 ? 1 : (random_.one_in(2) ? end : -end) / x + step;
    return operation_ == Operation::kSubtract ? x - end + step : end - x + step;
  }

  Random& random_;
  const uint8_t digits_;  // of most numbers, so that many operations have no overflow
  const bool extremes_;   // whether some values are NULL, small, or the ends of a range
  const Kind kind_;
  const Operation operation_;
  const Schema schema_;
};

TEST(PostgresExpressions, NumbersAndConversions) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int round = 0; round < 10'000; ++round) {
    RandomOperation operation(random);
    const std::vector<Computed> computed = operation.columns();
    if (computed.empty()) continue;
    std::vector<std::vector<Value>> rows(random.between(1, 5));
    for (auto& row : rows) row = operation.row();
    const std::vector<Outcomes> outcomes = evaluate(operation.schema(), computed, rows);
    for (size_t row = 0; row < rows.size(); ++row) {
      ExpressionSql translator(random, operation.schema(), computed, rows[row], outcomes[row]);
      const auto sql = translator.of(static_cast<uint16_t>(kFirstComputed + computed.size() - 1));
      if (sql) add_case(comparison, *sql, outcomes[row].back());
    }
  }
  EXPECT_GT(comparison.values(), 18'000u);
  EXPECT_GT(comparison.errors(), 1'500u);
}

TEST(PostgresExpressions, TextsOfFloatsAreReadAsTheSameFloats) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  const Schema schema = Schema::make({{"f0", FieldType::kFloat32, true}, {"f1", FieldType::kFloat64, true}}).value();
  const std::vector<Computed> computed = {
      {Operation::kCast, FieldType::kText, {0}, {}, DatePart::kNone},
      {Operation::kCast, FieldType::kText, {1}, {}, DatePart::kNone},
  };
  std::vector<std::vector<Value>> rows(kBlockRows);
  for (auto& row : rows) {
    for (const Field& field : schema.fields()) row.push_back(random_number(random, field.type));
  }
  const std::vector<Outcomes> outcomes = evaluate(schema, computed, rows);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < computed.size(); ++i) {
      comparison.add(sql(*outcomes[row][i]) + "::" + sql_type(rows[row][i].type()), outcome(rows[row][i]));
    }
  }
}

}  // namespace
}  // namespace loam::testing
