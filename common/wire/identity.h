// Which cluster a commit manager, a storage node or a client belongs to, and which state of its commit manager is the
// newest [R10, docs/decisions/0019-cluster-identity.md].
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace loam::wire {

/// Names a cluster: 128 random bits, drawn once with the first state of its commit manager. Zero: no cluster.
struct ClusterId {
  uint64_t high = 0;
  uint64_t low = 0;

  explicit operator bool() const { return high != 0 || low != 0; }
  auto operator<=>(const ClusterId&) const = default;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.high), v(m.low);
  }
};

/// 32 hexadecimal digits.
std::string to_string(const ClusterId& cluster);

/// One start of the commit manager. Two starts from copies of one state have the same number and different `random`.
struct EpochMark {
  uint64_t number = 0;
  uint64_t random = 0;
  uint64_t first_state = 0;  ///< the number of the first state that this start stores

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.number), v(m.random), v(m.first_state);
  }
};

/// What a storage node has been told last: it holds records that depend on this epoch, this state and this part of the
/// commit log.
struct KnownHistory {
  ClusterId cluster;  ///< zero: nothing has been told yet
  uint64_t epoch = 0;
  uint64_t random = 0;
  uint64_t state = 0;
  uint64_t log = 0;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.cluster), v(m.epoch), v(m.random), v(m.state), v(m.log);
  }
};

/// Epochs of a commit manager that its state keeps and that it shows. A storage node that was last told an older epoch
/// is refused: 1,024 starts that serve without that node are far beyond what happens, and the list stays below 32 KiB.
inline constexpr size_t kMaxEpochs = 1'024;

/// What a commit manager shows of itself. Each state that it stores has the next number, over all epochs.
struct ClusterHistory {
  ClusterId cluster;
  std::vector<EpochMark> epochs{};  ///< ascending; the last one is the present
  uint64_t state = 0;               ///< the number of the newest stored state; 0: nothing is stored
  uint64_t log = 0;  ///< commits, counted over all epochs, whose records in the commit log are on the disk

  /// kMalformed: no cluster, no epoch, too many of them, or numbers that do not ascend.
  Status validate() const;
  /// Whether this history contains what a storage node was told. kWrongCluster says what contradicts: another cluster,
  /// a higher epoch, an epoch with another random number, a state or commits that this history does not contain.
  Status contains(const KnownHistory& known) const;
  /// The present end of a valid history.
  KnownHistory present() const { return {cluster, epochs.back().number, epochs.back().random, state, log}; }

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.cluster), v(m.epochs), v(m.state), v(m.log);
  }
};

}  // namespace loam::wire
