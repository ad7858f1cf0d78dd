// The records of YCSB's workloads: keys of two types, and values that can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <loam/bdtree/key.h>

#include "common/base/bytes.h"

namespace loam::bench {

/// Maps record numbers to keys of one type. Every number has its own key, and the keys of neighbours are far apart.
class YcsbKeys {
 public:
  enum class Type { kInt64, kText };
  explicit YcsbKeys(Type type);

  /// The key of a record number, in the encoding of the tree.
  std::string of(uint64_t number) const;
  /// The type in words, for people and for the options of figures.
  const char* description() const;

 private:
  Type type_;
  bdtree::KeyCodec codec_;
};

/// Makes a value of `bytes` bytes: the key with its length, a filling derived from `stamp`, and a checksum of both.
std::string ycsb_value(std::string_view key, uint64_t stamp, size_t bytes);
/// Returns whether `value` is a value of this key and size with a correct checksum.
bool ycsb_value_is_right(Bytes value, std::string_view key, size_t bytes);

/// Gives numbers to new records and tracks which inserts are in progress. Threads: one.
class YcsbNumbers {
 public:
  /// Returns the number of the next record, whose insert begins.
  uint64_t begin_insert() {
    open_.insert(next_);
    return next_++;
  }
  /// Marks the insert of a record as done.
  void end_insert(uint64_t number) { open_.erase(number); }
  /// The inserts of all records below this number are done.
  uint64_t inserted() const { return open_.empty() ? next_ : *open_.begin(); }
  /// The inserts of all records below this number have begun.
  uint64_t begun() const { return next_; }

 private:
  uint64_t next_ = 0;
  std::set<uint64_t> open_;
};

}  // namespace loam::bench
