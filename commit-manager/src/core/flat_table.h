// Hash table from a number to a small record: what every begin and completion looks up.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/assert.h"

namespace loam::commit {

/// Open addressing with linear probing, at most half full; removal shifts the followers back, so that churn leaves no
/// tombstones. `Record` is a small struct with a `uint64_t id`, 0 for an empty slot.
///
/// Fibonacci hashing: the ids are dense, and a few old ones stay behind. With id modulo size, every new id that meets a
/// block of old ones would walk over all of it; multiplied by the golden ratio they spread evenly.
///
/// One thread. Grows by doubling; never shrinks. Pointers are good until the next insert() or erase().
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

  /// `record.id` is not 0 and not in the table.
  void insert(const Record& record) {
    LOAM_DCHECK(record.id != 0 && find(record.id) == nullptr, "the id is new");
    if ((size_ + 1) * 2 > slots_.size()) grow();
    place(record);
    ++size_;
  }

  /// `record` is one of the table's.
  void erase(Record* record) {
    auto hole = static_cast<size_t>(record - slots_.data());
    for (size_t at = next(hole); slots_[at].id != 0; at = next(at)) {
      // The follower may move back to the hole if its home is not between the two.
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

  /// Visits all records in no order. The visitor must not insert or erase.
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
