// A hash table that numbers byte strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"

namespace loam {

/// Numbers different byte strings in the order in which they are added: the keys of groups, or the different values of
/// an aggregate.
///
/// The keys lie one behind the other, and the table of an open-addressing hash holds numbers only. Owner: one thread.
class KeyTable {
 public:
  /// Before the table allocates memory, it acquires the bytes from `account`, which may be null and outlives the table;
  /// the destructor does not release them.
  explicit KeyTable(MemoryAccount* account) : account_(account) { clear(); }

  /// Number of keys.
  size_t size() const { return ends_.size(); }
  /// Bytes of the keys and of the table.
  size_t bytes() const { return keys_.size() + ends_.size() * kEntryBytes; }
  /// A key. Valid until the next key is added.
  Bytes key(size_t number) const {
    const size_t begin = number == 0 ? 0 : ends_[number - 1];
    return Bytes(keys_).subspan(begin, ends_[number] - begin);
  }

  /// The number of a key; nothing if it has none.
  std::optional<size_t> find(Bytes key) const;
  /// Adds a key that has no number, and returns its number. kOverloaded: the account has no memory; the table is
  /// unchanged.
  Result<size_t> add(Bytes key);
  /// Removes all keys, and keeps the memory of the keys.
  void clear();

 private:
  /// Upper bound on the bytes of a key besides its own: the table has at most four slots for each key once it has
  /// grown.
  static constexpr size_t kEntryBytes = sizeof(size_t) + 4 * sizeof(uint32_t);

  size_t slot_of(Bytes key) const;
  Status grow();

  MemoryAccount* const account_;
  Buffer keys_;
  std::vector<size_t> ends_;     // by number: the end of its key in keys_
  std::vector<uint32_t> slots_;  // number + 1, or 0; the number of slots is a power of two
};

/// Makes room for `more` items, and acquires the memory for them from `account`, which may be null.
template <class T>
Status reserve_charged(std::vector<T>& items, size_t more, MemoryAccount* account) {
  if (items.size() + more <= items.capacity()) return ok_status();
  const size_t before = items.capacity() * sizeof(T);
  const size_t capacity = std::max(items.size() + more, items.capacity() * 2);
  // The old and the new memory are both held until the items have moved.
  if (account != nullptr) LOAM_RETURN_IF_ERROR(account->acquire(capacity * sizeof(T)));
  items.reserve(capacity);
  if (account != nullptr) account->release(before);
  return ok_status();
}

/// A hash of 64 bits in which every bit depends on every byte.
uint64_t hash_of(Bytes bytes);

}  // namespace loam
