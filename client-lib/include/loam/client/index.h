// Indexes, and ranges in them.
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

/// A field that an index is of, and its direction.
struct IndexField {
  std::string_view name;
  bool descending = false;
};

struct IndexOptions {
  /// No two records have the same values, but that NULLs are equal to nothing, as in SQL.
  bool unique = false;
  /// Called as the index is built, with records that it has and (an estimate, 0: not known yet) will have. In a fiber.
  /// An exception ends the build, as a failure does, and arrives at the caller of create_index().
  std::function<void(uint64_t done, uint64_t total)> on_progress{};
};

/// Handle of one index, as the catalog had it when it was opened: cheap to copy, immutable, any thread. From
/// Client::create_index and open_index.
///
/// An index is a Bd-tree whose nodes are records of a non-transactional table, so its names and numbers are a table's.
/// Commits maintain it (R27); what reads through it sees exactly what its transaction's snapshot holds, and the
/// transaction's own writes.
class Index {
 public:
  /// A field by its number in the table's schema.
  struct Part {
    uint16_t field = 0;
    bool descending = false;
  };
  struct Description {
    TableId id;
    std::string name;
    Table table;
    std::vector<Part> parts;
    bool unique = false;
    uint64_t ready_since = 0;  // version of the catalog; 0: it is being built
    bool damaged = false;
  };

  explicit Index(std::shared_ptr<const Description> description) : description_(std::move(description)) {}

  TableId id() const { return description_->id; }
  const std::string& name() const { return description_->name; }
  /// The table that it is of.
  const Table& table() const { return description_->table; }
  const std::vector<Part>& parts() const { return description_->parts; }
  bool unique() const { return description_->unique; }
  /// It was built when the handle was made, and not damaged. Only transactions that begin after it was built can read
  /// it.
  bool ready() const { return description_->ready_since != 0 && !damaged(); }
  /// When the handle was made, a node's records had been given up for lost since it was built. Whoever begins from then
  /// on can read by it no more, and nobody maintains it: drop it and create it again.
  bool damaged() const { return description_->damaged; }
  /// Version of the catalog from which on it can be read, if it is ready.
  uint64_t ready_since() const { return description_->ready_since; }

 private:
  std::shared_ptr<const Description> description_;  // never null
};

/// One end of a range: values of the index's first fields, as many as one likes.
struct IndexBound {
  std::vector<Value> values;
  /// Keys that begin with the values are in the range.
  bool inclusive = true;
  /// With all values of the index: of the records that have them, the one with this key, there or not. So a page begins
  /// exactly behind the last record of the one before.
  std::optional<Key> record{};
  /// The last value, a text or blob, is only the beginning of the field's, and may end inside of a character. The empty
  /// one begins every value; none begins NULL. Not with a record.
  bool prefix = false;
};

/// Which records, in the order of the index; records of equal keys in the order of their own.
///
///     IndexRange::equal({Value::int64(7)})                                         all whose first field is 7
///     IndexRange::prefix({Value::int64(7), Value::text("Ad")})                     of these, all names like 'Ad%'
///     {.from = IndexBound{{Value::int64(7), Value::text("M")}, false, Key(3)}, .limit = 20}   20 behind (7, "M", 3)
struct IndexRange {
  std::optional<IndexBound> from{};  ///< nothing: from the first
  std::optional<IndexBound> to{};    ///< nothing: to the last
  bool backward = false;             ///< from `to` down
  size_t limit = SIZE_MAX;

  /// All records that have these values in the index's first fields.
  static IndexRange equal(std::vector<Value> values) { return {IndexBound{values}, IndexBound{std::move(values)}}; }
  /// All records whose next field begins with the last of these values, a text or blob, and that have the values before
  /// it in the index's first fields.
  static IndexRange prefix(std::vector<Value> values) {
    const IndexBound bound{std::move(values), true, {}, true};
    return {bound, bound};
  }
};

}  // namespace loam::client
