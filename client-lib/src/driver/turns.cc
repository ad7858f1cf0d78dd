#include "client-lib/src/driver/turns.h"

#include <algorithm>
#include <utility>

#include "common/base/env.h"
#include "common/fiber/scheduler.h"

namespace loam::client {

void Turns::Turn::take(std::vector<wire::RecordId> records) {
  leave();
  std::ranges::sort(records);
  const auto repeated = std::ranges::unique(records);
  records.erase(repeated.begin(), repeated.end());
  for (const wire::RecordId& record : records) wait_at(record);
}

void Turns::Turn::wait_at(const wire::RecordId& record) {
  const fiber::FiberScheduler& scheduler = *fiber::FiberScheduler::current();
  Line& line = turns_.lines_[record];
  line.all.push_back(this);
  records_.push_back(record);
  if (line.all.size() == 1) {
    line.since_ns = scheduler.now_ns();
    return;
  }
  Env::probe("client.turn.waits");
  first_.reset();
  for (uint64_t until_ns = 0; until_ns < line.since_ns + kMostWaitNs;) {  // it moves on meanwhile
    until_ns = line.since_ns + kMostWaitNs;
    if (first_.wait_until(until_ns)) return;
    if (scheduler.stopping()) break;
  }
  records_.pop_back();
  leave(record);
}

void Turns::Turn::leave() {
  for (const wire::RecordId& record : records_) leave(record);
  records_.clear();
}

void Turns::Turn::leave(const wire::RecordId& record) {
  const auto found = turns_.lines_.find(record);
  Line& line = found->second;
  const bool first = line.all.front() == this;
  std::erase(line.all, this);
  if (line.all.empty()) {
    turns_.lines_.erase(found);
  } else if (first) {
    line.since_ns = fiber::FiberScheduler::current()->now_ns();
    line.all.front()->first_.notify();
  }
}

}  // namespace loam::client
