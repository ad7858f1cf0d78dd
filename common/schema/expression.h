// Expressions of queries: columns that a query computes from the fields of its table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/predicate.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"

namespace loam {

/// Number of the first computed column of a query. Lower numbers are fields of the table, as many as a table can have,
/// so a field that is added to a table changes no number.
inline constexpr uint16_t kFirstComputed = kMaxFields;
/// Largest number of computed columns of a query. Each operation of an expression is one.
inline constexpr size_t kMaxComputed = 1'024;
/// Largest number of arguments of all computed columns of a query together.
inline constexpr size_t kMaxArguments = 8'192;
/// Largest number of bytes of a text that an expression makes. A longer one is an error of its row.
inline constexpr size_t kMaxComputedText = 64 << 10;
/// Largest number of bytes of a pattern of LIKE. A row takes up to this number of steps for each byte of its text. A
/// longer pattern is an error: of the query if it is a constant, and else of its row.
inline constexpr size_t kMaxPattern = 1'024;

/// The operation of a computed column. The numbers travel in messages. A number of the same type means: integers or
/// floats of one type, or decimals of any digits and scale.
enum class Operation : uint8_t {
  kConstant = 1,  ///< the constant, which may be NULL

  kAdd = 2,       ///< numbers; date + int32 days; timestamp + seconds; seconds are kSeconds
  kSubtract = 3,  ///< numbers; date - int32 days; date - date = int32 days; timestamp - timestamp = seconds
  kMultiply = 4,  ///< numbers
  kDivide = 5,    ///< numbers; integers are truncated
  kModulo = 6,    ///< integers or decimals; the result has the sign of the first argument
  kNegate = 7,    ///< a number

  kEqual = 8,          ///< comparisons of two values of one type, or two decimals
  kNotEqual = 9,       ///<
  kLess = 10,          ///<
  kLessEqual = 11,     ///<
  kGreater = 12,       ///<
  kGreaterEqual = 13,  ///<
  kIsNull = 14,        ///< never NULL
  kIn = 15,            ///< whether the argument equals one of the constants, which have its type and are not NULL

  kAnd = 16,       ///< booleans, at least two; FALSE if one is FALSE, also if another one is an error
  kOr = 17,        ///< booleans, at least two; TRUE if one is TRUE, also if another one is an error
  kNot = 18,       ///< a boolean
  kCase = 19,      ///< condition, value, condition, value, …, and the value for else; without it NULL
  kCoalesce = 20,  ///< the first argument that is not NULL
  kCast = 21,      ///< the argument as a value of the column's type

  kLength = 22,       ///< the number of characters of a text, int32
  kLower = 23,        ///< a text in lower case
  kUpper = 24,        ///< a text in upper case
  kSubstring = 25,    ///< text, int32 first character from 1 on [, int32 number of characters]
  kConcatenate = 26,  ///< texts, at least two
  kLike = 27,         ///< text, pattern; the constant is the escape character, or the empty text for none

  kDatePart = 28,  ///< the part of a date or timestamp: int32; of seconds and epoch: kSeconds
  kTruncate = 29,  ///< the begin of the part in which a date or timestamp lies
  kBucket = 30,    ///< value, width: the greatest multiple of the width up to the value, from 0 or 1970-01-01 on
};
/// The name of the operation for messages: "+", "CASE", "length" and so on.
std::string_view to_string(Operation operation);

/// The type of a number of seconds: of intervals, of the difference of timestamps, and of the part epoch.
inline constexpr FieldType kSeconds = FieldType::decimal(18, 6);

/// A part of a date or timestamp. The numbers travel in messages. Weeks are those of ISO 8601.
enum class DatePart : uint8_t {
  kNone = 0,
  kYear = 1,
  kQuarter = 2,
  kMonth = 3,
  kWeek = 4,           ///< 1 to 53; kTruncate: Monday
  kDay = 5,            ///< of the month
  kHour = 6,           ///< of a timestamp, as the next three
  kMinute = 7,         ///<
  kSecond = 8,         ///< with its fraction
  kEpoch = 9,          ///< seconds since 1970-01-01; not for kTruncate
  kDayOfWeek = 10,     ///< 0 is Sunday; not for kTruncate, as the rest
  kIsoDayOfWeek = 11,  ///< 1 is Monday
  kDayOfYear = 12,     ///<
  kIsoYear = 13,       ///< the year of the week
};
/// The name of the part, as PostgreSQL writes it: "year", "dow" and so on.
std::string_view to_string(DatePart part);

/// A column that a query computes: one operation. Plain data.
///
/// An expression is a list of columns in which the arguments of each come before it, so equal parts can be one column.
/// Nothing is converted implicitly: the program that makes the list inserts kCast.
struct Computed {
  Operation operation = Operation::kConstant;  ///< what to compute
  FieldType type;                              ///< the type of the result
  std::vector<uint16_t> arguments;             ///< numbers of fields and of earlier computed columns
  std::vector<Value> constants;                ///< the constants that the operation names
  DatePart part = DatePart::kNone;             ///< for kDatePart and kTruncate

