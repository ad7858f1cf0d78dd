// Operations on transactional tables. chain.h has the steps and their argument.
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {
namespace {

/// Decides from the newest version whether the write may go on: kOk, or the code of its refusal (R16, claim first).
StatusCode check_write(const Chain::NewestVersion& newest, const VersionWrite& request) {
  const bool insert = request.insert;
  if (newest.entry == nullptr) return insert ? StatusCode::kOk : StatusCode::kNotFound;
  if (!newest.link.open() || !request.snapshot->visible(newest.entry->version())) return StatusCode::kConflict;
  if (newest.entry->valid_from >= request.transaction.value) return StatusCode::kInvalidArgument;
  if (newest.entry->tombstone()) return insert ? StatusCode::kOk : StatusCode::kNotFound;
  return insert ? StatusCode::kAlreadyExists : StatusCode::kOk;
}

/// The row from which a new version takes the fields that the write does not name. Empty if the write names all fields.
Bytes row_before(const Chain::NewestVersion& newest, const NewRow& row, ThreadContext& thread,
                 const RowSchemas* schemas) {
  if (newest.entry == nullptr || row.fields == nullptr) return {};
  return row_of(*newest.entry, thread, schemas, &row.fields->schema());
}

}  // namespace

ReadOutcome Table::get_at(ThreadContext& thread, const Cursor& found, const Snapshot& snapshot, const Schema* schema) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}, {}};
  Counters& counters = counters_[thread.writer()];
  counters.gets.add(1);
  Chain chain(*index_, thread, found);
  Entry* entry = chain.cursor().head;
  // A frozen head: re-point the slot, so that the next reader does not pass it again. Only `next` matters for a read.
  // Acquire, here and below: as in Entry::load_link().
  if (entry != nullptr && Link::state_of(entry->link.load_high(std::memory_order_acquire)) != EntryState::kLive) {
    Env::probe("node.read.met_frozen_head");
    entry = chain.newest().entry;
    counters.helped.add(chain.helped());
  }
  for (uint64_t hops = 0; entry != nullptr; ++hops) {
    const uint64_t next = entry->link.load_high(std::memory_order_acquire);
    if (Link::state_of(next) != EntryState::kLive) {
      Env::probe("node.read.passed_frozen");
    } else if (snapshot.visible(entry->version())) {
      if (hops > 0) counters.hops.add(hops);
      break;
    } else if (entry->version() <= horizon()) {
      entry = nullptr;  // no publication covers the snapshot; the version behind may be freed
      break;
    }
    // The acquire load above makes the older entry visible. ThreadSanitizer tracks a double-width swap by its first
    // word only, so this load of the first word shows it the order. Few gets come here.
    (void)entry->link.load_low(std::memory_order_acquire);
    entry = Link::address_of(next);
  }
  if (entry == nullptr) return {StatusCode::kNotFound, {}, {}};
  if (entry->tombstone()) return {StatusCode::kNotFound, entry->version(), {}};
  return {StatusCode::kOk, entry->version(), row_of(*entry, thread, schemas(), schema)};
}

StatusCode Table::check(const VersionWrite& request) const {
  if (kind() != TableKind::kTransactional) return StatusCode::kWrongTableKind;
  const Version version = version_of(request.transaction);
  const bool valid = version.value != 0 && version.value != kOpen && request.row.bytes.size() <= max_row_bytes();
  return valid ? StatusCode::kOk : StatusCode::kInvalidArgument;
}

Entry* Table::append(ThreadContext& thread, const VersionWrite& request, Key key, const Chain::NewestVersion& newest,
                     Bytes before) {
  const uint64_t sequence = thread.next_sequence(newest.entry == nullptr ? 0 : newest.entry->sequence);
  const Link open{kOpen, newest.entry, EntryState::kLive};
  return log_.append(thread, {request.kind, key, version_of(request.transaction), sequence, open, request.row, before},
                     request.reserve);
}

Entry* Table::append_speculative(ThreadContext& thread, const Cursor& found, const VersionWrite& request) {
  // A write of some fields cannot be appended yet: its row depends on the version that it will claim.
  if (request.row.fields != nullptr || check(request) != StatusCode::kOk) return nullptr;
  Chain::NewestVersion newest{found.head, {}};
  if (found.found()) newest.link = found.head->load_link();
  // write_at() handles a frozen head. check_write() refuses a repetition here, because the newest version is then the
  // transaction's own, and its snapshot does not see that.
  if (!newest.link.live() || check_write(newest, request) != StatusCode::kOk) return nullptr;
  return append(thread, request, found.key, newest, {});
}

