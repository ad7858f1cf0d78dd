// Operations on transactional tables. The steps and their argument stand in chain.h.
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {
namespace {

/// What stands against the write, or kOk.
StatusCode judge_write(const Chain::Newest& newest, const VersionWrite& request) {
  const bool insert = request.insert;
  if (newest.entry == nullptr) return insert ? StatusCode::kOk : StatusCode::kNotFound;
  if (!newest.link.open() || !request.snapshot->visible(newest.entry->version())) return StatusCode::kConflict;
  if (newest.entry->valid_from >= request.transaction.value) return StatusCode::kInvalidArgument;
  if (newest.entry->tombstone()) return insert ? StatusCode::kOk : StatusCode::kNotFound;
  return insert ? StatusCode::kAlreadyExists : StatusCode::kOk;
}

/// What a new version that changes some fields takes the others from.
Bytes row_before(const Chain::Newest& newest, const NewRow& row, ThreadContext& thread) {
  return newest.entry == nullptr || row.fields == nullptr ? Bytes() : row_of(*newest.entry, thread);
}

}  // namespace

ReadOutcome Table::get_found(ThreadContext& thread, const Cursor& found, const Snapshot& snapshot) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}, {}};
  Counters& counters = counters_[thread.writer()];
  counters.gets.add(1);
  Chain chain(*index_, thread, found);
  Entry* entry = chain.cursor().head;
  // Of links only `next` matters here. Acquire, both: as in Entry::load_link().
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
      if (entry->tombstone()) return {StatusCode::kNotFound, entry->version(), {}};
      return {StatusCode::kOk, entry->version(), row_of(*entry, thread)};
    } else if (entry->version() <= horizon()) {
      break;  // an uncovered snapshot: what lies behind may be gone
    }
    // What lies there is visible by the acquire above. ThreadSanitizer knows a double-width swap by its first word
    // only, so it takes a load of that one to see the order; few gets come here.
    (void)entry->link.load_low(std::memory_order_acquire);
    entry = Link::address_of(next);
  }
  return {StatusCode::kNotFound, {}, {}};
}

StatusCode Table::check(const VersionWrite& request) const {
  if (kind() != TableKind::kTransactional) return StatusCode::kWrongTableKind;
  const Version version = version_of(request.transaction);
  const bool valid = version.value != 0 && version.value != kOpen && request.row.bytes.size() <= max_row_bytes();
  return valid ? StatusCode::kOk : StatusCode::kInvalidArgument;
}

Entry* Table::append(ThreadContext& thread, const VersionWrite& request, Key key, const Chain::Newest& newest,
                     Bytes before) {
  const uint64_t sequence = thread.next_sequence(newest.entry == nullptr ? 0 : newest.entry->sequence);
  const Link open{kOpen, newest.entry, EntryState::kLive};
  return log_.append(thread, {request.kind, key, version_of(request.transaction), sequence, open, request.row, before},
                     request.reserve);
}

Entry* Table::prepare(ThreadContext& thread, const Cursor& found, const VersionWrite& request) {
  // Some fields: the whole row depends on the version that is replaced.
  if (request.row.fields != nullptr || check(request) != StatusCode::kOk) return nullptr;
  Chain::Newest newest{found.head, {}};
  if (found.found()) newest.link = found.head->load_link();
  // A frozen head is write_found()'s affair, and so is a repetition: it is refused by its version.
  if (!newest.link.live() || judge_write(newest, request) != StatusCode::kOk) return nullptr;
  return append(thread, request, found.key, newest, {});
}

