// CSV fields as values: NULL words, inference of a schema, and rows of a table.
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

/// Which unquoted fields are NULL; a quoted one never is.
struct NullWords {
  std::vector<std::string> words = {"", "NA"};

  bool is_null(const CsvField& field) const;
};

/// Guesses the types of columns from rows.
///
/// A column is int32 if all its values are whole numbers in that range, int64 if they fit there, float64 if they are
/// decimal numbers, else text; nullable if a NULL was met. Numbers with leading zeros or a plus sign are text: as
/// numbers they would not come back as they were. int16 and float32 are never guessed, so that later data has room.
/// Widening is one-way: int32 → int64 → float64 → text; int64 values beyond 2^53 beside decimals make text.
class SchemaInference {
 public:
  /// `not_a_field`: the column, if any, that is no field of the table because it has the records' keys.
  explicit SchemaInference(std::vector<std::string> names, NullWords nulls = {},
                           const std::optional<std::string>& not_a_field = std::nullopt);

  /// Rows with another number of fields are ignored; the import reports them.
  void add(const CsvRow& row);
  uint64_t rows() const { return rows_; }
  /// `whole` says that every row was seen. After a sample, whole numbers become int64 and every field nullable.
  /// kInvalidArgument for names that no schema can have, or too many of them.
  Result<Schema> schema(bool whole) const;

 private:
  enum class Kind : uint8_t { kNothing, kInt32, kInt64, kFloat64, kText };
  struct Column {
    std::string name;
    bool is_field = true;
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool beyond_double = false;  // a whole number that float64 would change
  };
  static void widen(Column& column, std::string_view text);

  std::vector<Column> columns_;
  NullWords nulls_;
  uint64_t rows_ = 0;
};

/// The header's names; kMalformed with line and column for names that are empty, repeated, longer than kMaxNameBytes or
/// not UTF-8.
Result<std::vector<std::string>> header_names(const CsvRow& header);

/// Makes table rows out of CSV rows. Columns are matched with fields by name, in any order.
///
/// Owned and used by one thread; allocates nothing per row after the first ones.
class RowConverter {
 public:
  /// `key_column`: the column that has the record key, if any; it may be a field of the table too.
  /// kMalformed: a column that is no field (unless it is the key's), a field that cannot be NULL and has no column, no
  /// such key column.
  static Result<RowConverter> make(const Schema& schema, const std::vector<std::string>& header,
                                   const std::optional<std::string>& key_column, NullWords nulls = {});

  struct Record {
    std::optional<Key> key;  ///< if there is a key column
    Bytes row;               ///< until the next call
  };
  /// kMalformed with line and column: another number of fields, a value that is none of the type, NULL where there can
  /// be none, a row over the limit, a key that is no whole number from 0 to 2^64 - 1.
  Result<Record> convert(const CsvRow& row);
  /// The likely encoding of the last text that was not UTF-8; nothing if all were.
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

/// kMalformed: "line 7, column 12 (dep_delay): …".
Status field_error(const CsvField& field, std::string_view name, std::string_view what);

}  // namespace loam::cli
