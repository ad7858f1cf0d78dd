// What indexes say, judged by what the records say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The model of indexes, beside what TransactionModel says of the records that come by them. It keeps nothing: each
/// entry is given both sides.
///
/// Owner: the Oracle. Threads: every entry takes the verdict's lock.
class IndexModel {
 public:
  /// A record under a key of an index's tree.
  struct Entry {
    std::string key;
    Key record;

    auto operator<=>(const Entry&) const = default;
  };

  explicit IndexModel(Verdict& verdict) : verdict_(verdict) {}

  /// Records in the order in which a range of an index gave them, whose first field is the value, rising.
  void ranged(std::string_view index, std::span<const ScannedRow> rows);
  /// For the tag of a record that `reader` has seen, a unique index gave the record `found`; nothing: none. Returns
  /// whether that is right.
  bool found(std::string_view index, TransactionId reader, Place place, const Seen& seen, std::optional<Key> found);
  /// When all was at rest, an insert of a value that no record has was refused.
  void blocked(std::string_view index, int64_t value, const Status& refusal);
  /// When all was at rest: what the tree itself holds that nobody has ended, whether or not a reader is shown it, and
  /// the keys that the records have, once each.
  void at_rest(std::string_view index, std::vector<Entry> live, std::vector<Entry> records);

 private:
  Verdict& verdict_;
};

}  // namespace loam::sim
