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
  Line& line = turns_.lines_[record];
  line.push_back(this);
  records_.push_back(record);
  if (line.size() == 1) return;
  Env::probe("client.turn.waits");
  first_.reset();
  if (first_.wait_until(fiber::FiberScheduler::current()->now_ns() + kMostWaitNs)) return;
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
  const bool first = line.front() == this;
  std::erase(line, this);
  if (line.empty()) {
    turns_.lines_.erase(found);
  } else if (first) {
    line.front()->first_.notify();
  }
}

}  // namespace loam::client
