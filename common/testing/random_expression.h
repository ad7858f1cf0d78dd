// Random expressions for model tests. Included by tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/schema/expression.h"
#include "common/testing/random_schema.h"

namespace loam::testing {

/// Draws computed columns over the fields of a schema that pass QueryColumns::check().
class RandomExpressions {
 public:
  RandomExpressions(Random& random, const Schema& schema, const ValueRules& rules = {})
      : random_(random), schema_(schema), rules_(rules) {}

  /// Up to `count` columns, of which later ones use earlier ones.
  std::vector<Computed> draw(size_t count) {
    computed_.clear();
    for (size_t tries = 0; tries < 20 * count && computed_.size() < count; ++tries) {
      Computed column = guess();
      computed_.push_back(std::move(column));
      if (!QueryColumns(schema_, computed_).check().ok()) computed_.pop_back();
    }
    return computed_;
  }

 private:
  FieldType type(uint16_t number) const {
    return number < kFirstComputed ? schema_.field(number).type : computed_[number - kFirstComputed].type;
  }

  /// A field or a column so far, of a type for which `allowed` returns true, if the search finds one.
  template <class Allowed>
  uint16_t any(Allowed allowed) {
    uint16_t number = 0;
    for (size_t i = 0; i < 30; ++i) {
      const size_t choice = random_.below(schema_.size() + computed_.size());
      number = static_cast<uint16_t>(choice < schema_.size() ? choice : kFirstComputed + choice - schema_.size());
      if (allowed(type(number))) break;
    }
    return number;
  }
  uint16_t of(FieldType wanted) {
    return any([&](FieldType t) { return t == wanted; });
  }
  uint16_t like(FieldType wanted) {
    return any([&](FieldType t) { return t.kind() == wanted.kind(); });
  }
  uint16_t boolean() { return of(FieldType::kBoolean); }
  uint16_t text() { return of(FieldType::kText); }
  uint16_t temporal() {
    return any([](FieldType t) { return t == FieldType::kDate || t == FieldType::kTimestamp; });
  }

  std::vector<uint16_t> operands(Operation operation) {
    // Two operands: of one type, or a date or timestamp and what it is added to.
    std::vector<uint16_t> arguments = {any([&](FieldType t) { return is_number(t) || random_.one_in(8); })};
    const FieldType first = type(arguments[0]);
    const bool other = random_.one_in(2);
    if (first == FieldType::kDate && other) {
      arguments.push_back(of(FieldType::kInt32));
    } else if (first == FieldType::kTimestamp && other) {
      arguments.push_back(of(kSeconds));
    } else {
      arguments.push_back(operation == Operation::kBucket ? of(first) : like(first));
    }
    return arguments;
  }

  std::vector<uint16_t> of_case() {
    std::vector<uint16_t> arguments;
    const uint16_t first = any(any_type);
    for (size_t n = random_.between(1, 3); n != 0; --n) {
      arguments.push_back(boolean());
      arguments.push_back(arguments.size() == 1 ? first : of(type(first)));
    }
    if (random_.one_in(2)) arguments.push_back(of(type(first)));
    return arguments;
  }
  std::vector<uint16_t> of_texts(Operation operation) {
    std::vector<uint16_t> arguments = {text()};
    if (operation == Operation::kConcatenate) {
      for (size_t n = random_.between(1, 2); n != 0; --n) arguments.push_back(text());
    } else if (operation == Operation::kSubstring) {
      for (size_t n = random_.between(1, 2); n != 0; --n) arguments.push_back(of(FieldType::kInt32));
    }
    return arguments;
  }

  Computed guess() {
    Computed column;
    column.operation = static_cast<Operation>(random_.between(1, static_cast<uint64_t>(Operation::kBucket)));
    auto& arguments = column.arguments;
    const auto result = [&] {
      std::vector<FieldType> types;
      for (const uint16_t argument : arguments) types.push_back(type(argument));
      column.type = result_type(column, types);
    };
    switch (column.operation) {
      case Operation::kConstant:
        column.type = random_.one_in(4) ? FieldType(FieldType::kInt32) : random_type(random_);
        if (random_.one_in(3)) column.type = type(any(any_type));
        if (random_.one_in(8)) column.type = kSeconds;
        column.constants = {random_.one_in(6) ? Value::null() : random_value(random_, column.type, rules_)};
        return column;
      case Operation::kAnd:
      case Operation::kOr:
        for (size_t n = random_.between(2, 4); n != 0; --n) arguments.push_back(boolean());
        break;
      case Operation::kNot:
        arguments = {boolean()};
        break;
      case Operation::kCase:
        arguments = of_case();
        break;
      case Operation::kCoalesce: {
        arguments = {any(any_type)};
        for (size_t n = random_.below(3); n != 0; --n) arguments.push_back(of(type(arguments[0])));
        break;
      }
      case Operation::kCast:
        arguments = {any(any_type)};
        column.type = random_type(random_);
        return column;
      case Operation::kIn:
        arguments = {any(any_type)};
        for (size_t n = random_.between(1, 6); n != 0; --n) {
          column.constants.push_back(random_value(random_, type(arguments[0]), rules_));
        }
        break;
      case Operation::kLength:
      case Operation::kLower:
      case Operation::kUpper:
      case Operation::kSubstring:
      case Operation::kConcatenate:
        arguments = of_texts(column.operation);
        break;
      case Operation::kLike: {
        constexpr const char* kEscapes[] = {"", "\\", "a", "é"};
        arguments = {text(), text()};
        column.constants = {Value::text(kEscapes[random_.below(4)])};
        break;
      }
      case Operation::kDatePart:
      case Operation::kTruncate:
        arguments = {temporal()};
        column.part = static_cast<DatePart>(random_.between(1, static_cast<uint64_t>(DatePart::kIsoYear)));
        break;
      case Operation::kNegate:
      case Operation::kIsNull:
        arguments = {any(any_type)};
        break;
      default:
        arguments = operands(column.operation);
    }
    result();
    return column;
  }

  Random& random_;
  const Schema& schema_;
  const ValueRules rules_;
  std::vector<Computed> computed_;
};

}  // namespace loam::testing
