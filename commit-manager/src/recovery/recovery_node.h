// One storage node, as the recoverer talks to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commit-manager/src/recovery/recoverer.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/worker.h"
#include "common/wire/catalog.h"

namespace loam::commit {

/// The recoverer sends nothing to a node that did not answer for kFirstPauseNs * 2^n, at most kMaxPauseNs. The first
/// pause is short, because the snapshots of clients wait for recovery; the last bounds the cost of a node that never
/// comes back.
inline constexpr uint64_t kFirstPauseNs = 5'000'000;
inline constexpr uint64_t kMaxPauseNs = 500'000'000;
/// Failures in a row after which operators are told.
inline constexpr uint32_t kFailuresToNote = 4;

constexpr uint64_t pause_ns(uint32_t failures) {
  return failures < 7 ? std::min(kFirstPauseNs << failures, kMaxPauseNs) : kMaxPauseNs;
}

/// The node did not answer, or says that it cannot serve at present: no other task need ask it for a while.
inline bool is_silence(const Status& status) {
  return status == StatusCode::kUnavailable || status == StatusCode::kTimeout;
}

/// The status of a failed request for its caller: a node that sends a malformed answer does not answer at present, so
/// that is kUnavailable.
Status node_failure(const Status& status);

/// A task, how often it was put off, and the node that it waited for last (0: none).
struct QueuedTask {
  RecoveryTask task;
  uint32_t attempts = 0;
  NodeId waited_for;
};

/// The channel to one incarnation of one node, whether the node may be asked at present, and the tasks that wait for
/// it.
///
/// A request fails when it is refused, when its deadline passes, or when its connection is lost: a task is repeated as
/// a whole, and needs no repetition by the channel. After note_failure() the node is *paused*: it takes no request for
/// a while. Then one of the tasks that wait for it at a time may try (next_probe_ns(), take_probe()), until one that
/// needs the node no longer fails because of it: note_success(). A single answer is no success: a node that has lost
/// its records answers, too.
///
/// Owner: the engine; the worker's thread only.
class RecoveryNode {
 public:
  RecoveryNode(rpc::Worker& worker, wire::NodeInfo info, const RecovererOptions& options);
  RecoveryNode(const RecoveryNode&) = delete;
  RecoveryNode& operator=(const RecoveryNode&) = delete;

  /// The channel for a request that is made now; kUnavailable while the node is paused, or its memory is lost and the
  /// loss is not accepted. A channel lives until its last request has ended.
  Result<rpc::Channel*> channel();

  /// A request failed because the node did not answer, or said that it is unavailable.
  void note_failure(const Status& status);
  /// A task that needs the node has not failed because of it.
  void note_success();
  bool answers() const { return failures_ == 0; }
  /// The tasks that wait for this node.
  std::vector<QueuedTask>& parked() { return parked_; }
  /// When one of them may try; kForever: none waits.
  uint64_t next_probe_ns() const;
  QueuedTask take_probe();
  /// The node's state in the catalog has changed: it may be asked at once.
  void set_state(wire::NodeState state);

  /// Fails requests past their deadline. kFenced once the node has refused this recoverer's session.
  Status expire(uint64_t now_ns);
  uint64_t earliest_deadline_ns() const;
  /// Fails all requests and takes no more. expire() goes on until idle().
  void close(const Status& status);
  bool idle() const { return channel_->idle() && old_channels_.empty(); }

  const wire::NodeInfo& info() const { return info_; }
  const std::string& name() const { return name_; }

 private:
  bool paused() const { return worker_.now_ns() < paused_until_ns_; }
  void resume();
  void note(const std::string& line) const;
  void make_channel();

  rpc::Worker& worker_;
  wire::NodeInfo info_;
  const std::string name_;
  const RecovererOptions& options_;
  std::unique_ptr<rpc::Channel> channel_;
  std::vector<std::unique_ptr<rpc::Channel>> old_channels_;  // whose greeting was refused, until they are idle
  Status end_;                                               // why the greeting of channel_ was refused for good
  uint32_t failures_ = 0;
  uint64_t paused_until_ns_ = 0;
  uint64_t last_probe_ns_ = 0;
  Status last_failure_;
  std::vector<QueuedTask> parked_;
};

}  // namespace loam::commit
