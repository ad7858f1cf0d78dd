// The keys of an index's tree.
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

/// From records and ranges to keys of the tree. A key is the values of the index's fields, and behind them the record's
/// own key (8 bytes, the most significant first), unless the index is unique and none of the values is NULL: then all
/// entries of the values are *shared* under one key (R28).
///
/// Immutable, a value type.
class IndexKeys {
 public:
  static Result<IndexKeys> make(const Index& index);

  struct TreeKey {
    std::string bytes;
    bool shared = false;
  };

  const Index& index() const { return index_; }
  /// The table, reduced to the index's fields in their order.
  const Table& fields() const { return fields_; }

  /// Of a record with `row`, of fields(). kInvalidArgument, which names index and record: the values are too long.
  Result<TreeKey> key_of(const RowView& row, Key record) const;
  /// All values of a unique index, none of them NULL; nothing: others, the key is not one but a range.
  Result<std::optional<std::string>> exact(std::span<const Value> values) const;

  /// [from, to) in the tree; no `to`: no bound. At a shared key a bound with a record divides the records.
  struct Bounds {
    struct Cut {
      std::string key;
      Key record;
      bool inclusive = true;
    };

    std::string from;
    std::string to;
    bool empty = false;
    std::optional<Cut> first{};
    std::optional<Cut> last{};

    bool contain(std::string_view key, Key record) const {
      if (empty || key < from || (!to.empty() && key >= to)) return false;
      if (first && key == first->key && (first->inclusive ? record < first->record : record <= first->record)) {
        return false;
      }
      return !last || key != last->key || (last->inclusive ? record <= last->record : record < last->record);
    }
  };
  /// kInvalidArgument names the index: values of other types, or too many; a record without all values; a beginning
  /// that is no text or blob.
  Result<Bounds> bounds(const IndexRange& range) const;

  /// Whose entries a key of the tree holds; nothing: it is shared. kMalformed.
  Result<std::optional<Key>> record_of(std::string_view key) const;

 private:
  IndexKeys(Index index, Table fields, bdtree::KeyCodec codec, bool nullable)
      : index_(std::move(index)), fields_(std::move(fields)), codec_(std::move(codec)), nullable_(nullable) {}

  /// That records of these values are shared under their key.
  bool shares(std::span<const Value> values) const;
  Status encode(const IndexBound& bound, std::string& out) const;
  Status named(const Status& status) const;

  Index index_;
  Table fields_;
  bdtree::KeyCodec codec_;
  bool nullable_;
};

}  // namespace loam::client
