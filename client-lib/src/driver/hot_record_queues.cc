// Queues of transactions at hot records. run_transaction() in client.cc joins them before each attempt.
#include "client-lib/src/driver/hot_record_queues.h"

#include <algorithm>
#include <utility>

#include "common/base/env.h"
#include "common/fiber/scheduler.h"

namespace loam::client {

void HotRecordQueues::Guard::acquire(std::vector<wire::RecordId> records) {
  release();
  std::ranges::sort(records);
  const auto repeated = std::ranges::unique(records);
  records.erase(repeated.begin(), repeated.end());
  for (const wire::RecordId& record : records) acquire_one(record);
}

void HotRecordQueues::Guard::acquire_one(const wire::RecordId& record) {
  const fiber::FiberScheduler& scheduler = *fiber::FiberScheduler::current();
  Queue& queue = owner_.queues_[record];
  queue.waiters.push_back(this);
  records_.push_back(record);
  // The queue was empty: this transaction is its head at once.
  if (queue.waiters.size() == 1) {
    queue.head_since_ns = scheduler.now_ns();
    return;
  }
  Env::probe("client.hot_record_queue.waits");
  reached_head_.reset();
  for (uint64_t until_ns = 0;
       until_ns < queue.head_since_ns + kMaxQueueWaitNs;) {  // the head may change meanwhile, which extends the wait
    until_ns = queue.head_since_ns + kMaxQueueWaitNs;
    if (reached_head_.wait_until(until_ns)) return;
    if (scheduler.stopping()) break;
  }
  // The head stays too long, or the client ends. The transaction runs outside of the queue: a conflict then costs an
  // abort, and a hanging head delays no other transaction for ever.
  records_.pop_back();
  release(record);
}

void HotRecordQueues::Guard::release() {
  for (const wire::RecordId& record : records_) release(record);
  records_.clear();
}

void HotRecordQueues::Guard::release(const wire::RecordId& record) {
  const auto found = owner_.queues_.find(record);
  Queue& queue = found->second;
  const bool first = queue.waiters.front() == this;
  std::erase(queue.waiters, this);
  if (queue.waiters.empty()) {
    owner_.queues_.erase(found);
  } else if (first) {
    // The next head gets its own time, from now on.
    queue.head_since_ns = fiber::FiberScheduler::current()->now_ns();
    queue.waiters.front()->reached_head_.notify();
  }
}

}  // namespace loam::client
