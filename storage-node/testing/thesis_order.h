// For tests under the explorer: writes and reverts in the order of the thesis [Thesis 4.4], on Loam's index and log.
// The explorer finds the error of this order (R16, claim first).
#pragma once

#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// Writes and reverts in the order of the thesis.
///
/// A write appends its entry, swaps the slot to it, and then sets valid-to of the older version. A revert kills the
/// head, swaps the slot to the older version, and then clears its valid-to. A writer aborts if valid-to is set, as the
/// thesis says. Only updates and removes exist. Garbage is counted as in Table, so that every breach stems from the
/// order of the steps.
/// Owner: the schedule. Threads: the thread of the context.
class ThesisOrder {
 public:
  ThesisOrder(Table& table, ThreadContext& thread) : table_(table), thread_(thread) {}

  WriteOutcome write(Key key, const Snapshot& snapshot, TransactionId id, bool remove, Bytes row) {
    Cursor cursor = table_.index().find(key);
    if (!cursor.found()) return {StatusCode::kNotFound, {}};
    Entry* const head = cursor.head;
    const Link seen = head->load_link();
    if (!seen.live() || !seen.open() || !snapshot.visible(head->version())) return {StatusCode::kConflict, {}};
    if (head->tombstone()) return {StatusCode::kNotFound, {}};
    Entry* const entry = table_.log().append(thread_,
                                             {remove ? EntryKind::kTombstone : EntryKind::kPut,
                                              key,
                                              version_of(id),
                                              thread_.next_sequence(head->sequence),
                                              {kOpen, head, EntryState::kLive},
                                              {remove ? Bytes() : row}},
                                             Reserve::kWrite);
    if (!table_.index().replace(cursor, entry)) {
      Chain::kill_unlinked(entry);
      Page::of(entry)->add_garbage(*entry);
      return {StatusCode::kConflict, {}};
    }
    set_valid_to(head, id.value);
    Page::of(head)->add_garbage(*head);
    if (remove) Page::of(entry)->add_garbage(*entry);
    return {StatusCode::kOk, version_of(id)};
  }

  StatusCode revert(Key key, TransactionId id) {
    Cursor cursor = table_.index().find(key);
    if (!cursor.found() || cursor.head->version() != version_of(id)) return StatusCode::kOk;
    Entry* const head = cursor.head;
    const Link link = head->load_link();
    if (!Chain::kill(head, link)) return StatusCode::kConflict;
    Page::of(head)->add_garbage(*head);
    if (link.address == nullptr) {
      table_.index().erase(thread_.epochs(), cursor);
      return StatusCode::kOk;
    }
    table_.index().replace(cursor, link.address);
    set_valid_to(link.address, kOpen);
    return StatusCode::kOk;
  }

 private:
  static void set_valid_to(Entry* entry, uint64_t valid_to) {
    Link link = entry->load_link();
    while (link.live() && !entry->compare_exchange_link(link, {valid_to, link.address, EntryState::kLive})) {
    }
  }

  Table& table_;
  ThreadContext& thread_;
};

}  // namespace loam::storage
