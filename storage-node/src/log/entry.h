// One version of one record in the log. All of an entry is constant except 16 bytes, the pair {valid_to, next}, which
// threads change by double-width compare-and-swap.
//
//  byte 0        4      5         6            7   8     16           24         32         40     48
//       ┌────────┬──────┬─────────┬────────────┬───┬─────┬────────────┬──────────┬──────────┬──────┬──────────────────┐
//       │ size   │ kind │ row     │ page shift │ a │ key │ valid_from │ sequence │ valid_to │ next │ row, zeros to 16 │
//       │ (whole)│      │ padding │            │   │     │            │          │◀ AtomicWord128 ▶│                  │
//       └────────┴──────┴─────────┴────────────┴───┴─────┴────────────┴──────────┴──────────┴──────┴──────────────────┘
//
// a: the number of added fields of the row.
//
// The word `next` holds an address in bits 63..4 and a state in bits 1..0. Entries are 16-byte aligned, so the low bits
// of an address are free.
//
//   state      address                      valid_to                              may change?
//   kLive      the older version, or null   kOpen, or the superseding version     yes
//   kDead      as it was when frozen        as it was when frozen                 no: frozen
//   kMoved     the copy                     as it was when frozen                 no: frozen
//   kReplaced  the successor                the successor's version               no: frozen; plain tables only
//
// A plain table is a non-transactional one.
//
// Legal transitions of the pair, each by one double-width compare-and-swap. n: an older version or null. id: a version.
//   append          (nothing) → {kOpen, n} live; in plain tables {kPending, null} live
//   claim           {kOpen, n} live → {id, n} live                      one writer succeeds (R16, claim first)
//   re-open         {id, n} live → {kOpen, n} live                      last step of revert(id)
//   re-point        {v, n} live → {v, n'} live                          n' is n's copy, or follows a dead n
//   kill            {v, n} live → {v, n} dead                           lost race, revert, remove, garbage (R17)
//   move            {v, n} live → {v, copy} moved                       by the compactor
//   publish         {kPending, null} live → {kOpen, null} live          the index leads to a plain version
//   replace         {kOpen, null} live → {id, successor} replaced       claim and freeze of a plain write
//
// The rest of an entry is constant from the moment the page's fill mark covers it (R22, fill mark before link).
// [Thesis 3.5, figure 3.1; rules R16–R19]
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/ids.h"

namespace loam::storage {

struct Entry;

/// The kind of a version, which says where its row lies.
enum class EntryKind : uint8_t {
  kPut = 1,        ///< a version with a row, which follows the header
  kTombstone = 2,  ///< a removal: the record does not exist from valid_from on; no row
  kColumns = 3,    ///< a version whose row lies in the columns of its page (log/columns.h)
};

/// Clears the all-visible mark of the column page that contains the entry (R24, all-visible mark).
void clear_all_visible(const Entry* entry);

/// The state of an entry; the table at the head of this file defines each one. All states but kLive are frozen.
enum class EntryState : uint8_t { kLive = 0, kDead = 1, kMoved = 2, kReplaced = 3 };

/// valid_to of a version that no other version superseded. No snapshot sees this number, so a scan tests an open
/// version like any other.
inline constexpr uint64_t kOpen = ~uint64_t{0};
/// valid_to of a non-transactional version that the index does not lead to yet. Every snapshot sees this number, so a
/// scan takes the version for a superseded one and leaves it out.
inline constexpr uint64_t kPending = 0;

/// The decoded pair {valid_to, next} of an entry; the layout is at the head of this file.
struct Link {
  uint64_t valid_to = kOpen;
  Entry* address = nullptr;
  EntryState state = EntryState::kLive;

  static constexpr uint64_t kStateMask = 3;

  bool live() const { return state == EntryState::kLive; }
  bool open() const { return valid_to == kOpen; }

  Word128 encode() const { return {valid_to, reinterpret_cast<uint64_t>(address) | static_cast<uint64_t>(state)}; }
  static Link decode(Word128 word) { return {word.low, address_of(word.high), state_of(word.high)}; }
  static Entry* address_of(uint64_t next) { return reinterpret_cast<Entry*>(next & ~uint64_t{15}); }
  static EntryState state_of(uint64_t next) { return static_cast<EntryState>(next & kStateMask); }

  bool operator==(const Link&) const = default;
};

/// One version of one record: a header of 48 bytes, and the row behind it unless the row lies in columns.
///
/// Owner: the page in which it lies. Life: until the page is freed, a reclamation epoch after the last pointer to the
/// entry is gone (R18, page retirement).
/// Threads: any thread reads and swaps `link`. All other fields are constant for a thread that has the address from the
/// page's fill mark, the index or a link. Entries are plain memory without a constructor or destructor.
///
/// Invariants:
/// 1. A frozen entry (state not kLive) never changes again.
/// 2. In one chain the versions fall strictly from the head on. valid_to is the version of the next newer entry, or of
///    a collected one between the two, or of a writer that has claimed the entry and not linked its own one yet.
/// 3. A walk along moved entries ends at an entry that is not moved, because a copy is younger than its original.
struct alignas(16) Entry {
  uint32_t size_bytes;  ///< header, row and padding: a multiple of 16
  EntryKind kind;
  uint8_t row_padding;   ///< zero bytes after the row, 0..15
  uint8_t page_shift;    ///< the page has 1 << page_shift bytes and is aligned to them
  uint8_t added_fields;  ///< of the row (Schema::added()); unused for kColumns, whose schema the page has
  uint64_t key;
  uint64_t valid_from;  ///< version: the id of the transaction, or a number from VersionSource (R21)
  uint64_t sequence;    ///< orders the writes of one key and version (R19)
  Env::AtomicWord128 link;

