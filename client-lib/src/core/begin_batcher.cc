// Batches of begins: one message, and how its reply is divided among the waiters. manager_session.cc sends the
// messages.
#include "client-lib/src/core/begin_batcher.h"

#include <algorithm>
#include <utility>

namespace loam::client {
namespace {

/// Moves the elements of `all` beyond `limit` to `rest`.
template <class T>
void cut(std::vector<T>& all, size_t limit, std::vector<T>& rest) {
  if (all.size() <= limit) return;
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(limit);
  rest.assign(from, all.end());
  all.erase(from, all.end());
}

}  // namespace

wire::Begin BeginBatch::message() const {
  wire::Begin message{static_cast<uint32_t>(read_write.size()), !read_only.empty(), !upgradable.empty(), {}};
  for (const Upgrade& upgrade : upgrades) message.upgrades.push_back(upgrade.snapshot_number);
  return message;
}

void BeginBatch::notify_all(const std::vector<BeginWaiter*>& waiters, const BeginResult& answer) const {
  for (BeginWaiter* waiter : waiters) waiter->on_begun(answer);
}

void BeginBatch::deliver(const wire::BeginReply& begun) const {
  const uint64_t count = read_write.size() + upgrades.size();
  const uint64_t first = begun.first_id.value;
  // Ids must be new to the snapshot (R12), and a registered snapshot must have a number to be released by.
  const bool ids_fit = count == 0 || (first > begun.snapshot.high().value && first + count > first);
  if (!ids_fit || (!read_only.empty() && begun.snapshot_number == 0) ||
      (!upgradable.empty() && begun.upgradable_number == 0)) {
    return fail({StatusCode::kMalformed, "the commit manager's reply to a begin does not fit the request"});
  }
  BeginResult answer;
  answer.snapshot = std::make_shared<const Snapshot>(begun.snapshot);
  answer.catalog_version = begun.catalog_version;
  answer.seen_by_all = begun.seen_by_all;
  answer.durable = begun.durable;
  // The reply has one range of ids. Read-write begins take the first ones, upgrades the rest.
  uint64_t next = first;
  for (BeginWaiter* waiter : read_write) {
    answer.id = TransactionId(next++);
    waiter->on_begun(answer);
  }
  for (const Upgrade& upgrade : upgrades) {
    answer.id = TransactionId(next++);
    upgrade.waiter->on_begun(answer);
  }
  answer.id = TransactionId();
  answer.snapshot_number = begun.snapshot_number;
  notify_all(read_only, answer);
  answer.snapshot_number = begun.upgradable_number;
  notify_all(upgradable, answer);
}

void BeginBatch::fail(const Status& status) const {
  BeginResult answer;
  answer.status = status;
  notify_all(read_write, answer);
  notify_all(read_only, answer);
  notify_all(upgradable, answer);
  for (const Upgrade& upgrade : upgrades) upgrade.waiter->on_begun(answer);
}

void BeginBatcher::add(BeginWaiter* waiter, BeginKind kind) {
  switch (kind) {
    case BeginKind::kReadWrite:
      return pending_.read_write.push_back(waiter);
    case BeginKind::kReadOnly:
      return pending_.read_only.push_back(waiter);
    case BeginKind::kUpgradable:
      return pending_.upgradable.push_back(waiter);
  }
}

void BeginBatcher::add_upgrade(BeginWaiter* waiter, uint64_t snapshot_number) {
  pending_.upgrades.push_back({waiter, snapshot_number});
}

BeginBatch BeginBatcher::next_batch() {
  // Only ids are bounded: all read-only begins of a message share one snapshot, and so do all upgradable ones.
  BeginBatch group = std::exchange(pending_, {});
  cut(group.read_write, wire::kMaxBegins, pending_.read_write);
  cut(group.upgrades, wire::kMaxBegins - group.read_write.size(), pending_.upgrades);
  return group;
}

}  // namespace loam::client