WriteOutcome Table::write_found(ThreadContext& thread, const Cursor& found, const VersionWrite& request,
                                Entry* prepared) {
  if (const StatusCode wrong = check(request); wrong != StatusCode::kOk) return {wrong, {}};
  const Version version = version_of(request.transaction);
  const bool no_space = request.reserve == Reserve::kWrite && Env::rare("node.write.no_space");
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  Entry* entry = prepared;  // appended, not linked
  Version composed_from;
  const auto give_up = [&](StatusCode code, Version present) {
    if (entry != nullptr) kill_lost(counters, entry);
    if (code == StatusCode::kConflict) counters.conflicts.add(1);
    return WriteOutcome{code, present};
  };
  const auto refuse_for_room = [&] {
    counters.no_space.add(1);
    return give_up(no_room(request.reserve), {});
  };
  for (;; chain.refresh()) {
    const Chain::Newest newest = chain.newest();
    if (newest.entry != nullptr && newest.entry->version() == version) {
      Env::probe("node.write.repeated");
      return give_up(StatusCode::kOk, version);  // R3
    }
    const StatusCode verdict = judge_write(newest, request);
    if (verdict != StatusCode::kOk) return give_up(verdict, newest.version());
    if (no_space) return refuse_for_room();
    if (entry != nullptr && request.row.fields != nullptr && composed_from != newest.version()) {
      Env::probe("node.write.composed_anew");
      kill_lost(counters, std::exchange(entry, nullptr));
    }
    if (entry == nullptr) {
      const Bytes before = row_before(newest, request.row, thread);
      if (request.row.size(before) > max_row_bytes()) return give_up(StatusCode::kInvalidArgument, {});
      composed_from = newest.version();
      entry = append(thread, request, found.key, newest, before);
      if (entry == nullptr) return refuse_for_room();
    } else {
      Chain::point_unlinked(entry, newest.entry);
    }
    Env::pause_point("node.write.appended");
    if (newest.entry != nullptr) {
      if (!Chain::claim(newest, version)) {
        Env::probe("node.write.claim_lost");
        continue;
      }
      Env::pause_point("node.write.claimed");
      chain.link(newest.entry, entry);
      if (!newest.entry->tombstone()) Page::of(newest.entry)->add_garbage(*newest.entry);
      break;
    }
    const InsertOutcome inserted = chain.insert(entry, request.reserve);
    if (inserted == InsertOutcome::kInserted) break;
    if (inserted == InsertOutcome::kNoSpace) return refuse_for_room();
    Env::probe("node.write.insert_lost");
  }
  Env::pause_point("node.write.linked");
  // A tombstone counts from the beginning: it goes as soon as everybody sees it.
  if (entry->tombstone()) Page::of(entry)->add_garbage(*entry);
  counters.writes.add(1);
  if (chain.helped() > 0) {
    Env::probe("node.write.helped_unlink");
    counters.helped.add(chain.helped());
  }
  return {StatusCode::kOk, version};
}

WriteOutcome Table::revert_found(ThreadContext& thread, const Cursor& found, TransactionId transaction) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}};
  const Version version = version_of(transaction);
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, found);
  for (;; chain.refresh()) {
    const Chain::Newest newest = chain.newest();
    if (newest.entry == nullptr || newest.entry->version() < version) {
      Env::probe("node.revert.found_nothing");
      return {StatusCode::kOk, version};
    }
    if (newest.entry->version() > version) {
      Env::probe("node.revert.found_newer");
      return {stands_below(newest, version) ? StatusCode::kConflict : StatusCode::kOk, newest.entry->version()};
    }
    // Below the horizon it had been completed, and what it superseded may be gone.
    if (!newest.link.open() || version <= horizon()) return {StatusCode::kConflict, version};
    Env::pause_point("node.revert.found");
    if (!Chain::kill(newest.entry, newest.link)) {
      Env::probe("node.revert.kill_lost");
      continue;
    }
    Env::pause_point("node.revert.killed");
    if (!newest.entry->tombstone()) Page::of(newest.entry)->add_garbage(*newest.entry);
    chain.newest();  // unlinks
    Env::pause_point("node.revert.unlinked");
    if (newest.link.address != nullptr) Chain::reopen(newest.link.address, version);
    counters.reverts.add(1);
    return {StatusCode::kOk, version};
  }
}

bool Table::stands_below(const Chain::Newest& newest, Version version) const {
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
