#include "commit-manager/src/core/transactions.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

Status overloaded(std::string_view what, size_t limit, std::string_view remedy) {
  return {StatusCode::kOverloaded,
          "begin: " + std::string(what) + " (limit " + std::to_string(limit) + "); " + std::string(remedy)};
}

Status refuse_outcome(TransactionId id, std::string_view why) {
  return {StatusCode::kInvalidArgument, "complete: transaction " + std::to_string(id.value) + " " + std::string(why) +
                                            "; no transaction of this message was completed"};
}

}  // namespace

Transactions::Transactions(const CoreOptions& options)
    : options_(options),
      last_id_(options.first_transaction.value - 1),
      finished_(last_id_),
      snapshots_(options.max_snapshot_bytes),
      old_mark_(last_id_),
      next_mark_(last_id_) {
  LOAM_CHECK(options.first_transaction.value > 0, "transaction 0 is no transaction");
}

Transactions::VisibleNow Transactions::visible_now() const {
  // Open ids above the highest finished one need not be named: nothing above it is visible anyhow.
  const auto end = std::lower_bound(open_.begin(), open_.end(), Version(finished_));
  const std::span<const Version> below(open_.begin(), end);
  return {below.empty() ? Version(finished_) : Version(below.front().value - 1), below};
}

Transactions::VisibleNow Transactions::durable_now() const {
  if (unflushed_.empty()) return visible_now();
  const VisibleNow now = visible_now();
  unflushed_ids_.clear();
  unflushed_.append_to(unflushed_ids_);
  not_durable_.clear();
  std::ranges::set_union(now.open, unflushed_ids_, std::back_inserter(not_durable_));
  return {Version(not_durable_.front().value - 1), not_durable_};
}

Version Transactions::durable_base() const {
  const Version base = visible_now().base;
  return unflushed_.empty() ? base : std::min(base, Version(unflushed_.lowest().value - 1));
}

Status Transactions::admit(SessionId session, const SessionLoad& load, const wire::Begin& asked) {
  const size_t count = asked.read_write + asked.upgrades.size();
  const size_t snapshots = (asked.read_only ? 1 : 0) + (asked.upgradable ? 1 : 0);
  if (count + snapshots == 0) {
    return {StatusCode::kInvalidArgument, "begin: asks for no transaction and no snapshot"};
  }
  if (asked.read_write > wire::kMaxBegins || asked.upgrades.size() > wire::kMaxBegins - asked.read_write) {
    return {StatusCode::kInvalidArgument, "begin: " + std::to_string(count) + " transactions in one message, at most " +
                                              std::to_string(wire::kMaxBegins) + " are allowed"};
  }
  for (const uint64_t number : asked.upgrades) {
    const Registered* registered = number == 0 ? nullptr : registered_.find(number);
    if (registered == nullptr || registered->session != session || !registered->upgradable) {
      return {StatusCode::kInvalidArgument,
              "begin: this session holds no upgradable snapshot of number " + std::to_string(number)};
    }
  }
  if (snapshots != 0 && load.snapshots + snapshots > options_.max_snapshots_per_session) {
    return overloaded("too many registered snapshots of this session", options_.max_snapshots_per_session,
                      "release some first");
  }
  if (count == 0) return ok_status();
  if (load.open + count > options_.max_open_per_session) {
    return overloaded("too many open transactions of this session", options_.max_open_per_session,
                      "complete some first");
  }
  // Commits that wait for the log are open.
  if (open_.size() + count > options_.max_open && 2 * accepted_ < open_.size()) {
    return overloaded("too many open transactions in the cluster", options_.max_open, "try again later");
  }
  const size_t waiting = accepted_ + unflushed_.size();
  if (open_.size() + count > options_.max_open || waiting >= options_.max_unflushed_commits) {
    return {StatusCode::kOverloaded, "begin: " + std::to_string(waiting) +
                                         " commits wait for the commit log; look at the disk of the commit manager, "
                                         "and try again later"};
  }
  return ok_status();
}

Status Transactions::take_newest(uint64_t now_ns) {
  if (newest_ != OpenSnapshots::kNone) return ok_status();
  const VisibleNow now = visible_now();
  newest_ = snapshots_.take(now.base, Version(finished_), now.open, now_ns);
  if (newest_ != OpenSnapshots::kNone) return ok_status();
  return overloaded("the open snapshots hold too many bytes", options_.max_snapshot_bytes, "try again later");
}