WriteOutcome Table::write_at(ThreadContext& thread, const Cursor& found, const VersionWrite& request,
                             Entry* speculative) {
  if (const StatusCode wrong = check(request); wrong != StatusCode::kOk) return {wrong, {}};
  const Version version = version_of(request.transaction);
  const bool no_space = request.reserve == Reserve::kWrite && Env::buggify("node.write.no_space");
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  Entry* entry = speculative;  // step 2 has appended it; not linked yet
  Version composed_from;       // the version from which a write of some fields took the other fields
  const auto give_up = [&](StatusCode code, Version present) {
    if (entry != nullptr) kill_lost_entry(counters, entry);
    if (code == StatusCode::kConflict) counters.conflicts.add(1);
    return WriteOutcome{code, present};
  };
  const auto refuse_for_room = [&] {
    counters.no_space.add(1);
    return give_up(no_space_code(request.reserve), {});
  };
  for (;; chain.refresh()) {
    // Step 1: find the newest version and decide.
    const Chain::NewestVersion newest = chain.newest();
    if (newest.entry != nullptr && newest.entry->version() == version) {
      Env::probe("node.write.repeated");
      return give_up(StatusCode::kOk, version);  // R3, idempotent requests
    }
    const StatusCode verdict = check_write(newest, request);
    if (verdict != StatusCode::kOk) return give_up(verdict, newest.version());
    if (no_space) return refuse_for_room();
    if (entry != nullptr && request.row.fields != nullptr && composed_from != newest.version()) {
      Env::probe("node.write.composed_anew");
      kill_lost_entry(counters, std::exchange(entry, nullptr));
    }
    // Step 2: append the entry, or point the one of an earlier round to the present newest version.
    if (entry == nullptr) {
      const Bytes before = row_before(newest, request.row, thread, schemas());
      if (request.row.size(before) > max_row_bytes()) return give_up(StatusCode::kInvalidArgument, {});
      composed_from = newest.version();
      entry = append(thread, request, found.key, newest, before);
      if (entry == nullptr) return refuse_for_room();
    } else {
      Chain::set_older_unlinked(entry, newest.entry);
    }
    Env::pause_point("node.write.appended");
    if (newest.entry != nullptr) {
      // Step 3: claim. It fails if another writer was first, or if the compactor has moved the version. After the claim
      // the write cannot fail; step 4 links the entry.
      if (!Chain::claim(newest, version)) {
        Env::probe("node.write.claim_lost");
        continue;
      }
      Env::pause_point("node.write.claimed");
      chain.link(newest.entry, entry);
      if (!newest.entry->tombstone()) Page::of(newest.entry)->add_garbage(*newest.entry);
      break;
    }
    // Steps 3 and 4 for an absent record. If the key exists by now, the next round decides anew.
    const InsertOutcome inserted = chain.insert(entry, request.reserve);
    if (inserted == InsertOutcome::kInserted) break;
    if (inserted == InsertOutcome::kNoSpace) return refuse_for_room();
    Env::probe("node.write.insert_lost");
  }
  Env::pause_point("node.write.linked");
  // A tombstone counts as garbage from the beginning, since it is collected as soon as all snapshots see it.
  if (entry->tombstone()) Page::of(entry)->add_garbage(*entry);
  counters.writes.add(1);
  if (chain.helped() > 0) {
    Env::probe("node.write.helped_unlink");
    counters.helped.add(chain.helped());
  }
  return {StatusCode::kOk, version};
}

WriteOutcome Table::revert_at(ThreadContext& thread, const Cursor& found, TransactionId transaction) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}};
  const Version version = version_of(transaction);
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  for (;; chain.refresh()) {
    const Chain::NewestVersion newest = chain.newest();
    if (newest.entry == nullptr || newest.entry->version() < version) {
      // The write never happened, or an earlier revert has removed it.
      Env::probe("node.revert.found_nothing");
      return {StatusCode::kOk, version};
    }
    if (newest.entry->version() > version) {
      // A newer version above the own one means that the transaction was completed; without an own one, all is done.
      Env::probe("node.revert.found_newer");
      return {has_version_below(newest, version) ? StatusCode::kConflict : StatusCode::kOk, newest.entry->version()};
    }
    // A version at or below the horizon was completed, and the version that it superseded may be freed.
    if (!newest.link.open() || version <= horizon()) return {StatusCode::kConflict, version};
    Env::pause_point("node.revert.found");
    // Step 1: kill. It fails if the compactor has moved the version, or a writer has claimed it.
    if (!Chain::kill(newest.entry, newest.link)) {
      Env::probe("node.revert.kill_lost");
      continue;
    }
    Env::pause_point("node.revert.killed");
    if (!newest.entry->tombstone()) Page::of(newest.entry)->add_garbage(*newest.entry);
    chain.newest();  // step 2: unlinks the dead head
    Env::pause_point("node.revert.unlinked");
    // Step 3, last: before it, no writer can claim the older version, so the slot has come back to it first (R16).
    if (newest.link.address != nullptr) Chain::reopen(newest.link.address, version);
    counters.reverts.add(1);
    return {StatusCode::kOk, version};
  }
}

/// True if the chain has `version` behind the newest one. Does not look behind the horizon.
bool Table::has_version_below(const Chain::NewestVersion& newest, Version version) const {
  if (newest.entry->version() <= horizon()) return false;
  for (const Entry* entry = newest.link.address; entry != nullptr;) {
    const Link link = entry->load_link();
    if (link.live() && entry->version() <= version) return entry->version() == version;
    if (link.live() && entry->version() <= horizon()) return false;
    entry = link.address;
  }
  return false;
}

}  // namespace loam::storage
