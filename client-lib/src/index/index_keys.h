// IndexKeys: computes the keys of an index's tree.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loam/bdtree/key.h>
#include <loam/client/index.h>
#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/row.h"
#include "common/schema/value.h"

namespace loam::client {

/// Converts records and ranges to keys of an index's tree.
///
/// A key consists of the values of the index's fields and the record's own key (8 bytes, the most significant first).
/// In a unique index the keys of values without NULL do not contain the record: such a key is *shared*, and all
/// entries of the values lie under it (R28, unique indexes).
///
/// A value type, immutable.
class IndexKeys {
 public:
  /// The keys of this index.
  static Result<IndexKeys> make(const Index& index);

  /// A key of the tree. Shared: the key does not contain the record.
  struct TreeKey {
    std::string bytes;
    bool shared = false;
  };

  const Index& index() const { return index_; }
  /// The projection of the table to the index's fields, in their order.
  const Table& fields() const { return fields_; }

  /// Returns the key of a record from its `row` of fields(). kInvalidArgument, with index and record in the message:
  /// the values are too long.
  Result<TreeKey> key_of(const RowView& row, Key record) const;
  /// Returns the shared key of these values. Nothing: the index is not unique, values are missing, or one is NULL, so
  /// that the values name a range instead of one key.
  Result<std::optional<std::string>> unique_key(std::span<const Value> values) const;

  /// A range [from, to) of keys; an empty `to` is no bound. A bound with a record (IndexBound::record) at a shared
  /// key divides the entries under this key.
  struct Bounds {
    struct RecordBound {
      std::string key;
      Key record;
      bool inclusive = true;
    };

    std::string from;
    std::string to;
    bool empty = false;
    std::optional<RecordBound> first{};
    std::optional<RecordBound> last{};

    bool contain(std::string_view key, Key record) const {
      if (empty || key < from || (!to.empty() && key >= to)) return false;
      if (first && key == first->key && (first->inclusive ? record < first->record : record <= first->record)) {
        return false;
      }
      return !last || key != last->key || (last->inclusive ? record <= last->record : record < last->record);
    }
  };
  /// Converts a range. kInvalidArgument, with the index in the message: values of other types, or too many values; a
  /// bound with a record that does not have all values; a prefix that is not a text or blob.
  Result<Bounds> bounds(const IndexRange& range) const;

  /// Returns the record that a key of the tree contains. Nothing: the key is shared. kMalformed: the key is too
  /// short.
  Result<std::optional<Key>> record_of(std::string_view key) const;

 private:
  IndexKeys(Index index, Table fields, bdtree::KeyCodec codec, bool nullable)
      : index_(std::move(index)), fields_(std::move(fields)), codec_(std::move(codec)), nullable_(nullable) {}

  /// True if the key of these values is shared.
  bool shares(std::span<const Value> values) const;
  Status encode(const IndexBound& bound, std::string& out) const;
  Status named(const Status& status) const;

  Index index_;
  Table fields_;
  bdtree::KeyCodec codec_;
  bool nullable_;
};

}  // namespace loam::client