void Transactions::draw_id(SessionId session, OpenSnapshots::Slot snapshot) {
  transactions_.insert({++last_id_, session, snapshot, State::kOpen, false});
  open_.push_back(Version(last_id_));
}

uint64_t Transactions::add_registered(SessionId session, SessionLoad& load, bool upgradable) {
  registered_.insert({++last_number_, session, newest_, upgradable, load.newest_snapshot, 0});
  if (load.newest_snapshot != 0) registered_.find(load.newest_snapshot)->newer = last_number_;
  load.newest_snapshot = last_number_;
  ++load.snapshots;
  ++(upgradable ? upgradable_begins_ : read_only_begins_);
  upgradable_open_ += upgradable ? 1 : 0;
  return last_number_;
}

Status Transactions::begin(SessionId session, SessionLoad& load, const wire::Begin& asked, uint64_t now_ns,
                           Begun& begun) {
  LOAM_RETURN_IF_ERROR(admit(session, load, asked));
  OpenSnapshots::Slot shown = OpenSnapshots::kNone;
  if (asked.read_write != 0 || asked.read_only || asked.upgradable) {
    LOAM_RETURN_IF_ERROR(take_newest(now_ns));
    snapshots_.hold(newest_, asked.read_write + (asked.upgradable ? 1 : 0), asked.read_only ? 1 : 0);
    shown = newest_;
  } else {
    shown = registered_.find(asked.upgrades.front())->snapshot;
  }
  const size_t count = asked.read_write + asked.upgrades.size();
  begun.first = TransactionId(count == 0 ? 0 : last_id_ + 1);
  for (uint32_t i = 0; i < asked.read_write; ++i) draw_id(session, newest_);
  for (const uint64_t number : asked.upgrades) {
    const OpenSnapshots::Slot snapshot = registered_.find(number)->snapshot;
    snapshots_.hold(snapshot, 1, 0);
    draw_id(session, snapshot);
  }
  begun.snapshot_number = asked.read_only ? add_registered(session, load, false) : 0;
  begun.upgradable_number = asked.upgradable ? add_registered(session, load, true) : 0;
  load.open += count;
  begins_ += asked.read_write;
  upgrades_ += asked.upgrades.size();
  changed_ = true;
  begun.snapshot = &snapshots_.entry(shown).snapshot;
  begun.seen_by_all = seen_by_all();
  begun.durable = unflushed_.empty() ? Version(last_id_) : Version(unflushed_.lowest().value - 1);
  return ok_status();
}

Status Transactions::name(SessionId session, TransactionId id) {
  Transaction* transaction = id.value == 0 ? nullptr : transactions_.find(id.value);
  if (transaction == nullptr) {
    return refuse_outcome(id, id.value == 0 || id.value > last_id_ ? "was never begun" : "is complete");
  }
  if (transaction->session != session || transaction->orphaned) return refuse_outcome(id, "belongs to another session");
  if (transaction->state == State::kNamed) return refuse_outcome(id, "is named twice");
  if (transaction->state == State::kAccepted) return refuse_outcome(id, "is committed");
  transaction->state = State::kNamed;
  named_.push_back(id.value);
  return ok_status();
}

Status Transactions::complete(SessionId session, SessionLoad& load, std::span<const wire::Complete::Outcome> outcomes,
                              TransactionId lost, std::vector<TransactionId>& accepted,
                              std::vector<TransactionId>& refused) {
  named_.clear();
  Status status;
  for (const wire::Complete::Outcome& outcome : outcomes) {
    status = name(session, outcome.id);
    if (!status.ok()) break;
  }
  for (const uint64_t id : named_) transactions_.find(id)->state = State::kOpen;
  LOAM_RETURN_IF_ERROR(status);
  named_.clear();
  for (const auto& [id, committed] : outcomes) {
    if (committed && id <= lost) {
      Env::probe("manager.complete.refused_after_loss");
      refused.push_back(id);
      continue;
    }
    --load.open;
    if (committed) {
      transactions_.find(id.value)->state = State::kAccepted;
      ++accepted_;
      accepted.push_back(id);
    } else {
      ++aborts_;
      named_.push_back(id.value);
    }
  }
  finish_named();
  return ok_status();
}

