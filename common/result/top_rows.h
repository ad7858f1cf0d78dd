// The k best rows of a top-k query, at a storage node or at the client that merges the results.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/value.h"

namespace loam {

/// Largest memory of the rows of one top-k, at a storage node and at the client. A query that needs more fails with
/// kInvalidArgument.
inline constexpr size_t kMaxTopBytes = 64 << 20;

/// Bytes of a value in memory.
inline size_t size_of(const Value& value) {
  return sizeof(Value) + (is_variable(value.type()) ? value.as_text().size() : 0);
}

/// The k best rows so far, as a heap whose root is the worst of them. So most other rows are rejected by one
/// comparison. NULL is below every value. Owner: one thread.
class TopRows {
 public:
  /// Tests set another limit than the default. Before a row is kept, its bytes are acquired from `account`, which may
  /// be null and outlives this object; they are not released.
  explicit TopRows(const TopK& top, size_t max_bytes = kMaxTopBytes, MemoryAccount* account = nullptr)
      : k_(static_cast<size_t>(top.k)), descending_(top.descending), max_bytes_(max_bytes), account_(account) {}

  /// Number of rows.
  size_t size() const { return rows_.size(); }
  /// Whether a row with this value of the top-k's field is one of the k best so far.
  bool qualifies(const Value& by) const;
  /// Adds a row, which qualifies; `row` has the values of the result's columns. kInvalidArgument: the rows need too
  /// much memory. kOverloaded: the account has no memory. After an error the object must not be used any more.
  Status add(Value by, std::vector<Value> row);

  /// A row of the result.
  struct Row {
    Value by;                   ///< value of the top-k's field
    std::vector<Value> values;  ///< values of the result's columns
  };
  /// Returns the rows, the best first, and removes them.
  std::vector<Row> release_sorted();

 private:
  /// A strict order with the better row first. The heap functions then put the worst row at the root.
  bool better(const Value& a, const Value& b) const {
    const auto order = a.compare(b);
    return descending_ ? order > 0 : order < 0;
  }

  Status make_room(size_t row_bytes);

  const size_t k_;
  const bool descending_;
  const size_t max_bytes_;
  MemoryAccount* const account_;
  size_t bytes_ = 0;
  size_t reserved_bytes_ = 0;  // bytes that were acquired from the account
  std::vector<Row> rows_;
};

}  // namespace loam
