// The identity of a cluster and the history of its commit manager (R10, cluster identity and incarnations;
// docs/decisions/0019-cluster-identity.md). By both, a server detects a commit manager that runs on an old copy of its
// folder, and a server of another cluster.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace loam::wire {

/// The id of a cluster: 128 random bits, drawn when its commit manager stores its first state. Zero is no cluster.
struct ClusterId {
  uint64_t high = 0;
  uint64_t low = 0;

  /// Whether this is the id of a cluster.
  explicit operator bool() const { return high != 0 || low != 0; }
  auto operator<=>(const ClusterId&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.high), v(m.low);
  }
};

/// The id as 32 hexadecimal digits.
std::string to_string(const ClusterId& cluster);

/// One epoch of a commit manager, that is, one start. Two starts from copies of the same state have the same number
/// and different random numbers.
struct EpochRecord {
  uint64_t number = 0;       ///< number of the epoch
  uint64_t random = 0;       ///< random number of the epoch
  uint64_t first_state = 0;  ///< number of the first state that this epoch stores

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.number), v(m.random), v(m.first_state);
  }
};

/// The newest point of a commit manager's history that a storage node knows. The records of the storage node depend on
/// this epoch, this stored state and these commits in the commit log.
struct HistoryPoint {
  ClusterId cluster;    ///< zero: the storage node has never registered
  uint64_t epoch = 0;   ///< number of the newest epoch
  uint64_t random = 0;  ///< random number of this epoch
  uint64_t state = 0;   ///< highest number of a stored state
  uint64_t log = 0;     ///< highest number of flushed commits in the commit log

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.cluster), v(m.epoch), v(m.random), v(m.state), v(m.log);
  }
};

/// Number of epochs that a commit manager keeps in its state and shows. It refuses a storage node that knows only an
/// older epoch. That is no loss in practice, because 1,024 starts without this storage node do not happen. The list
/// stays below 32 KiB.
inline constexpr size_t kMaxEpochs = 1'024;

/// The history that a commit manager shows to storage nodes. Stored states are numbered over all epochs.
struct ClusterHistory {
  ClusterId cluster;
  std::vector<EpochRecord> epochs{};  ///< ascending, at most kMaxEpochs; the last one is the present epoch
  uint64_t state = 0;                 ///< number of the newest stored state; 0: nothing is stored
  uint64_t log = 0;                   ///< number of commits, over all epochs, that are flushed in the commit log

  /// kMalformed: there is no cluster, no epoch or more than kMaxEpochs, or numbers do not ascend.
  Status validate() const;
  /// Checks that this history contains a point that a storage node knows. kWrongCluster: the point is not in this
  /// history. The message names the contradiction, which is another cluster, a higher epoch, an epoch with another
  /// random number, or a state or commits beyond this history.
  Status contains(const HistoryPoint& known) const;
  /// The newest point of a valid history.
  HistoryPoint latest() const { return {cluster, epochs.back().number, epochs.back().random, state, log}; }

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.cluster), v(m.epochs), v(m.state), v(m.log);
  }
};

}  // namespace loam::wire
