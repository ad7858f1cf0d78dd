// Transactions and snapshots of ended sessions, and transactions that are too old [R8, completion by the owner,
// recovery after the fence].
#include <algorithm>

#include "commit-manager/src/core/transactions.h"
#include "common/base/env.h"

namespace loam::commit {

void Transactions::release_all_except(SessionId session, SessionUsage& usage, uint64_t newest,
                                      std::span<const uint64_t> held) {
  if (usage.snapshots == held.size() && std::all_of(held.begin(), held.end(), [&](uint64_t number) {
        const RegisteredSnapshot* registered = number == 0 ? nullptr : registered_snapshots_.find(number);
        return registered != nullptr && registered->session == session;
      })) {
    return;  // the usual case: the client holds exactly the registered snapshots
  }
  std::vector<uint64_t> dropped;
  for (uint64_t number = usage.newest_snapshot; number != 0; number = registered_snapshots_.find(number)->older) {
    if (number > newest || std::binary_search(held.begin(), held.end(), number)) continue;
    Env::probe("manager.session.snapshot_dropped");
    dropped.push_back(number);
  }
  release(session, usage, dropped);
}

void Transactions::end_sessions(std::span<const SessionId> sessions, const OrphanVisitor& orphan) {
  transactions_.for_each([&](Transaction& transaction) {
    if (transaction.orphaned || transaction.state != State::kOpen) return;
    if (!std::ranges::binary_search(sessions, transaction.session)) return;
    transaction.orphaned = true;
    ++orphaned_transactions_;
    orphan(transaction.session, TransactionId(transaction.id));
  });
}

void Transactions::drop_snapshots(std::span<const SessionId> sessions) {
  std::vector<uint64_t> numbers;
  registered_snapshots_.for_each([&](const RegisteredSnapshot& registered) {
    if (std::ranges::binary_search(sessions, registered.session)) numbers.push_back(registered.id);
  });
  for (const uint64_t number : numbers) {
    RegisteredSnapshot* registered = registered_snapshots_.find(number);
    unregister_snapshot(registered);
    changed_ = true;
  }
}

std::vector<Orphan> Transactions::orphans() const {
  std::vector<Orphan> orphans;
  transactions_.for_each([&](const Transaction& transaction) {
    if (transaction.orphaned) {
      orphans.push_back({TransactionId(transaction.id), transaction.session});
    }
  });
  std::sort(orphans.begin(), orphans.end(), [](const Orphan& a, const Orphan& b) { return a.id < b.id; });
  return orphans;
}

SessionId Transactions::owner(TransactionId id) const {
  const Transaction* transaction = id.value == 0 ? nullptr : transactions_.find(id.value);
  return transaction == nullptr || transaction->orphaned ? SessionId() : transaction->session;
}

void Transactions::mark_age(uint64_t now_ns) {
  if (!age_marks_.empty() && now_ns - age_marks_.back().at_ns < options_.max_transaction_age_ns / 16) return;
  age_marks_.push_back({now_ns, last_id_});
}

std::vector<SessionId> Transactions::sessions_over_max_age(uint64_t now_ns) {
  // Keep the youngest mark that is old enough: all ids up to it are too old.
  while (age_marks_.size() > 1 && now_ns - age_marks_[1].at_ns >= options_.max_transaction_age_ns) {
    age_marks_.pop_front();
  }
  std::vector<SessionId> sessions;
  if (age_marks_.empty() || now_ns - age_marks_.front().at_ns < options_.max_transaction_age_ns) return sessions;
  for (const Version id : open_) {
    if (id.value > age_marks_.front().last_id) break;
    const Transaction* transaction = transactions_.find(id.value);
    if (!transaction->orphaned && transaction->state == State::kOpen) sessions.push_back(transaction->session);
  }
  std::sort(sessions.begin(), sessions.end());
  sessions.erase(std::unique(sessions.begin(), sessions.end()), sessions.end());
  return sessions;
}

}  // namespace loam::commit
