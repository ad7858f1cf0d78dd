// The running work of clients, for operators: which transactions and snapshots are open, and for how long.
#include <algorithm>
#include <unordered_map>

#include "commit-manager/src/core/core_impl.h"

namespace loam::commit {

void Transactions::report_ages(uint64_t now_ns, Statistics& statistics) const {
  for (OpenSnapshots::Slot at = snapshots_.oldest(); at != OpenSnapshots::kNone; at = snapshots_.entry(at).next) {
    const OpenSnapshots::Entry& entry = snapshots_.entry(at);
    const uint64_t age_ns = now_ns - std::min(now_ns, entry.opened_ns);
    if (at == snapshots_.oldest()) statistics.oldest_snapshot_age_ns = age_ns;
    if (entry.writers != 0) {
      statistics.oldest_writer_age_ns = age_ns;
      return;
    }
  }
}

std::vector<TransactionStatus> Transactions::oldest(size_t max, uint64_t now_ns) const {
  // The oldest snapshots that together have at least `max` holders. The tables are then read once, however many
  // holders there are, and only the holders of these snapshots are sorted.
  std::unordered_map<OpenSnapshots::Slot, size_t> rank;
  size_t holders = 0;
  for (OpenSnapshots::Slot at = snapshots_.oldest(); at != OpenSnapshots::kNone && holders < max;
       at = snapshots_.entry(at).next) {
    rank.emplace(at, rank.size());
    holders += size_t{snapshots_.entry(at).writers} + snapshots_.entry(at).readers;
  }
  struct Ranked {
    size_t rank = 0;
    TransactionStatus status;
  };
  std::vector<Ranked> found;
  const auto add = [&](OpenSnapshots::Slot slot, TransactionStatus status) {
    const auto at = rank.find(slot);
    if (at == rank.end()) return;
    const OpenSnapshots::Entry& entry = snapshots_.entry(slot);
    status.snapshot_age_ns = now_ns - std::min(now_ns, entry.opened_ns);
    status.snapshot = entry.snapshot.base();
    status.newer_ids = last_id_ - std::min(last_id_, entry.snapshot.base().value);
    found.push_back({at->second, std::move(status)});
  };
  transactions_.for_each([&](const Transaction& transaction) {
    TransactionStatus status;
    status.id = TransactionId(transaction.id);
    status.session = transaction.session;
    status.kind = TransactionStatus::Kind::kReadWrite;
    if (transaction.orphaned) {
      status.state = TransactionStatus::State::kOrphaned;
    } else if (transaction.state == State::kCommitting) {
      status.state = TransactionStatus::State::kCommitting;
    }
    add(transaction.snapshot, std::move(status));
  });
  registered_snapshots_.for_each([&](const RegisteredSnapshot& registered) {
    TransactionStatus status;
    status.session = registered.session;
    status.kind = registered.upgradable ? TransactionStatus::Kind::kUpgradable : TransactionStatus::Kind::kReadOnly;
    add(registered.snapshot, std::move(status));
  });
  std::ranges::sort(
      found, {}, [](const Ranked& one) { return std::tuple(one.rank, one.status.session.value, one.status.id.value); });
  std::vector<TransactionStatus> result;
  for (Ranked& one : found) {
    if (result.size() < max) result.push_back(std::move(one.status));
  }
  return result;
}

std::vector<TransactionStatus> Core::Impl::oldest_transactions(size_t max) const {
  std::vector<TransactionStatus> all = transactions_.oldest(max, now_ns_);
  for (TransactionStatus& one : all) {
    if (const auto open = sessions_.find(one.session); open != sessions_.end()) {
      one.client = open->second.client_name;
      one.peer = open->second.peer;
      continue;
    }
    const auto ended = ended_sessions_.sessions().find(one.session);
    if (ended == ended_sessions_.sessions().end()) continue;
    one.client = ended->second.client_name;
    if (one.state == TransactionStatus::State::kOpen) one.state = TransactionStatus::State::kOrphaned;
  }
  return all;
}

Status Core::Impl::end_session_for_operator(SessionId id) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) {
    const char* why = id == recoverer_ ? " belongs to the commit manager" : " is not open";
    return {StatusCode::kNotFound, "session " + std::to_string(id.value) + why};
  }
  end_session(at->second, "ended by an operator");
  run_deferred_work();
  return ok_status();
}

}  // namespace loam::commit
