// Indexes, and the ranges that a caller reads by them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/schema/value.h"

namespace loam::client {

/// One field of a new index, with its sort direction.
struct IndexField {
  std::string_view name;    ///< name of the field in the table's schema
  bool descending = false;  ///< true: the greatest value comes first
};

/// Options of Client::create_index().
struct IndexOptions {
  /// True: no two records may have the same values in the index's fields. NULL is not equal to NULL, as in SQL.
  bool unique = false;
  /// Called with the progress of the build: the number of records entered, and an estimate of the final number (0:
  /// not known yet). Runs in a fiber. An exception ends the build as a failure does, and arrives at the caller of
  /// create_index().
  std::function<void(uint64_t done, uint64_t total)> on_progress{};
};

/// Handle of one index, with the state that the catalog had when the handle was made.
///
/// Client::create_index() and open_index() return handles. A handle is cheap to copy, immutable, and usable by any
/// thread; it may outlive its client.
///
/// An index is a Bd-tree whose tree nodes are records of a non-transactional table. So indexes share their names and
/// ids with tables. Commits maintain the index (R27, index entries). A read by an index finds exactly the records of
/// the transaction's snapshot, changed by the transaction's own writes.
class Index {
 public:
  /// One field of the index.
  struct Part {
    uint16_t field = 0;       ///< number of the field in the table's schema
    bool descending = false;  ///< true: the greatest value comes first
  };
  /// The index as the catalog describes it.
  struct Description {
    TableId id;                ///< id of the table that stores the tree nodes
    std::string name;          ///< name of the index
    Table table;               ///< the indexed table
    std::vector<Part> parts;   ///< the fields of the index, in their order
    bool unique = false;       ///< no two records have the same values
    uint64_t ready_since = 0;  ///< version of the catalog from which on the index can be read; 0: it is being built
    bool damaged = false;      ///< records of the index are lost
  };

  /// For the library.
  explicit Index(std::shared_ptr<const Description> description) : description_(std::move(description)) {}

  /// Id of the non-transactional table that stores the tree nodes.
  TableId id() const { return description_->id; }
  /// Name of the index.
  const std::string& name() const { return description_->name; }
  /// The indexed table.
  const Table& table() const { return description_->table; }
  /// The fields of the index, in their order.
  const std::vector<Part>& parts() const { return description_->parts; }
  /// True: no two records may have the same values in the index's fields.
  bool unique() const { return description_->unique; }
  /// True if the index was built and not damaged when the handle was made. Only transactions that begin after the end
  /// of the build can read it.
  bool ready() const { return description_->ready_since != 0 && !damaged(); }
  /// True if an operator had accepted the loss of records of a storage node between the build and the making of the
  /// handle. Transactions that begin after the loss can no longer read the index, and commits no longer maintain it:
  /// drop the index and create it again.
  bool damaged() const { return description_->damaged; }
  /// Version of the catalog from which on the index can be read, if it is ready.
  uint64_t ready_since() const { return description_->ready_since; }

 private:
  std::shared_ptr<const Description> description_;  // never null
};

/// One end of a range in an index. It names values of any number of the index's first fields.
struct IndexBound {
  /// Values of the index's first fields, in their order.
  std::vector<Value> values;
  /// True: the records that have these values are in the range.
  bool inclusive = true;
  /// Narrows the bound to one record among those with equal values: the record of this key, whether or not it exists.
  /// `values` then has one value for each field of the index. A caller that reads page by page begins a page exactly
  /// behind the last record of the previous page.
  std::optional<Key> record{};
  /// True: the last value, a text or blob, stands for all values that begin with it. It may end inside of a
  /// character. The empty value is a prefix of every value except NULL. Not together with `record`.
  bool prefix = false;
};

/// A range of records in the order of an index. Records with equal values in the index's fields are ordered by key.
///
///     IndexRange::equal({Value::int64(7)})                                         the first field is 7
///     IndexRange::prefix({Value::int64(7), Value::text("Ad")})                     those whose name is LIKE 'Ad%'
///     {.from = IndexBound{{Value::int64(7), Value::text("M")}, false, Key(3)}, .limit = 20}   20 behind (7, "M", 3)
struct IndexRange {
  std::optional<IndexBound> from{};  ///< lower end in the order of the index; nothing: the first record
  std::optional<IndexBound> to{};    ///< upper end in the order of the index; nothing: the last record
  bool backward = false;             ///< true: the records are read from `to` down to `from`
  size_t limit = SIZE_MAX;           ///< most records of the result

  /// The range of all records that have these values in the index's first fields.
  static IndexRange equal(std::vector<Value> values) { return {IndexBound{values}, IndexBound{std::move(values)}}; }
  /// The range of all records that have these values in the index's first fields, where the last value, a text or
  /// blob, need only be the beginning of its field.
  static IndexRange prefix(std::vector<Value> values) {
    const IndexBound bound{std::move(values), true, {}, true};
    return {bound, bound};
  }
};

}  // namespace loam::client
