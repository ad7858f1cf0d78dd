#include "client-lib/src/core/begin_batcher.h"

#include <algorithm>
#include <utility>

namespace loam::client {

wire::Begin BeginGroup::message() const { return {static_cast<uint32_t>(read_write.size()), !read_only.empty()}; }

void BeginGroup::answer(const wire::Begun& begun) const {
  const uint64_t count = read_write.size();
  const uint64_t first = begun.first_id.value;
  // Ids must be new to the snapshot (R12), and a read-only snapshot must have a number to be released by.
  const bool ids_fit = count == 0 || (first > begun.snapshot.high().value && first + count > first);
  if (!ids_fit || (!read_only.empty() && begun.snapshot_number == 0)) {
    return fail({StatusCode::kMalformed, "the commit manager's answer to a begin does not fit the request"});
  }
  BeginAnswer answer;
  answer.snapshot = std::make_shared<const Snapshot>(begun.snapshot);
  answer.catalog_version = begun.catalog_version;
  answer.seen_by_all = begun.seen_by_all;
  for (uint64_t i = 0; i < count; ++i) {
    answer.id = TransactionId(first + i);
    read_write[i]->on_begun(answer);
  }
  answer.id = TransactionId();
  answer.snapshot_number = begun.snapshot_number;
  for (BeginWaiter* waiter : read_only) waiter->on_begun(answer);
}

void BeginGroup::fail(const Status& status) const {
  BeginAnswer answer;
  answer.status = status;
  for (BeginWaiter* waiter : read_write) waiter->on_begun(answer);
  for (BeginWaiter* waiter : read_only) waiter->on_begun(answer);
}

void BeginBatcher::add(BeginWaiter* waiter, bool read_only) {
  (read_only ? pending_.read_only : pending_.read_write).push_back(waiter);
}

BeginGroup BeginBatcher::take() {
  BeginGroup group = std::exchange(pending_, {});
  if (group.read_write.size() > wire::kMaxBegins) {
    const auto rest = group.read_write.begin() + wire::kMaxBegins;
    pending_.read_write.assign(rest, group.read_write.end());
    group.read_write.erase(rest, group.read_write.end());
  }
  return group;
}

}  // namespace loam::client
