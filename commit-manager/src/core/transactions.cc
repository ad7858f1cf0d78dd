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
      old_id_bound_(last_id_),
      next_id_bound_(last_id_) {
  LOAM_CHECK(options.first_transaction.value > 0, "0 is no transaction id");
}

Transactions::VisibleNow Transactions::visible_now() const {
  // A snapshot need not list open ids above the highest finished one, because it sees no id above that.
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

Status Transactions::check_begin(SessionId session, const SessionUsage& usage, const wire::Begin& request) {
  const size_t count = request.read_write + request.upgrades.size();
  const size_t snapshots = (request.read_only ? 1 : 0) + (request.upgradable ? 1 : 0);
  if (count + snapshots == 0) {
    return {StatusCode::kInvalidArgument, "begin: asks for no transaction and no snapshot"};
  }
  if (request.read_write > wire::kMaxBegins || request.upgrades.size() > wire::kMaxBegins - request.read_write) {
    return {StatusCode::kInvalidArgument, "begin: " + std::to_string(count) + " transactions in one message, at most " +
                                              std::to_string(wire::kMaxBegins) + " are allowed"};
  }
  for (const uint64_t number : request.upgrades) {
    const RegisteredSnapshot* registered = number == 0 ? nullptr : registered_snapshots_.find(number);
    if (registered == nullptr || registered->session != session || !registered->upgradable) {
      return {StatusCode::kInvalidArgument,
              "begin: this session holds no upgradable snapshot of number " + std::to_string(number)};
    }
  }
  if (snapshots != 0 && usage.snapshots + snapshots > options_.max_snapshots_per_session) {
    return overloaded("too many registered snapshots of this session", options_.max_snapshots_per_session,
                      "release some first");
  }
  if (count == 0) return ok_status();
  if (usage.open + count > options_.max_open_per_session) {
    return overloaded("too many open transactions of this session", options_.max_open_per_session,
                      "complete some first");
  }
  // Commits that wait for the log are in open_ too. If they are the majority, the log is the reason: see below.
  if (open_.size() + count > options_.max_open && 2 * committing_ < open_.size()) {
    return overloaded("too many open transactions in the cluster", options_.max_open, "try again later");
  }
  const size_t waiting = committing_ + unflushed_.size();
  if (open_.size() + count > options_.max_open || waiting >= options_.max_unflushed_commits) {
    return {StatusCode::kOverloaded, "begin: " + std::to_string(waiting) +
                                         " commits wait for the commit log; check the disk of the commit manager, "
                                         "and try again later"};
  }
  return ok_status();
}

Status Transactions::ensure_newest_snapshot(uint64_t now_ns) {
  if (newest_ != OpenSnapshots::kNone) return ok_status();
  const VisibleNow now = visible_now();
  newest_ = snapshots_.add(now.base, Version(finished_), now.open, now_ns);
  if (newest_ != OpenSnapshots::kNone) return ok_status();
  return overloaded("the open snapshots hold too many bytes", options_.max_snapshot_bytes, "try again later");
}

void Transactions::assign_id(SessionId session, OpenSnapshots::Slot snapshot) {
  transactions_.insert({++last_id_, session, snapshot, State::kOpen, false});
  open_.push_back(Version(last_id_));
}

uint64_t Transactions::register_snapshot(SessionId session, SessionUsage& usage, bool upgradable) {
  registered_snapshots_.insert({++last_number_, session, newest_, upgradable, usage.newest_snapshot, 0});
  if (usage.newest_snapshot != 0) registered_snapshots_.find(usage.newest_snapshot)->newer = last_number_;
  usage.newest_snapshot = last_number_;
  ++usage.snapshots;
  ++(upgradable ? upgradable_begins_ : read_only_begins_);
  upgradable_open_ += upgradable ? 1 : 0;
  return last_number_;
}

Status Transactions::begin(SessionId session, SessionUsage& usage, const wire::Begin& request, uint64_t now_ns,
                           BeginResult& begun) {
  LOAM_RETURN_IF_ERROR(check_begin(session, usage, request));
  OpenSnapshots::Slot shown = OpenSnapshots::kNone;
  if (request.read_write != 0 || request.read_only || request.upgradable) {
    LOAM_RETURN_IF_ERROR(ensure_newest_snapshot(now_ns));
    snapshots_.acquire(newest_, request.read_write + (request.upgradable ? 1 : 0), request.read_only ? 1 : 0);
    shown = newest_;
  } else {
    shown = registered_snapshots_.find(request.upgrades.front())->snapshot;
  }
  const size_t count = request.read_write + request.upgrades.size();
  begun.first = TransactionId(count == 0 ? 0 : last_id_ + 1);
  for (uint32_t i = 0; i < request.read_write; ++i) assign_id(session, newest_);
  for (const uint64_t number : request.upgrades) {
    const OpenSnapshots::Slot snapshot = registered_snapshots_.find(number)->snapshot;
    snapshots_.acquire(snapshot, 1, 0);
    assign_id(session, snapshot);
  }
  begun.snapshot_number = request.read_only ? register_snapshot(session, usage, false) : 0;
  begun.upgradable_number = request.upgradable ? register_snapshot(session, usage, true) : 0;
  usage.open += count;
  begins_ += request.read_write;
  upgrades_ += request.upgrades.size();
  changed_ = true;
  begun.snapshot = &snapshots_.entry(shown).snapshot;
  begun.seen_by_all = seen_by_all();
  begun.durable = unflushed_.empty() ? Version(last_id_) : Version(unflushed_.lowest().value - 1);
  return ok_status();
}

Status Transactions::mark_completing(SessionId session, TransactionId id) {
  Transaction* transaction = id.value == 0 ? nullptr : transactions_.find(id.value);
  if (transaction == nullptr) {
    return refuse_outcome(id, id.value == 0 || id.value > last_id_ ? "was never begun" : "is complete");
  }
  if (transaction->session != session || transaction->orphaned) return refuse_outcome(id, "belongs to another session");
  if (transaction->state == State::kCompleting) return refuse_outcome(id, "is named twice");
  if (transaction->state == State::kCommitting) return refuse_outcome(id, "is committed");
  transaction->state = State::kCompleting;
  completing_.push_back(id.value);
  return ok_status();
}

Status Transactions::complete(SessionId session, SessionUsage& usage,
                              std::span<const wire::Complete::Completion> outcomes, TransactionId lost,
                              std::vector<TransactionId>& accepted, std::vector<TransactionId>& refused) {
  completing_.clear();
  Status status;
  for (const wire::Complete::Completion& outcome : outcomes) {
    status = mark_completing(session, outcome.id);
    if (!status.ok()) break;
  }
  // All or nothing: the second pass changes transactions only if the first one has found no fault. kCompleting has
  // served to find ids that are named twice.
  for (const uint64_t id : completing_) transactions_.find(id)->state = State::kOpen;
  LOAM_RETURN_IF_ERROR(status);
  completing_.clear();
  for (const auto& [id, committed] : outcomes) {
    if (committed && id <= lost) {
      Env::probe("manager.complete.refused_after_loss");
      refused.push_back(id);
      continue;
    }
    --usage.open;
    if (committed) {
      transactions_.find(id.value)->state = State::kCommitting;
      ++committing_;
      accepted.push_back(id);
    } else {
      ++aborts_;
      completing_.push_back(id.value);
    }
  }
  finish_completing();
  return ok_status();
}

void Transactions::finish_commits(std::span<const TransactionId> ids, bool unflushed) {
  completing_.clear();
  for (const TransactionId id : ids) completing_.push_back(id.value);
  commits_ += ids.size();
  committing_ -= ids.size();
  finish_completing();
  if (!unflushed) return;
  for (const TransactionId id : ids) unflushed_.add(id);
}

void Transactions::flush(std::span<const TransactionId> ids) {
  for (const TransactionId id : ids) unflushed_.remove(id);
  if (!ids.empty()) changed_ = true;
}

void Transactions::abort_orphans(std::span<const TransactionId> ids) {
  completing_.clear();
  for (const TransactionId id : ids) {
    const Transaction* transaction = transactions_.find(id.value);
    LOAM_CHECK(transaction != nullptr && transaction->orphaned, "recovery undoes orphans only");
    completing_.push_back(id.value);
  }
  orphaned_transactions_ -= ids.size();
  aborts_ += ids.size();
  finish_completing();
}

void Transactions::finish_completing() {
  if (completing_.empty()) return;
  finished_ids_.clear();
  for (const uint64_t id : completing_) {
    Transaction* transaction = transactions_.find(id);
    finished_ = std::max(finished_, id);
    finished_ids_.push_back(Version(id));
    release_snapshot(transaction->snapshot, 1, 0);
    transactions_.erase(transaction);
  }
  remove_finished_from_open();
  newest_ = OpenSnapshots::kNone;  // later snapshots see more, so the next begin makes another one
  changed_ = true;
}

/// Removes finished_ids_ from open_ in one pass: it sorts them and moves the ids between them down. Short runs of ids
/// are moved one by one, long ones as a whole.
void Transactions::remove_finished_from_open() {
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

void Transactions::release_snapshot(OpenSnapshots::Slot slot, uint32_t writers, uint32_t readers) {
  if (snapshots_.release(slot, writers, readers) && slot == newest_) newest_ = OpenSnapshots::kNone;
}

void Transactions::unregister_snapshot(RegisteredSnapshot* registered) {
  const bool upgradable = registered->upgradable;
  release_snapshot(registered->snapshot, upgradable ? 1 : 0, upgradable ? 0 : 1);
  upgradable_open_ -= upgradable ? 1 : 0;
  registered_snapshots_.erase(registered);
}

void Transactions::unlink(SessionUsage& usage, const RegisteredSnapshot& registered) {
  if (registered.older != 0) registered_snapshots_.find(registered.older)->newer = registered.newer;
  if (registered.newer != 0) {
    registered_snapshots_.find(registered.newer)->older = registered.older;
  } else {
    usage.newest_snapshot = registered.older;
  }
}

void Transactions::release(SessionId session, SessionUsage& usage, std::span<const uint64_t> numbers) {
  for (const uint64_t number : numbers) {
    RegisteredSnapshot* registered = number == 0 ? nullptr : registered_snapshots_.find(number);
    if (registered == nullptr || registered->session != session) continue;
    unlink(usage, *registered);
    unregister_snapshot(registered);
    --usage.snapshots;
    changed_ = true;
  }
}

const Snapshot* Transactions::held_snapshot(SessionId session, TransactionId id, uint64_t number) const {
  OpenSnapshots::Slot slot = OpenSnapshots::kNone;
  // The number goes first: if the reply also has an id of an upgrade, that id has an older snapshot.
  if (number != 0) {
    const RegisteredSnapshot* registered = registered_snapshots_.find(number);
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
  statistics.orphaned_transactions = orphaned_transactions_;
  statistics.begins = begins_;
  statistics.commits = commits_;
  statistics.aborts = aborts_;
  statistics.read_only_begins = read_only_begins_;
  statistics.upgradable_begins = upgradable_begins_;
  statistics.upgrades = upgrades_;
  statistics.read_only_snapshots = registered_snapshots_.size() - upgradable_open_;
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
  statistics.publication_snapshots = exact_;
}

void Transactions::check_invariants() const {
  snapshots_.check_invariants();
  LOAM_CHECK(std::is_sorted(open_.begin(), open_.end()), "open ids ascend");
  LOAM_CHECK(open_.empty() || open_.back().value <= last_id_, "open ids were given out");
  LOAM_CHECK(finished_ <= last_id_, "finished ids were given out");
  size_t orphaned_transactions = 0, accepted = 0;
  std::vector<uint32_t> writers, readers;
  const auto held = [](std::vector<uint32_t>& counts, OpenSnapshots::Slot slot) {
    if (counts.size() <= slot) counts.resize(slot + 1);
    ++counts[slot];
  };
  transactions_.for_each([&](const Transaction& transaction) {
    orphaned_transactions += transaction.orphaned ? 1 : 0;
    accepted += transaction.state == State::kCommitting ? 1 : 0;
    held(writers, transaction.snapshot);
    LOAM_CHECK(std::binary_search(open_.begin(), open_.end(), Version(transaction.id)), "an open id is listed");
    LOAM_CHECK(!snapshots_.entry(transaction.snapshot).snapshot.visible(Version(transaction.id)),
               "no snapshot of a transaction sees the transaction itself");
    LOAM_CHECK(transaction.state == State::kOpen || (transaction.state == State::kCommitting && !transaction.orphaned),
               "a transaction is open or committing, and a committing one is no orphan");
  });
  registered_snapshots_.for_each([&](const RegisteredSnapshot& registered) {
    held(registered.upgradable ? writers : readers, registered.snapshot);
    const RegisteredSnapshot* const older =
        registered.older == 0 ? nullptr : registered_snapshots_.find(registered.older);
    LOAM_CHECK(older == nullptr || (older->session == registered.session && older->newer == registered.id),
               "a session's registered snapshots are linked both ways");
  });
  LOAM_CHECK(transactions_.size() == open_.size(), "each listed id has a transaction");
  LOAM_CHECK(orphaned_transactions == orphaned_transactions_ && accepted == committing_,
             "orphans and accepted commits are counted");
  writers.resize(std::max(writers.size(), readers.size()));
  readers.resize(writers.size());
  for (OpenSnapshots::Slot at = snapshots_.oldest(); at != OpenSnapshots::kNone; at = snapshots_.entry(at).next) {
    const OpenSnapshots::Entry& entry = snapshots_.entry(at);
    LOAM_CHECK(at < writers.size() && entry.writers == writers[at] && entry.readers == readers[at],
               "holders are counted");
  }
  if (newest_ != OpenSnapshots::kNone) {
    const VisibleNow now = visible_now();
    LOAM_CHECK(snapshots_.entry(newest_).snapshot == Snapshot::make(now.base, Version(finished_), now.open).value(),
               "the shared snapshot equals a new one");
    LOAM_CHECK(newest_ == snapshots_.newest(), "the shared snapshot is the last of the list");
  }
}

}  // namespace loam::commit
