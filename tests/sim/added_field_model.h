// The oracle's model of fields that clients add to tables (decision 0027).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "tests/sim/verdict.h"

namespace loam::sim {

/// The model of added fields. Each write that names an added field sets it to the write's tag. A record that was read
/// names its last write by its tag. Each of its added fields is NULL, or has the tag of that write or of an earlier
/// write to the record.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock.
class AddedFieldModel {
 public:
  explicit AddedFieldModel(Verdict& verdict) : verdict_(verdict) {}

  /// add_field returned a handle with this number of added fields.
  void added(TableId table, uint8_t fields);
  /// open_table returned a handle with this number of added fields. `requested_at`: a moment before the call.
  void opened(TableId table, uint8_t fields, LogicalTime requested_at);

  /// A write with this tag names the first `fields` of the added fields. `makes`: it makes the record, so the others
  /// are NULL; otherwise they keep their values.
  void wrote(RecordId place, uint64_t tag, uint8_t fields, bool makes);
  /// A read returned a record with this tag, and its first added fields. Empty: NULL.
  void read(RecordId place, uint64_t tag, std::span<const std::optional<uint64_t>> fields);

 private:
  struct Write {
    RecordId place;
    uint8_t fields = 0;
    bool makes = false;
  };
  /// The number of added fields that a table has from a moment on.
  struct Added {
    uint8_t fields = 0;
    LogicalTime from = 0;
  };

  Verdict& verdict_;
  std::unordered_map<uint64_t, Write> writes_;  // by tag
  std::map<TableId, Added> added_;
};

}  // namespace loam::sim