void Transactions::finish_commits(std::span<const TransactionId> ids, bool unflushed) {
  named_.clear();
  for (const TransactionId id : ids) named_.push_back(id.value);
  commits_ += ids.size();
  accepted_ -= ids.size();
  finish_named();
  if (!unflushed) return;
  for (const TransactionId id : ids) unflushed_.add(id);
}

void Transactions::flush(std::span<const TransactionId> ids) {
  for (const TransactionId id : ids) unflushed_.remove(id);
  if (!ids.empty()) changed_ = true;
}

void Transactions::abort_orphans(std::span<const TransactionId> ids) {
  named_.clear();
  for (const TransactionId id : ids) {
    const Transaction* transaction = transactions_.find(id.value);
    LOAM_CHECK(transaction != nullptr && transaction->orphaned, "recovery undoes orphans");
    named_.push_back(id.value);
  }
  orphaned_open_ -= ids.size();
  aborts_ += ids.size();
  finish_named();
}

void Transactions::finish_named() {
  if (named_.empty()) return;
  finished_ids_.clear();
  for (const uint64_t id : named_) {
    Transaction* transaction = transactions_.find(id);
    finished_ = std::max(finished_, id);
    finished_ids_.push_back(Version(id));
    let_go(transaction->snapshot, 1, 0);
    transactions_.erase(transaction);
  }
  squeeze_open();
  newest_ = OpenSnapshots::kNone;  // later snapshots see more
  changed_ = true;
}

/// Takes finished_ids_ out of open_: sorts them, and moves the ids between them down. Short runs of ids are moved one
/// by one, long ones as a whole.
void Transactions::squeeze_open() {
  constexpr ptrdiff_t kShortRun = 16;
  std::sort(finished_ids_.begin(), finished_ids_.end());
  auto to = std::lower_bound(open_.begin(), open_.end(), finished_ids_.front());
  auto from = to;
  for (const Version gone : finished_ids_) {
    const auto near = from + std::min(kShortRun, open_.end() - from);
    while (from != near && *from < gone) *to++ = *from++;
    if (from == near) {
      const auto at = std::lower_bound(from, open_.end(), gone);
      to = std::move(from, at, to);
      from = at;
    }
    if (from != open_.end() && *from == gone) ++from;
  }
  open_.erase(std::move(from, open_.end(), to), open_.end());
}

void Transactions::let_go(OpenSnapshots::Slot slot, uint32_t writers, uint32_t readers) {
  if (snapshots_.release(slot, writers, readers) && slot == newest_) newest_ = OpenSnapshots::kNone;
}

void Transactions::end_registered(Registered* registered) {
  const bool upgradable = registered->upgradable;
  let_go(registered->snapshot, upgradable ? 1 : 0, upgradable ? 0 : 1);
  upgradable_open_ -= upgradable ? 1 : 0;
  registered_.erase(registered);
}

void Transactions::unlink(SessionLoad& load, const Registered& registered) {
  if (registered.older != 0) registered_.find(registered.older)->newer = registered.newer;
  if (registered.newer != 0) {
    registered_.find(registered.newer)->older = registered.older;
  } else {
    load.newest_snapshot = registered.older;
  }
}

void Transactions::release(SessionId session, SessionLoad& load, std::span<const uint64_t> numbers) {
  for (const uint64_t number : numbers) {
    Registered* registered = number == 0 ? nullptr : registered_.find(number);
    if (registered == nullptr || registered->session != session) continue;
    unlink(load, *registered);
    end_registered(registered);
    --load.snapshots;
    changed_ = true;
  }
}

const Snapshot* Transactions::held_snapshot(SessionId session, TransactionId id, uint64_t number) const {
  OpenSnapshots::Slot slot = OpenSnapshots::kNone;
  // The number first: the first id may be that of an upgrade, which has an older snapshot.
  if (number != 0) {
    const Registered* registered = registered_.find(number);
    if (registered != nullptr && registered->session == session) slot = registered->snapshot;
  } else if (id.value != 0) {
    const Transaction* transaction = transactions_.find(id.value);
    if (transaction != nullptr && transaction->session == session) slot = transaction->snapshot;
  }
  return slot == OpenSnapshots::kNone ? nullptr : &snapshots_.entry(slot).snapshot;
}

Version Transactions::base() const { return visible_now().base; }

bool Transactions::finished(TransactionId first, TransactionId last) const {
  const auto open = std::ranges::lower_bound(open_, Version(first.value));
  return last.value <= last_id_ && (open == open_.end() || open->value > last.value) &&
         !unflushed_.any_between(first, last);
}

