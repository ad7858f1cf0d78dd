// One version of one record in the log, and the 16 bytes of it that change.
//
//  byte 0       4      5         6            7   8     16           24         32         40     48
//       ┌────────┬──────┬─────────┬────────────┬───┬─────┬────────────┬──────────┬──────────┬──────┬──────────────────┐
//       │ size   │ kind │ row     │ page shift │ 0 │ key │ valid_from │ sequence │ valid_to │ next │ row, zeros to 16 │
//       │(whole) │      │ padding │            │   │     │            │          │◀ AtomicDword ──▶│                  │
//       └────────┴──────┴─────────┴────────────┴───┴─────┴────────────┴──────────┴──────────┴──────┴──────────────────┘
//
// The `next` word: bits 63..4 address, bits 1..0 state. Entries are 16-byte aligned.
//
//   state      address                      valid_to                          may change?
//   kLive      the older version, or null   kOpen, or who superseded it       yes
//   kDead      as it was when frozen        as it was when frozen             frozen
//   kMoved     the copy                     as it was when frozen             frozen
//   kReplaced  the successor                the successor's version           frozen; plain tables only
//
// Plain: non-transactional.
//
// Legal transitions of the pair, each one double-width compare-and-swap (n: an older version or null, id: a version):
//   append          (nothing) → {kOpen, n} live; in plain tables {kPending, null} live
//   claim           {kOpen, n} live → {id, n} live                      exactly one writer gets it (R16)
//   re-open         {id, n} live → {kOpen, n} live                      last step of revert(id)
//   re-point        {v, n} live → {v, n'} live                          n' is n's copy, or what follows a dead n
//   kill            {v, n} live → {v, n} dead                           lost race, revert, remove, garbage (R17)
//   move            {v, n} live → {v, copy} moved                       compactor
//   publish         {kPending, null} live → {kOpen, null} live          a plain version is linked
//   replace         {kOpen, null} live → {id, successor} replaced       claim and freeze of a plain write
//
// Everything else is constant once the page's fill mark covers the entry (R22). [Thesis 3.5, figure 3.1; rules R16–R19]
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

enum class EntryKind : uint8_t {
  kPut = 1,
  kTombstone = 2,  ///< the record does not exist from valid_from on; no row
  kColumns = 3,    ///< as kPut, but the row lies in the page's columns (log/columns.h)
};

/// Clears the all-visible mark of the page that a version with its row in columns lies in (R24).
void clear_all_visible(const Entry* entry);

enum class EntryState : uint8_t { kLive = 0, kDead = 1, kMoved = 2, kReplaced = 3 };

/// valid_to of a version that nothing superseded. No snapshot sees it, so the test of a scan needs no special case.
inline constexpr uint64_t kOpen = ~uint64_t{0};
/// valid_to of a non-transactional version that is not linked yet. Every snapshot sees it: scans leave the entry out.
inline constexpr uint64_t kPending = 0;

/// Value of an entry's {valid_to, next}; see the layout above.
struct Link {
  uint64_t valid_to = kOpen;
  Entry* address = nullptr;
  EntryState state = EntryState::kLive;

  static constexpr uint64_t kStateMask = 3;

  bool live() const { return state == EntryState::kLive; }
  bool open() const { return valid_to == kOpen; }

  Dword encode() const { return {valid_to, reinterpret_cast<uint64_t>(address) | static_cast<uint64_t>(state)}; }
  static Link decode(Dword word) { return {word.low, address_of(word.high), state_of(word.high)}; }
  static Entry* address_of(uint64_t next) { return reinterpret_cast<Entry*>(next & ~uint64_t{15}); }
  static EntryState state_of(uint64_t next) { return static_cast<EntryState>(next & kStateMask); }

  bool operator==(const Link&) const = default;
};

/// One version of one record.
///
/// Owner: the page it lies in. Life: until the page is freed, which is an epoch after nothing leads here (R18).
/// Threads: `link` is shared; everything else is constant for whoever got the address through the page's fill mark, the
/// index or a link. Plain memory, never constructed or destroyed.
///
/// Invariants:
/// 1. A frozen entry (state not kLive) never changes again.
/// 2. In one chain versions fall strictly from the head on; valid_to is the version of the next newer one, or of a
///    collected one between them, or of a writer between claim and link.
/// 3. Following moved entries ends at an entry that is not moved: copies are younger than their originals.
struct alignas(16) Entry {
  uint32_t size_bytes;  ///< header, row and padding: a multiple of 16
  EntryKind kind;
  uint8_t row_padding;  ///< zero bytes after the row, 0..15
  uint8_t page_shift;   ///< the page is aligned to its size, 1 << page_shift
  uint8_t zero;
  uint64_t key;
  uint64_t valid_from;  ///< version: the transaction's id, or the node's number (R21)
  uint64_t sequence;    ///< orders writes of one key and version (R19)
  Env::AtomicDword link;

