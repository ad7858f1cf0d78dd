// Registers the writes of commits by record, and finds conflicts among them. transaction.cc calls register_writes()
// before a commit sends anything.
#include "client-lib/src/driver/recent_writes.h"

#include <functional>
#include <vector>

#include "common/base/env.h"
#include "common/fiber/scheduler.h"

namespace loam::client {

RecentWrites::Bucket& RecentWrites::bucket_of(const wire::RecordId& record) {
  // The hash of the key spreads the records of a table; the hash of the table shifts them all.
  const uint64_t hash = std::hash<Key>()(record.key) + std::hash<TableId>()(record.table);
  return buckets_[hash % kBuckets];
}

Status RecentWrites::InFlightCommit::find_conflict(const Snapshot& snapshot, const WriteBuffer& writes,
                                                   InFlightCommit*& committing) {
  committing = nullptr;
  for (const auto& [record, write] : writes.writes()) {
    const Bucket& bucket = recent_.bucket_of(record);
    if (bucket.record != record) continue;
    if (!snapshot.visible(bucket.committed)) {
      conflicting_record_ = record;
      return record_error(write.table, record.key, StatusCode::kConflict);
    }
    if (bucket.writer != nullptr && !snapshot.visible(bucket.writer->version_)) committing = bucket.writer;
  }
  return ok_status();
}

Status RecentWrites::InFlightCommit::register_writes(TransactionId id, const Snapshot& snapshot,
                                                     const WriteBuffer& writes) {
  // Phase 1: wait for the concurrent commits of the same records, one after the other. After each wait that ends in
  // time, the loop checks again, because another commit may have begun meanwhile. A wait that times out ends the loop
  // without a check.
  const uint64_t until_ns = fiber::FiberScheduler::current()->now_ns() + kMaxWaitNs;
  InFlightCommit* committing = nullptr;
  for (bool in_time = true; in_time;) {
    LOAM_RETURN_IF_ERROR(find_conflict(snapshot, writes, committing));
    if (committing == nullptr) break;
    Env::probe("client.commit.awaits_another");
    fiber::Event ended;
    committing->waiters_.push_back(&ended);
    in_time = ended.wait_until(until_ns);
    if (!in_time) std::erase(committing->waiters_, &ended);  // its end() must not notify a dead event
  }
  // Phase 2: register. Without a time-out, the fiber has not suspended since the last check, so no other commit is
  // registered for these records. After a time-out another commit can be registered. The new one replaces it, and the
  // storage node decides between the two.
  version_ = version_of(id);
  buckets_.reserve(writes.size());
  for (const auto& [record, write] : writes.writes()) {
    Bucket& bucket = recent_.bucket_of(record);
    if (bucket.record != record) bucket = {record, Version(), nullptr};
    bucket.writer = this;
    buckets_.push_back(&bucket);
  }
  return ok_status();
}

void RecentWrites::InFlightCommit::end(bool committed) {
  for (Bucket* bucket : buckets_) {
    // A later commit has replaced this one, and its result counts.
    if (bucket->writer != this) continue;
    bucket->writer = nullptr;
    if (committed) bucket->committed = version_;
  }
  buckets_.clear();
  for (fiber::Event* ended : waiters_) ended->notify();
  waiters_.clear();
}

}  // namespace loam::client
