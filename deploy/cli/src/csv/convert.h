// Conversion of CSV fields to values: words that mean NULL, inference of a schema, and rows of a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "deploy/cli/src/csv/encoding.h"
#include "deploy/cli/src/csv/reader.h"

namespace loam::cli {

/// The words that mean NULL in an unquoted field. A quoted field is never NULL.
struct NullWords {
  std::vector<std::string> words = {"", "NA"};

  bool is_null(const CsvField& field) const;
};

/// Infers a schema from the rows of a CSV file.
///
/// A column is int32 if all its values are whole numbers in that range, int64 if they fit there, float64 if they are
/// decimal numbers of up to 17 digits, boolean if they are true or false, a date or timestamp if they are, and text
/// otherwise. A column with a NULL is nullable. Numbers with leading zeros or a plus sign are text, because a number
/// would not keep these characters. The inference never chooses int16 or float32, so that later rows with larger values
/// fit. Types only widen: int32 → int64 → float64 → text, date → timestamp → text. A column with decimal numbers and an
/// int64 value beyond 2^53 is text.
class SchemaInference {
 public:
  /// `not_a_field`: the column that holds the record keys and becomes no field of the table, if any.
  explicit SchemaInference(std::vector<std::string> names, NullWords nulls = {},
                           const std::optional<std::string>& not_a_field = std::nullopt);

  /// Takes a row into account. Ignores a row whose number of fields differs from the header; the import reports it.
  void add(const CsvRow& row);
  uint64_t rows() const { return rows_; }
  /// The inferred schema. `whole` says that add() saw every row of the input. Otherwise whole numbers become
  /// int64 and every field becomes nullable, so that later rows fit. kInvalidArgument: names that a schema cannot have,
  /// or too many fields.
  Result<Schema> schema(bool whole) const;

 private:
  /// Each group of kinds widens from left to right. Values of two groups are text.
  enum class Kind : uint8_t { kNothing, kInt32, kInt64, kFloat64, kBoolean, kDate, kTimestamp, kText };
  struct Column {
    std::string name;
    bool is_field = true;
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool beyond_double = false;  // a whole number that float64 would change
  };
  static Kind kind_of(std::string_view text, Column& column);
  static void widen(Column& column, std::string_view text);

  std::vector<Column> columns_;
  NullWords nulls_;
  uint64_t rows_ = 0;
};

/// The column names of a header row. kMalformed, with line and column: a name is empty, repeated, longer than
/// kMaxNameBytes, or not UTF-8.
Result<std::vector<std::string>> header_names(const CsvRow& header);

/// Converts CSV rows to rows of a table. Columns are matched with fields by name, in any order.
///
/// Owned and used by one thread; allocates nothing per row after the first ones.
class RowConverter {
 public:
  /// `schema` outlives the converter. `key_column`: the column that holds the record keys, if any; it may be a field of
  /// the table too. kMalformed: a column is neither a field nor the key column; a field that cannot be NULL has no
  /// column; the key column is missing.
  static Result<RowConverter> make(const Schema& schema, const std::vector<std::string>& header,
                                   const std::optional<std::string>& key_column, NullWords nulls = {});

  /// A converted row.
  struct Record {
    std::optional<Key> key;  ///< set if there is a key column
    Bytes row;               ///< valid until the next call of convert()
  };
  /// Converts one row. kMalformed, with line and column: the number of fields differs from the header; a value does not
  /// parse as the field's type; NULL in a field that cannot be NULL; a row above the size limit; a key that is no whole
  /// number from 0 to 2^64 - 1.
  Result<Record> convert(const CsvRow& row);
  /// The likely encoding of the last text that was not UTF-8; empty if every text was UTF-8.
  const std::optional<ContentConversion>& encoding() const { return encoding_; }

 private:
  struct Column {
    std::string name;
    std::optional<uint16_t> field;
    bool is_key = false;
  };
  RowConverter(const Schema& schema, NullWords nulls) : schema_(&schema), builder_(schema), nulls_(std::move(nulls)) {}
  Status set(const CsvField& text, const Column& column);
  Status set_text(const CsvField& text, const Column& column);
  Status set_number(const CsvField& text, uint16_t field);

  const Schema* schema_;
  RowBuilder builder_;
  NullWords nulls_;
  std::vector<Column> columns_;
  std::optional<ContentConversion> encoding_;
};

/// An error about one field: kMalformed with the message "line 7, column 12 (dep_delay): …".
Status field_error(const CsvField& field, std::string_view name, std::string_view what);

}  // namespace loam::cli
