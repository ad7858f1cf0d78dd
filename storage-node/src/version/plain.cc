// Operations on non-transactional tables (R21). The steps and their argument stand in chain.h.
#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

ReadOutcome Table::plain_get_found(ThreadContext& thread, const Cursor& found) {
  if (kind() != TableKind::kNonTransactional) return {StatusCode::kWrongTableKind, {}, {}};
  Counters& counters = counters_[thread.writer()];
  counters.gets.add(1);
  Chain chain(*index_, thread, found);
  // Mends and publishes what it meets: a version that a reader has seen is one that later scans see.
  const Chain::Newest newest = chain.newest();
  if (chain.helped() > 0) {
    Env::probe("node.plain_read.helped");
    counters.helped.add(chain.helped());
  }
  if (newest.entry == nullptr) return {StatusCode::kNotFound, {}, {}};
  return {StatusCode::kOk, newest.version(), newest.entry->row()};
}

WriteOutcome Table::plain_put_found(ThreadContext& thread, const Cursor& found, Version expected, const NewRow& row,
                                    Reserve reserve) {
  if (kind() != TableKind::kNonTransactional) return {StatusCode::kWrongTableKind, {}};
  if (row.bytes.size() > max_row_bytes()) return {StatusCode::kInvalidArgument, {}};
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  Entry* entry = nullptr;  // appended, not linked
  const auto give_up = [&](StatusCode code, Version present) {
    if (entry != nullptr) kill_lost(counters, entry);
    if (code == StatusCode::kConflict) counters.conflicts.add(1);
    return WriteOutcome{code, present};
  };
  const auto refuse_for_room = [&] {
    counters.no_space.add(1);
    return give_up(no_room(reserve), {});
  };
  for (;; chain.refresh()) {
    const Chain::Newest newest = chain.newest();
    const Version present = newest.version();
    if (present != expected) return give_up(StatusCode::kConflict, present);
    if (row.fields != nullptr && newest.entry == nullptr) return give_up(StatusCode::kNotFound, {});
    if (entry == nullptr) {
      // Composed once: whatever is the newest later is of the version expected, too, and so has the same row.
      const Bytes before = newest.entry == nullptr ? Bytes() : newest.entry->row();
      if (row.size(before) > max_row_bytes()) return give_up(StatusCode::kInvalidArgument, {});
      const Version version = resources_.versions.next();
      if (version.value == 0) return give_up(StatusCode::kUnavailable, {});
      const uint64_t sequence = thread.next_sequence(newest.entry == nullptr ? 0 : newest.entry->sequence);
      const Link pending{kPending, nullptr, EntryState::kLive};
      entry = log_.append(thread, {EntryKind::kPut, found.key, version, sequence, pending, row, before}, reserve);
      if (entry == nullptr) return refuse_for_room();
    }
    Env::pause_point("node.plain_write.appended");
    if (newest.entry != nullptr) {
      Link seen = newest.link;
      if (!newest.entry->compare_exchange_link(seen, {entry->valid_from, entry, EntryState::kReplaced})) {
        Env::probe("node.plain_write.lost");
        continue;
      }
      Env::pause_point("node.plain_write.replaced");
      chain.link_successor(entry);
      Page::of(newest.entry)->add_garbage(*newest.entry);
      break;
    }
    const InsertOutcome inserted = chain.insert(entry, reserve);
    if (inserted == InsertOutcome::kNoSpace) return refuse_for_room();
    if (inserted == InsertOutcome::kInserted) {
      Chain::publish_pending(entry);
      break;
    }
  }
  counters.writes.add(1);
  if (chain.helped() > 0) counters.helped.add(chain.helped());
  return {StatusCode::kOk, entry->version()};
}

WriteOutcome Table::plain_remove_found(ThreadContext& thread, const Cursor& found, Version expected) {
  if (kind() != TableKind::kNonTransactional) return {StatusCode::kWrongTableKind, {}};
  if (expected.value == 0) return {StatusCode::kInvalidArgument, {}};
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  for (;; chain.refresh()) {
    const Chain::Newest newest = chain.newest();
    if (newest.version() != expected) {
      counters.conflicts.add(1);
      return {StatusCode::kConflict, newest.version()};
    }
    Env::pause_point("node.plain_remove.found");
    if (!Chain::kill(newest.entry, newest.link)) {
      Env::probe("node.plain_remove.lost");
      continue;
    }
    Env::pause_point("node.plain_remove.killed");
    Page::of(newest.entry)->add_garbage(*newest.entry);
    chain.newest();  // unlinks
    counters.writes.add(1);
    return {StatusCode::kOk, expected};
  }
}

}  // namespace loam::storage