Version Transactions::seen_by_all() const {
  const Version durable = durable_base();
  // The oldest open snapshot has the lowest base of all that are open or come later.
  return snapshots_.size() == 0 ? durable : std::min(durable, snapshots_.entry(snapshots_.oldest()).snapshot.base());
}

void Transactions::report(Statistics& statistics) const {
  statistics.last_transaction = last_id_;
  statistics.open = open_.size();
  statistics.orphaned_open = orphaned_open_;
  statistics.begins = begins_;
  statistics.commits = commits_;
  statistics.aborts = aborts_;
  statistics.read_only_begins = read_only_begins_;
  statistics.upgradable_begins = upgradable_begins_;
  statistics.upgrades = upgrades_;
  statistics.read_only_snapshots = registered_.size() - upgradable_open_;
  statistics.upgradable_snapshots = upgradable_open_;
  statistics.open_snapshots = snapshots_.size();
  statistics.snapshot_memory_bytes = snapshots_.memory_bytes();
  const VisibleNow now = visible_now();
  Snapshot snapshot;
  if (snapshot.assign(now.base, Version(finished_), now.open).ok()) {
    Buffer encoded;
    ByteWriter writer(encoded);
    snapshot.encode(writer);
    statistics.snapshot_bytes = encoded.size();
  }
  statistics.base = now.base.value;
  statistics.seen_by_all = seen_by_all().value;
  statistics.publications = publication_number_;
  statistics.publication_exact = exact_;
}

void Transactions::check_invariants() const {
  snapshots_.check_invariants();
  LOAM_CHECK(std::is_sorted(open_.begin(), open_.end()), "open ids ascend");
  LOAM_CHECK(open_.empty() || open_.back().value <= last_id_, "open ids were given out");
  LOAM_CHECK(finished_ <= last_id_, "finished ids were given out");
  size_t orphaned_open = 0, accepted = 0;
  std::vector<uint32_t> writers, readers;
  const auto held = [](std::vector<uint32_t>& counts, OpenSnapshots::Slot slot) {
    if (counts.size() <= slot) counts.resize(slot + 1);
    ++counts[slot];
  };
  transactions_.for_each([&](const Transaction& transaction) {
    orphaned_open += transaction.orphaned ? 1 : 0;
    accepted += transaction.state == State::kAccepted ? 1 : 0;
    held(writers, transaction.snapshot);
    LOAM_CHECK(std::binary_search(open_.begin(), open_.end(), Version(transaction.id)), "an open id is listed");
    LOAM_CHECK(!snapshots_.entry(transaction.snapshot).snapshot.visible(Version(transaction.id)),
               "no transaction sees itself finished");
    LOAM_CHECK(transaction.state == State::kOpen || (transaction.state == State::kAccepted && !transaction.orphaned),
               "it is open, or accepted");
  });
  registered_.for_each([&](const Registered& registered) {
    held(registered.upgradable ? writers : readers, registered.snapshot);
    const Registered* const older = registered.older == 0 ? nullptr : registered_.find(registered.older);
    LOAM_CHECK(older == nullptr || (older->session == registered.session && older->newer == registered.id),
               "a session's registered snapshots are linked both ways");
  });
  LOAM_CHECK(transactions_.size() == open_.size(), "each listed id is open");
  LOAM_CHECK(orphaned_open == orphaned_open_ && accepted == accepted_, "orphans and accepted commits are counted");
  writers.resize(std::max(writers.size(), readers.size()));
  readers.resize(writers.size());
  for (OpenSnapshots::Slot at = snapshots_.oldest(); at != OpenSnapshots::kNone; at = snapshots_.entry(at).next) {
    const OpenSnapshots::Entry& entry = snapshots_.entry(at);
    LOAM_CHECK(at < writers.size() && entry.writers == writers[at] && entry.readers == readers[at], "holders counted");
  }
  if (newest_ != OpenSnapshots::kNone) {
    const VisibleNow now = visible_now();
    LOAM_CHECK(snapshots_.entry(newest_).snapshot == Snapshot::make(now.base, Version(finished_), now.open).value(),
               "the shared snapshot is what a new one would be");
    LOAM_CHECK(newest_ == snapshots_.newest(), "it is the last of the list");
  }
}

}  // namespace loam::commit
