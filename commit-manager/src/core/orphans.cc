// Transactions whose sessions have ended, and those that are about to end theirs by their age.
#include <algorithm>

#include "commit-manager/src/core/transactions.h"
#include "common/base/env.h"

namespace loam::commit {

void Transactions::keep_only(SessionId session, SessionLoad& load, uint64_t newest, std::span<const uint64_t> held) {
  if (load.snapshots == held.size() && std::all_of(held.begin(), held.end(), [&](uint64_t number) {
        const Registered* registered = number == 0 ? nullptr : registered_.find(number);
        return registered != nullptr && registered->session == session;
      })) {
    return;  // what it names is what it has
  }
  std::vector<uint64_t> dropped;
  for (uint64_t number = load.newest_snapshot; number != 0; number = registered_.find(number)->older) {
    if (number > newest || std::binary_search(held.begin(), held.end(), number)) continue;
    Env::probe("manager.session.snapshot_dropped");
    dropped.push_back(number);
  }
  release(session, load, dropped);
}

void Transactions::end_sessions(std::span<const SessionId> sessions, const OrphanVisitor& orphan) {
  transactions_.for_each([&](Transaction& transaction) {
    if (transaction.orphaned || transaction.state != State::kOpen) return;
    if (!std::ranges::binary_search(sessions, transaction.session)) return;
    transaction.orphaned = true;
    ++orphaned_open_;
    orphan(transaction.session, TransactionId(transaction.id));
  });
}

void Transactions::drop_snapshots(std::span<const SessionId> sessions) {
  std::vector<uint64_t> numbers;
  registered_.for_each([&](const Registered& registered) {
    if (std::ranges::binary_search(sessions, registered.session)) numbers.push_back(registered.id);
  });
  for (const uint64_t number : numbers) {
    Registered* registered = registered_.find(number);
    end_registered(registered);
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

std::vector<SessionId> Transactions::overaged(uint64_t now_ns) {
  // The youngest mark that is old enough speaks for all before it.
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
