// Building of expressions, with the implicit conversions of SQL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/schema/expression.h"
#include "common/schema/schema.h"

namespace loam {

/// Builds the computed columns of a query from the operations that a person or a program writes.
///
/// Storage nodes convert nothing implicitly. The builder chooses types and inserts casts as PostgreSQL does: numbers
/// are widened to the larger type of int16, int32, int64, decimal and float64; a float32 beside another type becomes a
/// float64, except among the results of CASE and coalesce, which become float32; a text literal takes the type of the
/// other operand, and so does NULL. It computes operations on constants, unless that is an error, and keeps equal
/// operations once. A value type with a reference to the fields. Threads: one.
///
/// Columns have numbers: those below kFirstComputed are fields. The functions return kInvalidArgument for operands that
/// the operation does not take; the message names operation and types.
class ExpressionBuilder {
 public:
  /// The fields outlive the builder: those of a table, or the columns of a result (GroupSelection).
  explicit ExpressionBuilder(std::span<const Field> fields) : fields_(fields) {}
  /// The fields of a table, whose schema outlives the builder.
  explicit ExpressionBuilder(const Schema& schema) : fields_(schema.fields()) {}

  /// A constant of a known type; not NULL.
  Result<uint16_t> constant(const Value& value);
  /// A text literal, which becomes a value of another type where the context asks for one.
  Result<uint16_t> literal(std::string_view text);
  /// NULL, of the type that the context asks for.
  Result<uint16_t> null();
  /// The operation on these columns. `part` and `escape` are for the operations that take them.
  Result<uint16_t> apply(Operation operation, std::vector<uint16_t> arguments, DatePart part = DatePart::kNone,
                         std::string_view escape = {});
  /// Whether the column equals one of the others. Constants of its type become one operation.
  Result<uint16_t> in(uint16_t column, std::span<const uint16_t> list);
  /// The column as a value of this type.
  Result<uint16_t> cast(uint16_t column, FieldType type);

  /// The type of a column.
  FieldType type(uint16_t column) const;
  /// The value of a constant; null for other columns.
  const Value* value_of(uint16_t column) const;
  /// Whether the context has still to give the column a type: a text literal, which is a text without one, or NULL.
  bool untyped(uint16_t column) const { return column >= kFirstComputed && untyped_[column - kFirstComputed]; }
  /// The computed columns so far. There may be more than kMaxComputed, of which a query uses some
  /// (Query::drop_unused()).
  const std::vector<Computed>& computed() const { return computed_; }

 private:
  Result<uint16_t> add(Computed column, bool untyped = false);
  /// Converts untyped constants and numbers so that all columns have one type. `results`: they are the results of CASE
  /// or coalesce, and not operands.
  Status unify(std::span<uint16_t> columns, bool results = false);
  Result<uint16_t> typed(uint16_t column, FieldType type);
  Status convert_arguments(Operation operation, std::vector<uint16_t>& arguments);
  Status convert_temporal(Operation operation, std::vector<uint16_t>& arguments);
  /// Operands of arithmetic or a comparison, of which one is a decimal.
  Status convert_decimals(std::vector<uint16_t>& arguments);
  /// The conditions and results of CASE.
  Status convert_branches(std::vector<uint16_t>& arguments);
  /// A literal among decimals as a decimal with all its digits; NULL gets the type `to`.
  Result<uint16_t> exact_decimal(uint16_t column, FieldType to);

  std::span<const Field> fields_;
  std::vector<Computed> computed_;
  std::vector<bool> untyped_;                          // by computed column
  std::unordered_map<std::string, uint16_t> numbers_;  // by the encoding of a column
};

}  // namespace loam