  bool tombstone() const { return kind == EntryKind::kTombstone; }
  Version version() const { return Version(valid_from); }
  /// Of an entry whose row is not in columns; row_of() in log/columns.h is for all.
  std::byte* row_data() { return reinterpret_cast<std::byte*>(this) + sizeof(Entry); }
  Bytes row() const {
    LOAM_DCHECK(kind != EntryKind::kColumns, "this row lies in columns");
    return {reinterpret_cast<const std::byte*>(this) + sizeof(Entry), size_bytes - sizeof(Entry) - row_padding};
  }

  /// State and both words, not necessarily of one instant, `next` first: if it comes out live, the valid_to that comes
  /// with it holds every claim made before this call. A compare-and-swap that expects the value proves it whole.
  Link load_link() const {
    // Acquire: pairs with the release of the swap that wrote the word, so that what the address leads to (a copy's or
    // successor's bytes) is visible.
    const uint64_t next = link.load_high(std::memory_order_acquire);
    // Acquire keeps the order of the two loads.
    const uint64_t valid_to = link.load_low(std::memory_order_acquire);
    return Link::decode({valid_to, next});
  }
  /// On failure `expected` is the value seen. Sequentially consistent. Whatever the change is, the page is not
  /// all-visible any more before it (R24).
  bool compare_exchange_link(Link& expected, Link desired) {
    if (kind == EntryKind::kColumns) [[unlikely]]
      clear_all_visible(this);
    Dword word = expected.encode();
    if (link.compare_exchange(word, desired.encode())) return true;
    expected = Link::decode(word);
    return false;
  }
};
static_assert(sizeof(Entry) == 48 && alignof(Entry) == 16);
static_assert(offsetof(Entry, kind) == 4 && offsetof(Entry, row_padding) == 5 && offsetof(Entry, page_shift) == 6);
static_assert(offsetof(Entry, key) == 8 && offsetof(Entry, valid_from) == 16 && offsetof(Entry, sequence) == 24);
static_assert(offsetof(Entry, link) == 32);

/// Bytes that an entry with a row of this size takes in a page. 44 → 96.
constexpr size_t entry_size(size_t row_bytes) { return round_up(sizeof(Entry) + row_bytes, alignof(Entry)); }

/// The version where it lies now: follows forward pointers of moved entries. The caller holds an epoch guard, or pins
/// the page of `entry` (a page's rewrite is not freed before the page, R18).
inline Entry* resolve_moved(Entry* entry) {
  while (entry != nullptr) {
    // Acquire: pairs with the release of the move, the copy's bytes are visible.
    const uint64_t next = entry->link.load_high(std::memory_order_acquire);
    if (Link::state_of(next) != EntryState::kMoved) break;
    entry = Link::address_of(next);
  }
  return entry;
}

/// What a scan must know of an entry besides its constant fields: whether it counts at all, and until when.
struct Span {
  bool alive;         ///< false: dead or replaced; no snapshot sees it
  uint64_t valid_to;  ///< kOpen, kPending, or the version that superseded it

  /// For transactional tables: snapshot.visible(valid_from) && !snapshot.visible(valid_to).
  template <class Snapshot>
  bool visible(const Snapshot& snapshot, uint64_t valid_from) const {
    return alive && snapshot.visible(Version(valid_from)) && !snapshot.visible(Version(valid_to));
  }
  /// For non-transactional tables: the newest version.
  bool newest() const { return alive && valid_to == kOpen; }
};

/// Judges an entry of a page of the pinned page list: a moved one by its copy (R23). Holds of any entry below the fill
/// mark, linked or not: one that is not linked has the id of an unfinished transaction, or is kPending, or is dead
/// before its writer is answered. The caller pins the page or holds an epoch guard.
inline Span judge(const Entry& entry) {
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