  bool tombstone() const { return kind == EntryKind::kTombstone; }
  Version version() const { return Version(valid_from); }
  /// The row behind the header. Not for kColumns: row_of() in log/columns.h serves every kind.
  std::byte* row_data() { return reinterpret_cast<std::byte*>(this) + sizeof(Entry); }
  Bytes row() const {
    LOAM_DCHECK(kind != EntryKind::kColumns, "this row lies in columns");
    return {reinterpret_cast<const std::byte*>(this) + sizeof(Entry), size_bytes - sizeof(Entry) - row_padding};
  }

  /// Loads the pair {valid_to, next}, word by word. The two words may stem from different moments.
  ///
  /// `next` is loaded first. If it says live, then valid_to includes every claim made before this call. A
  /// compare-and-swap that expects the returned value succeeds only if the pair held it as a whole.
  Link load_link() const {
    // Acquire: pairs with the release of the swap that wrote the word. The bytes of the copy or successor that the
    // address leads to are visible.
    const uint64_t next = link.load_high(std::memory_order_acquire);
    // The acquire above keeps the two loads in this order. Acquire: pairs with the swap that wrote this word.
    const uint64_t valid_to = link.load_low(std::memory_order_acquire);
    return Link::decode({valid_to, next});
  }
  /// Swaps the pair from `expected` to `desired`. On failure `expected` becomes the present value.
  ///
  /// Sequentially consistent. If the entry lies in a column page, the call first clears the all-visible mark of the
  /// page, because a scan that finds the mark does not read the pair (R24).
  bool compare_exchange_link(Link& expected, Link desired) {
    if (kind == EntryKind::kColumns) [[unlikely]]
      clear_all_visible(this);
    Word128 word = expected.encode();
    if (link.compare_exchange(word, desired.encode())) return true;
    expected = Link::decode(word);
    return false;
  }
};
static_assert(sizeof(Entry) == 48 && alignof(Entry) == 16);
static_assert(offsetof(Entry, kind) == 4 && offsetof(Entry, row_padding) == 5 && offsetof(Entry, page_shift) == 6);
static_assert(offsetof(Entry, added_fields) == 7);
static_assert(offsetof(Entry, key) == 8 && offsetof(Entry, valid_from) == 16 && offsetof(Entry, sequence) == 24);
static_assert(offsetof(Entry, link) == 32);

/// Bytes that an entry with a row of `row_bytes` occupies in a page. Example: 44 → 96.
constexpr size_t entry_size(size_t row_bytes) { return round_up(sizeof(Entry) + row_bytes, alignof(Entry)); }

/// The present place of a version: follows the forward pointers of moved entries to the last copy. Null for null.
///
/// The caller holds an epoch guard, or pins the page of `entry`: the rewrite of a page is not freed before the page
/// (R18).
inline Entry* resolve_moved(Entry* entry) {
  while (entry != nullptr) {
    // Acquire: pairs with the release of the move; the bytes of the copy are visible.
    const uint64_t next = entry->link.load_high(std::memory_order_acquire);
    if (Link::state_of(next) != EntryState::kMoved) break;
    entry = Link::address_of(next);
  }
  return entry;
}

/// The variable part of a visibility check: whether an entry belongs to its record, and until which version.
struct Lifetime {
  bool alive;         ///< false: the entry is dead or replaced, and no snapshot sees it
  uint64_t valid_to;  ///< kOpen, kPending, or the version that superseded the entry

  /// True if a snapshot sees the entry. For transactional tables:
  /// snapshot.visible(valid_from) && !snapshot.visible(valid_to).
  template <class Snapshot>
  bool visible(const Snapshot& snapshot, uint64_t valid_from) const {
    return alive && snapshot.visible(Version(valid_from)) && !snapshot.visible(Version(valid_to));
  }
  /// True if the entry is the newest version of its record. For non-transactional tables.
  bool newest() const { return alive && valid_to == kOpen; }
};

/// Determines the lifetime of an entry in a page of a pinned page list. The copy decides for a moved entry (R23,
/// immutable page list).
///
/// The result is right for every entry below the fill mark, also for one that is not linked. Such an entry carries the
/// id of an unfinished transaction, or is kPending, or dies before its writer gets a reply. The caller pins the page
/// or holds an epoch guard.
inline Lifetime lifetime_of(const Entry& entry) {
  const Entry* e = &entry;
  for (;;) {
    const Link link = e->load_link();
    switch (link.state) {
      case EntryState::kLive:
        return {true, link.valid_to};
      case EntryState::kMoved:
        e = link.address;
        break;
      case EntryState::kDead:
      case EntryState::kReplaced:
        return {false, link.valid_to};
    }
  }
}

}  // namespace loam::storage
