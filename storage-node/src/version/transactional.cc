// Operations on transactional tables. The steps and their argument stand in chain.h.
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {
namespace {

/// What stands against the write, or kOk.
StatusCode judge_write(const Chain::Newest& newest, bool insert, const Snapshot& snapshot, TransactionId transaction) {
  if (newest.entry == nullptr) return insert ? StatusCode::kOk : StatusCode::kNotFound;
  if (!newest.link.open() || !snapshot.visible(newest.entry->version())) return StatusCode::kConflict;
  if (newest.entry->valid_from >= transaction.value) return StatusCode::kInvalidArgument;
  if (newest.entry->tombstone()) return insert ? StatusCode::kOk : StatusCode::kNotFound;
  return insert ? StatusCode::kAlreadyExists : StatusCode::kOk;
}

}  // namespace

ReadOutcome Table::get(ThreadContext& thread, Key key, const Snapshot& snapshot) {
  return get_found(thread, index_->find(key), snapshot);
}

ReadOutcome Table::get_found(ThreadContext& thread, const Cursor& found, const Snapshot& snapshot) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}, {}};
  Counters& counters = counters_[thread.writer()];
  count(counters.gets);
  Chain chain(*index_, thread, found);
  Entry* entry = chain.cursor().head;
  if (entry != nullptr && !entry->load_link().live()) {
    Env::probe("node.read.met_frozen_head");
    entry = chain.newest().entry;
    count(counters.helped, chain.helped());
  }
  for (uint64_t hops = 0; entry != nullptr; ++hops) {
    const Link link = entry->load_link();
    if (link.live() && snapshot.visible(entry->version())) {
      if (hops > 0) count(counters.hops, hops);
      if (entry->tombstone()) return {StatusCode::kNotFound, entry->version(), {}};
      return {StatusCode::kOk, entry->version(), entry->row()};
    }
    if (!link.live()) Env::probe("node.read.passed_frozen");
    entry = link.address;
  }
  return {StatusCode::kNotFound, {}, {}};
}

WriteOutcome Table::insert(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction,
                           Bytes row) {
  return write(thread, {EntryKind::kPut, true, Reserve::kWrite, key, snapshot, transaction, {row}});
}

WriteOutcome Table::update(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction,
                           Bytes row, const Projection* projection) {
  return write(thread, {EntryKind::kPut, false, Reserve::kWrite, key, snapshot, transaction, {row, projection}});
}

WriteOutcome Table::remove(ThreadContext& thread, Key key, const Snapshot& snapshot, TransactionId transaction) {
  return write(thread, {EntryKind::kTombstone, false, Reserve::kRemove, key, snapshot, transaction, {}});
}

WriteOutcome Table::write(ThreadContext& thread, const VersionWrite& request) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}};
  const Version version = version_of(request.transaction);
  if (version.value == 0 || version.value == kOpen || request.row.bytes.size() > max_row_bytes()) {
    return {StatusCode::kInvalidArgument, {}};
  }
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, request.key);
  Entry* entry = nullptr;  // appended, not linked
  Version composed_from;
  const auto give_up = [&](StatusCode code, Version present) {
    if (entry != nullptr) kill_lost(counters, entry);
    if (code == StatusCode::kConflict) count(counters.conflicts);
    if (code == StatusCode::kNoSpace) count(counters.no_space);
    return WriteOutcome{code, present};
  };
  for (;; chain.refresh()) {
    const Chain::Newest newest = chain.newest();
    if (newest.entry != nullptr && newest.entry->version() == version) {
      Env::probe("node.write.repeated");
      return give_up(StatusCode::kOk, version);  // R3
    }
    const StatusCode verdict = judge_write(newest, request.insert, request.snapshot, request.transaction);
    if (verdict != StatusCode::kOk) return give_up(verdict, newest.version());
    if (entry != nullptr && request.row.fields != nullptr && composed_from != newest.entry->version()) {
      Env::probe("node.write.composed_anew");
      kill_lost(counters, std::exchange(entry, nullptr));
    }
    if (entry == nullptr) {
      const Bytes before = newest.entry == nullptr ? Bytes() : newest.entry->row();
      if (request.row.size(before) > max_row_bytes()) return give_up(StatusCode::kInvalidArgument, {});
      composed_from = newest.version();
      const uint64_t sequence = thread.next_sequence(newest.entry == nullptr ? 0 : newest.entry->sequence);
      if (request.reserve == Reserve::kWrite && Env::rare("node.write.no_space")) {
        return give_up(StatusCode::kNoSpace, {});
      }
      const Link open{kOpen, newest.entry, EntryState::kLive};
      entry = log_.append(thread, {request.kind, request.key, version, sequence, open, request.row, before},
                          request.reserve);
      if (entry == nullptr) return give_up(StatusCode::kNoSpace, {});
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
      if (!newest.entry->tombstone()) Page::of(newest.entry)->add_garbage(newest.entry->size_bytes);
      break;
    }
    const InsertOutcome inserted = chain.insert(entry, request.reserve);
    if (inserted == InsertOutcome::kInserted) break;
    if (inserted == InsertOutcome::kNoSpace) return give_up(StatusCode::kNoSpace, {});
    Env::probe("node.write.insert_lost");
  }
  Env::pause_point("node.write.linked");
  // A tombstone counts from the beginning: it goes as soon as everybody sees it.
  if (entry->tombstone()) Page::of(entry)->add_garbage(entry->size_bytes);
  count(counters.writes);
  if (chain.helped() > 0) {
    Env::probe("node.write.helped_unlink");
    count(counters.helped, chain.helped());
  }
  return {StatusCode::kOk, version};
}

WriteOutcome Table::revert(ThreadContext& thread, Key key, TransactionId transaction) {
  if (kind() != TableKind::kTransactional) return {StatusCode::kWrongTableKind, {}};
  const Version version = version_of(transaction);
  Counters& counters = counters_[thread.writer()];
  Chain chain(*index_, thread, key);
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
    if (!newest.link.open()) return {StatusCode::kConflict, version};
    Env::pause_point("node.revert.found");
    if (!Chain::kill(newest.entry, newest.link)) {
      Env::probe("node.revert.kill_lost");
      continue;
    }
    Env::pause_point("node.revert.killed");
    if (!newest.entry->tombstone()) Page::of(newest.entry)->add_garbage(newest.entry->size_bytes);
    chain.newest();  // unlinks
    Env::pause_point("node.revert.unlinked");
    if (newest.link.address != nullptr) Chain::reopen(newest.link.address, version);
    count(counters.reverts);
    return {StatusCode::kOk, version};
  }
}

bool Table::stands_below(const Chain::Newest& newest, Version version) {
  for (const Entry* entry = newest.link.address; entry != nullptr;) {
    const Link link = entry->load_link();
    if (link.live() && entry->version() <= version) return entry->version() == version;
    entry = link.address;
  }
  return false;
}

}  // namespace loam::storage
