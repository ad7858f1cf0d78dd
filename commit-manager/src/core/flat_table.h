// A hash table from a number to a small record. Every begin and completion looks records up in it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/assert.h"

namespace loam::commit {

/// A hash table with open addressing and linear probing, at most half full. `Record` is a small struct with a
/// `uint64_t id`, which is 0 in an empty slot. erase() shifts the following records back, so churn leaves no
/// tombstones.
///
/// It uses Fibonacci hashing, because the ids are dense and a few old ones stay for long. With id modulo size, each
/// new id that meets a block of old ids would probe the whole block. Multiplied by the golden ratio, the ids spread
/// evenly.
///
/// One thread. Grows by doubling; never shrinks. Pointers are valid until the next insert() or erase().
template <class Record>
class FlatTable {
 public:
  FlatTable() : slots_(kInitialSlots) {}

  Record* find(uint64_t id) {
    for (size_t at = home(id);; at = next(at)) {
      if (slots_[at].id == 0) return nullptr;
      if (slots_[at].id == id) return &slots_[at];
    }
  }
  const Record* find(uint64_t id) const { return const_cast<FlatTable*>(this)->find(id); }

  /// Inserts a record whose id is not 0 and not in the table.
  void insert(const Record& record) {
    LOAM_DCHECK(record.id != 0 && find(record.id) == nullptr, "the id is new");
    if ((size_ + 1) * 2 > slots_.size()) grow();
    place(record);
    ++size_;
  }

  /// Removes a record; `record` points into the table.
  void erase(Record* record) {
    auto hole = static_cast<size_t>(record - slots_.data());
    for (size_t at = next(hole); slots_[at].id != 0; at = next(at)) {
      // The record at `at` may move back to the hole unless its home slot lies between the two: a search that starts
      // at its home would end at the empty slot before it.
      if (((at - home(slots_[at].id)) & mask()) >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = Record{};
    --size_;
  }

  size_t size() const { return size_; }
  size_t capacity() const { return slots_.size(); }

  /// Visits all records in any order. The visitor must not insert or erase.
  template <class Visitor>
  void for_each(Visitor&& visitor) {
    for (Record& record : slots_) {
      if (record.id != 0) visitor(record);
    }
  }
  template <class Visitor>
  void for_each(Visitor&& visitor) const {
    for (const Record& record : slots_) {
      if (record.id != 0) visitor(record);
    }
  }

 private:
  static constexpr size_t kInitialSlots = 1024;

  size_t mask() const { return slots_.size() - 1; }
  size_t next(size_t at) const { return (at + 1) & mask(); }
  size_t home(uint64_t id) const {
    return static_cast<size_t>((id * 0x9e3779b97f4a7c15u) >> (64 - std::countr_zero(slots_.size())));
  }
  void place(const Record& record) {
    size_t at = home(record.id);
    while (slots_[at].id != 0) at = next(at);
    slots_[at] = record;
  }
  void grow() {
    std::vector<Record> before(slots_.size() * 2);
    before.swap(slots_);
    for (const Record& record : before) {
      if (record.id != 0) place(record);
    }
  }

  std::vector<Record> slots_;
  size_t size_ = 0;
};

}  // namespace loam::commit
