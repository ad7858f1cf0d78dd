// Evaluation of computed columns for a batch of rows at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/expression/row_mask.h"
#include "common/expression/texts.h"
#include "common/schema/expression.h"

namespace loam {

/// The values of one column for the rows of a batch: arrays of kBlockRows elements. Elements of rows that are not
/// present are undefined; those behind the rows of the batch may have any value.
struct ColumnLanes {
  const int64_t* keys = nullptr;  ///< integers, dates, timestamps, decimals up to 18 digits
  /// A bound m on the keys of present rows: each of them is in [-m - 1, m]. It is known without a look at the keys.
  uint64_t magnitude = kAnyMagnitude;
  const double* reals = nullptr;  ///< floats of both widths
  /// Decimals of more digits. Null if all of them fit 64 bits: then they are in `keys`.
  const Int128* longs = nullptr;
  const std::string_view* texts = nullptr;  ///< texts and blobs
  RowMask truths;                           ///< of a boolean, the rows with TRUE; all of them are present
  RowMask present;                          ///< the rows with a value: neither NULL nor an error
  RowMask failed;                           ///< the rows whose value is an error

  /// The bound of all integers of 64 bits.
  static constexpr uint64_t kAnyMagnitude = std::numeric_limits<int64_t>::max();
  /// The bound of integers between these two.
  static constexpr uint64_t magnitude_of(int64_t least, int64_t greatest) {
    return static_cast<uint64_t>(std::max(least ^ (least >> 63), greatest ^ (greatest >> 63)));
  }

  /// An integer or decimal.
  Int128 whole(size_t row) const { return longs != nullptr ? longs[row] : Int128{keys[row]}; }
};

/// Gives the fields of the rows of a batch to an evaluator.
class FieldSource {
 public:
  virtual ~FieldSource() = default;
  /// The set of all rows of the batch.
  virtual const RowMask& all() const = 0;
  /// The type of a field.
  virtual FieldType type(uint16_t field) const = 0;
  /// The values of a field; valid until the next batch.
  virtual const ColumnLanes& lanes(uint16_t field) = 0;
};

/// Why the value of an expression is an error.
enum class ExpressionFault : uint8_t {
  kNone = 0,
  kOutOfRange,        ///< a number, date or timestamp that the type of the result does not have
  kDivisionByZero,    ///<
  kInvalidText,       ///< a text that CAST cannot read
  kNegativeLength,    ///< a substring of a negative number of characters
  kTextTooLong,       ///< over kMaxComputedText
  kTextsTooLong,      ///< those of a batch together, over kMaxBatchTexts
  kPatternEnds,       ///< a pattern of LIKE that ends with its escape
  kPatternTooLong,    ///< over kMaxPattern
  kWidthNotPositive,  ///< a bucket with a width of 0 or less
};

struct Argument;
struct ComputedLanes;

/// An argument of an operation.
struct Argument {
  FieldType type;            ///< the type of its column
  const ColumnLanes& lanes;  ///< its values; valid until the next batch
};

/// Evaluates computed columns for all rows of a batch, each at most once.
///
/// Role: the only evaluation of expressions in the product: storage nodes use it for the blocks of a scan, and clients
/// for their own writes. The values of rows that no query selects are computed too, but an error is only a mark at its
/// row, which counts if a query uses the value (R26). Owner: a scan pass or a transaction. Threads: one. Memory is kept
/// from batch to batch, except that of texts beyond kKeptTextBytes.
class ExpressionEvaluator {
 public:
  /// Bytes of texts that a column keeps for the next batch.
  static constexpr size_t kKeptTextBytes = 64 << 10;
  /// Largest number of bytes of all texts that the operations of a batch make.
  static constexpr size_t kMaxBatchTexts = size_t{64} << 20;

  /// The columns were checked. The source outlives the evaluator.
  explicit ExpressionEvaluator(FieldSource& fields);
  ExpressionEvaluator(const ExpressionEvaluator&) = delete;
  ExpressionEvaluator& operator=(const ExpressionEvaluator&) = delete;
  ~ExpressionEvaluator();

  /// Largest number of columns at a time.
  static constexpr size_t kMaxColumns = size_t{64} << 10;

  /// Adds a column, whose arguments are fields and columns that were added, and returns its number. An equal column is
  /// added once, and counts its users. kOverloaded: there are kMaxColumns.
  Result<uint16_t> add(const Computed& column);
  /// Removes one use of a column, and a column without users with its uses of its arguments.
  void release(uint16_t number);

  /// Begins a new batch, and forgets the values of the one before.
  void begin_batch();
  /// The type of a column.
  FieldType type(uint16_t number) const;
  /// The values of a computed column; valid until the next batch.
  const ColumnLanes& computed(uint16_t number);
  /// The error of a row in computed(number).failed, as a message that names the operation.
  Status error(uint16_t number, size_t row) const;

 private:
  const ColumnLanes& lanes(uint16_t number);
  /// Computes the column and its arguments, as far as this batch has not.
  void compute_all(ComputedLanes& work);
  void compute(ComputedLanes& work);
  /// Computes the present rows of an operation that is NULL if an argument is NULL.
  void compute_strict(ComputedLanes& work, std::span<const Argument> arguments);

  FieldSource& fields_;
  uint64_t batch_ = 0;
  size_t texts_left_ = kMaxBatchTexts;                   // bytes that texts of the batch may still take
  std::vector<uint16_t> kept_;                           // columns that keep more than kKeptTextBytes
  std::vector<uint16_t> pending_;                        // columns that compute_all() has to compute
  std::vector<Argument> arguments_;                      // arguments of the column in compute()
  std::vector<std::unique_ptr<ComputedLanes>> columns_;  // null: a free number
  std::vector<uint16_t> free_;                           // the free numbers
  std::unordered_map<std::string, uint16_t> numbers_;    // by the encoding of a column
};

}  // namespace loam
