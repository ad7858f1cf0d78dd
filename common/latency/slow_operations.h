// The slow operations of one thread, with the stages of their time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/latency/operation_kind.h"
#include "common/latency/stage.h"

namespace loam::latency {

/// An operation that takes longer than this is slow.
inline constexpr uint64_t kSlowNs = 1'000'000;

/// A slow operation: one request of a client, or the requests of one frame that a server executed together.
///
/// The session and the sequences are the id of the request: the client and the server record the same ones.
struct SlowOperation {
  uint64_t ended_ns = 0;                       ///< its end, by the monotonic clock of the process
  OperationKind kind = OperationKind::kOther;  ///< its kind; the kind of the first request of a frame
  uint64_t session = 0;         ///< the session of the client; 0: none, such as a storage node's requests
  uint64_t first_sequence = 0;  ///< the sequence of the first request
  uint64_t last_sequence = 0;   ///< the sequence of the last request
  uint64_t requests = 0;        ///< number of requests that were executed together
  uint64_t node = 0;            ///< in a client: the storage node; 0: the commit manager
  StageTimes stages;            ///< where its time went; their sum is the time of the operation
};

/// Keeps the slowest operations of the last minute.
///
/// A new operation replaces one that is older than kKeepNs, or the shortest one that is kept. So memory is bounded, and
/// a burst of operations that are a little slow does not replace a very slow one.
///
/// Owner: a thread, which alone calls add(). Threads: any thread calls list(). Only slow operations take the lock.
class SlowOperations {
 public:
  /// Number of operations that are kept.
  static constexpr size_t kKept = 512;
  /// An operation that ended earlier than this before a new one is replaced first.
  static constexpr uint64_t kKeepNs = 60'000'000'000;

  /// Offers an operation.
  void add(const SlowOperation& operation);
  /// Appends the operations that are kept to `out`, in no particular order.
  void list(std::vector<SlowOperation>& out) const;
  /// Returns the number of operations that were offered so far.
  uint64_t seen() const;

 private:
  /// Returns the place for a new operation, or kKept if it is too short.
  size_t place_for(uint64_t total_ns, uint64_t ended_ns);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<SlowOperation> kept_;
  std::vector<uint64_t> totals_ns_;  // the time of each kept operation
  uint64_t seen_ = 0;
  // Until one of the kept operations is too old, a new one must exceed this.
  uint64_t shortest_ns_ = 0;
  uint64_t oldest_ns_ = 0;
};

}  // namespace loam::latency
