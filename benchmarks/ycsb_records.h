// What YCSB's workloads read and write: keys of two types, values that can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <loam/bdtree/key.h>

#include "common/base/bytes.h"

namespace loam::bench {

/// The keys of one type: every number has its own, and neighbours' lie far from each other.
class YcsbKeys {
 public:
  enum class Type { kInt64, kText };
  explicit YcsbKeys(Type type);

  std::string of(uint64_t number) const;
  /// For people and for the figures' options.
  const char* description() const;

 private:
  Type type_;
  bdtree::KeyCodec codec_;
};

/// A value of so many bytes: its key with its length, filling that `stamp` makes, a checksum of all that.
std::string ycsb_value(std::string_view key, uint64_t stamp, size_t bytes);
/// Whether these are a value of that key and size.
bool ycsb_value_is_right(Bytes value, std::string_view key, size_t bytes);

/// Numbers of records, some of which are being inserted. One thread.
class YcsbNumbers {
 public:
  uint64_t begin_insert() {
    open_.insert(next_);
    return next_++;
  }
  void end_insert(uint64_t number) { open_.erase(number); }
  /// All below have been inserted.
  uint64_t inserted() const { return open_.empty() ? next_ : *open_.begin(); }
  /// All that were begun.
  uint64_t begun() const { return next_; }

 private:
  uint64_t next_ = 0;
  std::set<uint64_t> open_;
};

}  // namespace loam::bench
