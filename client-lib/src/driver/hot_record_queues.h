// HotRecordQueues: runs transactions that write the same hot record one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/fiber/wait.h"
#include "common/wire/storage.h"

namespace loam::client {

/// Queues transactions of this client that write the same hot record, so that they run one after another instead of
/// aborting each other.
///
/// If two transactions overlap and write the same record, one of them aborts, after it has made all its reads. In a
/// queue each transaction begins when the previous one has ended, and sees its writes. The queues are advisory:
/// transactions of other clients, and those that do not queue, still conflict at the storage node.
///
/// Owner: the engine; outlives all guards. Threads: the worker thread only.
class HotRecordQueues {
 public:
  class Guard;

  /// Upper bound on waiting for the transaction at the head of a queue. A transaction that hangs must not block the
  /// others for ever.
  static constexpr uint64_t kMaxQueueWaitNs = 1'000'000'000;

  HotRecordQueues() = default;
  HotRecordQueues(const HotRecordQueues&) = delete;
  HotRecordQueues& operator=(const HotRecordQueues&) = delete;

  /// Number of records that have a queue.
  size_t queues() const { return queues_.size(); }

 private:
  struct Hash {
    size_t operator()(const wire::RecordId& record) const {
      return std::hash<Key>()(record.key) + std::hash<TableId>()(record.table);
    }
  };
  /// The queue of one record; its head may run. Never empty.
  struct Queue {
    std::deque<Guard*> waiters;
    uint64_t head_since_ns = 0;  ///< time since which the head is the head
  };

  std::unordered_map<wire::RecordId, Queue, Hash> queues_;
};

/// The places of one transaction in queues. Lies in the frame of run_transaction().
class HotRecordQueues::Guard {
 public:
  explicit Guard(HotRecordQueues& owner) : owner_(owner) {}
  ~Guard() { release(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// Leaves all queues, joins those of `records`, and waits until it is the head of each. It stops waiting at a queue
  /// whose head has been there for kMaxQueueWaitNs. The queues are joined in the order of the records, which prevents
  /// deadlocks. In a fiber.
  void acquire(std::vector<wire::RecordId> records);
  /// Leaves all queues and wakes their next heads.
  void release();

 private:
  void acquire_one(const wire::RecordId& record);
  void release(const wire::RecordId& record);

  HotRecordQueues& owner_;
  std::vector<wire::RecordId> records_;  // the records whose queues it is in
  fiber::Event reached_head_;            // notified when it becomes the head of the queue that it waits for
};

}  // namespace loam::client
