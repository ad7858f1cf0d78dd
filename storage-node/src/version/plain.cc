// Operations on non-transactional tables (R21, exact-version writes). chain.h has the steps and their argument.
#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

ReadOutcome Table::plain_get_at(ThreadContext& thread, const Cursor& found, const Schema* schema) {
  if (kind() != TableKind::kNonTransactional) return {StatusCode::kWrongTableKind, {}, {}};
  Counters& counters = counters_[thread.writer()];
  counters.gets.add(1);
  Chain chain(*index_, thread, found);
  // newest() publishes a pending version. So every later scan sees a version that this reader has returned.
  const Chain::NewestVersion newest = chain.newest();
  if (chain.helped() > 0) {
    Env::probe("node.plain_read.helped");
    counters.helped.add(chain.helped());
  }
  if (newest.entry == nullptr) return {StatusCode::kNotFound, {}, {}};
  return {StatusCode::kOk, newest.version(), row_of(*newest.entry, thread, schemas(), schema)};
}

WriteOutcome Table::plain_put_at(ThreadContext& thread, const Cursor& found, Version expected, const NewRow& row,
                                 Reserve reserve) {
  if (kind() != TableKind::kNonTransactional) return {StatusCode::kWrongTableKind, {}};
  if (row.bytes.size() > max_row_bytes()) return {StatusCode::kInvalidArgument, {}};
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  Entry* entry = nullptr;  // step 1 has appended it; not linked yet
  const auto give_up = [&](StatusCode code, Version present) {
    if (entry != nullptr) kill_lost_entry(counters, entry);
    if (code == StatusCode::kConflict) counters.conflicts.add(1);
    return WriteOutcome{code, present};
  };
  const auto refuse_for_room = [&] {
    counters.no_space.add(1);
    return give_up(no_space_code(reserve), {});
  };
  for (;; chain.refresh()) {
    const Chain::NewestVersion newest = chain.newest();
    const Version present = newest.version();
    // Only the exact version is replaced (R21). Version 0 stands for an absent record.
    if (present != expected) return give_up(StatusCode::kConflict, present);
    if (row.fields != nullptr && newest.entry == nullptr) return give_up(StatusCode::kNotFound, {});
    if (entry == nullptr) {
      // Step 1: append. The row is composed once. In a later round the newest entry has the expected version too, since
      // other versions are kConflict, and the copy of an entry has the same row.
      const Bytes before =
          row.fields == nullptr ? Bytes() : row_of(*newest.entry, thread, schemas(), &row.fields->schema());
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
      // Step 2: claim, freeze and successor in one swap. It fails if the entry was replaced, removed or moved.
      Link seen = newest.link;
      if (!newest.entry->compare_exchange_link(seen, {entry->valid_from, entry, EntryState::kReplaced})) {
        Env::probe("node.plain_write.lost");
        continue;
      }
      Env::pause_point("node.plain_write.replaced");
      // Steps 3 and 4.
      chain.link_successor(entry);
      Page::of(newest.entry)->add_garbage(*newest.entry);
      break;
    }
    // The record is absent: the insert into the index is claim and link in one. If the key exists by now, look again.
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

WriteOutcome Table::plain_remove_at(ThreadContext& thread, const Cursor& found, Version expected) {
  if (kind() != TableKind::kNonTransactional) return {StatusCode::kWrongTableKind, {}};
  if (expected.value == 0) return {StatusCode::kInvalidArgument, {}};
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  for (;; chain.refresh()) {
    const Chain::NewestVersion newest = chain.newest();
    if (newest.version() != expected) {
      counters.conflicts.add(1);
      return {StatusCode::kConflict, newest.version()};
    }
    Env::pause_point("node.plain_remove.found");
    // The kill fails if another thread has replaced, removed or moved the version. The next round decides anew.
    if (!Chain::kill(newest.entry, newest.link)) {
      Env::probe("node.plain_remove.lost");
      continue;
    }
    Env::pause_point("node.plain_remove.killed");
    Page::of(newest.entry)->add_garbage(*newest.entry);
    chain.newest();  // erases the key, since nothing live is behind the dead entry
    counters.writes.add(1);
    return {StatusCode::kOk, expected};
  }
}

}  // namespace loam::storage
