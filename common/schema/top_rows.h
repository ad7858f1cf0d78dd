// The k best rows of a top-k: what a node keeps of its rows, and a client of its nodes' rows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/value.h"

namespace loam {

/// Memory of one top-k's rows, at a node and at the client. Beyond: kInvalidArgument that says so.
inline constexpr size_t kMaxTopBytes = 64 << 20;

/// A heap of at most k rows whose root is the worst, so that most rows are turned away by one comparison. NULL is below
/// every value. Owned by one thread.
class TopRows {
 public:
  /// The limit is for tests; it is named above. `account`, which may be null and outlives this, is asked for the memory
  /// of rows before they are kept; nothing is given back to it.
  explicit TopRows(const TopK& top, size_t max_bytes = kMaxTopBytes, MemoryAccount* account = nullptr)
      : k_(static_cast<size_t>(top.k)), descending_(top.descending), max_bytes_(max_bytes), account_(account) {}

  size_t size() const { return rows_.size(); }
  /// A row with this value of the top-k's field belongs to the k best so far.
  bool wants(const Value& by) const;
  /// `row` holds the values of the result's columns. Call only if wanted. kInvalidArgument if the rows take too much
  /// memory, kOverloaded if the account has none for them; then this is of no more use.
  Status add(Value by, std::vector<Value> row);

  struct Row {
    Value by;
    std::vector<Value> values;
  };
  /// Best first. Leaves this empty.
  std::vector<Row> take();

 private:
  /// Strict order, the better first: makes the worst the root of the heap.
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
  size_t taken_ = 0;  // from the account
  std::vector<Row> rows_;
};

}  // namespace loam