  /// True for the same operation with the same type, arguments, constants and part.
  bool operator==(const Computed&) const = default;
};

/// The type of the sum or difference of two decimals: exact, unless it has more than 38 digits.
FieldType sum_of(FieldType a, FieldType b);
/// The type of the product of two decimals. Its scale, the sum of the scales, must not exceed 38.
FieldType product_of(FieldType a, FieldType b);
/// The type of the quotient of two decimals: at least 16 digits behind the point as far as its integer part leaves
/// room.
FieldType quotient_of(FieldType a, FieldType b);
/// The type of the remainder of two decimals.
FieldType remainder_of(FieldType a, FieldType b);
/// The type of the result of an operation on arguments of these types; kNull if it does not take them. `column` has the
/// operation, its constants and part, and for kConstant and kCast the type. The caller has checked that
/// the operation takes as many arguments and constants.
FieldType result_type(const Computed& column, std::span<const FieldType> arguments);
/// Whether kCast converts values of one type to another.
bool can_cast(FieldType from, FieldType to);

/// The columns that a query can name: the fields of its table, and its computed columns. A view. For the groups of a
/// query (GroupSelection) the columns of its result take the place of the fields.
class QueryColumns {
 public:
  /// The caller keeps both arguments alive. Without check(), the functions below may be called for fields only.
  QueryColumns(std::span<const Field> fields, std::span<const Computed> computed);
  /// The fields of a table, and computed columns. The caller keeps both arguments alive.
  QueryColumns(const Schema& schema, std::span<const Computed> computed) : QueryColumns(schema.fields(), computed) {}
  /// The fields alone.
  QueryColumns(const Schema& schema) : QueryColumns(schema, {}) {}  // NOLINT(google-explicit-constructor)

  /// Checks the computed columns. kInvalidArgument: an argument is no earlier column; the types of arguments and result
  /// are not those of the operation; or a limit is exceeded. The message names the expression.
  Status check() const;

  /// The fields.
  std::span<const Field> fields() const { return fields_; }
  /// The computed columns; the first has number kFirstComputed.
  std::span<const Computed> computed() const { return computed_; }
  /// Whether there is a column of this number.
  bool has(uint16_t number) const {
    return number < kFirstComputed ? number < fields_.size() : number - size_t{kFirstComputed} < computed_.size();
  }
  /// The type of a column.
  FieldType type(uint16_t number) const {
    return number < kFirstComputed ? fields_[number].type : computed_[number - kFirstComputed].type;
  }
  /// Whether a column can be NULL.
  bool nullable(uint16_t number) const;
  /// The name of a field; the text of a computed column's expression, in the grammar of `loam scan`.
  std::string name(uint16_t number) const;
  /// Name, type and nullability of a column.
  Field field(uint16_t number) const { return {name(number), type(number), nullable(number)}; }

 private:
  std::span<const Field> fields_;
  std::span<const Computed> computed_;
  std::vector<bool> nullable_;  // of the computed columns
};

/// The name of a field as an expression writes it: in double quotes if it is a keyword or no word.
std::string quoted_name(std::string_view name);
/// The expression of a column as a text, in the grammar of `loam scan`, which reads it as the same expression. The
/// function cuts a text of more than `limit` bytes, which then ends with "…".
std::string expression_text(const QueryColumns& columns, uint16_t number, size_t limit = SIZE_MAX);

/// Appends computed columns.
void encode(std::span<const Computed> computed, ByteWriter& out);
/// Reads computed columns. kMalformed: the bytes are none, or exceed a limit. The schema is not known here, so the
/// caller calls QueryColumns::check() afterwards.
Result<std::vector<Computed>> decode_computed(ByteReader& in);

}  // namespace loam
