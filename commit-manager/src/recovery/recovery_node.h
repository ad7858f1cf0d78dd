// The recoverer's view of one storage node: its channel, its pauses, and the tasks that wait for it.
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

/// First pause after a node did not answer. Each further failure doubles the pause, up to kMaxPauseNs. The first
/// pause is short, because records of the dead client stay claimed until recovery is done.
inline constexpr uint64_t kFirstPauseNs = 5'000'000;
/// Longest pause, which bounds the cost of a node that never comes back.
inline constexpr uint64_t kMaxPauseNs = 500'000'000;
/// Number of failures in a row after which a log line tells operators.
inline constexpr uint32_t kFailuresBeforeWarning = 4;

/// Returns the pause after this number of earlier failures in a row.
constexpr uint64_t pause_ns(uint32_t failures) {
  return failures < 7 ? std::min(kFirstPauseNs << failures, kMaxPauseNs) : kMaxPauseNs;
}

/// True if the node did not answer or cannot serve at present, so that no other task need ask it for a while.
inline bool is_unavailable(const Status& status) {
  return status == StatusCode::kUnavailable || status == StatusCode::kTimeout;
}

/// Converts the status of a failed request for its caller. A malformed answer becomes kUnavailable: such a node is
/// treated like one that does not answer.
Status node_failure(const Status& status);

/// A task with its attempts so far.
struct QueuedTask {
  RecoveryTask task;
  uint32_t attempts = 0;  ///< attempts that did not finish it
  NodeId waited_for;      ///< the storage node that it waited for last; 0: none
};

/// The channel to one storage node, the pause of the node, and the tasks that wait for it.
///
/// The channel belongs to one incarnation at one address. A channel that follows another one continues its sequences
/// (R3, idempotent requests within a session): the node may have kept its incarnation, and with it the replies to the
/// session's earlier requests.
///
/// A request fails when the node refuses it, when its deadline passes, or when its connection is lost. The channel
/// repeats no request, because a task is repeated as a whole. The states of the node:
///
///     responsive ── note_failure() ──▶ paused ── the pause is over ──▶ probed ── note_success() ──▶ responsive
///                                        ▲                                │
///                                        └── note_failure(), longer pause ┘
///
/// * paused: channel() refuses requests, so no task waits for a deadline in vain.
/// * probed: one parked task at a time may try the node (next_probe_ns(), pop_probe()).
/// * responsive again: a task that needs the node did not fail because of it. One reply is not enough: a node that
///   has lost its records answers too.
///
/// Owner: the engine. The worker's thread only.
class RecoveryNode {
 public:
  RecoveryNode(rpc::Worker& worker, wire::NodeInfo info, const RecovererOptions& options);
  RecoveryNode(const RecoveryNode&) = delete;
  RecoveryNode& operator=(const RecoveryNode&) = delete;

  /// Returns the channel for a request that is sent now. kUnavailable: the node is paused, or its records are lost
  /// and the loss is not accepted. A channel lives until its last request has ended.
  Result<rpc::Channel*> channel();

  /// Notes that a request failed because the node did not answer or said that it is unavailable.
  void note_failure(const Status& status);
  /// Notes that a task which needs the node did not fail because of it.
  void note_success();
  bool is_responsive() const { return failures_ == 0; }
  /// The tasks that wait for this node.
  std::vector<QueuedTask>& parked() { return parked_; }
  /// Returns when the next parked task may probe the node; kForever: no task is parked.
  uint64_t next_probe_ns() const;
  QueuedTask pop_probe();
  /// Sets what a new catalog says about the node. Another incarnation or another address ends the requests under way;
  /// any change ends the pause, so that parked tasks are tried again.
  void set_info(const wire::NodeInfo& info);

  /// Fails requests past their deadline. Returns kFenced or kUnknownOutcome once the node refuses this recoverer's
  /// session.
  Status expire(uint64_t now_ns);
  uint64_t earliest_deadline_ns() const;
  /// Fails all requests and accepts no more. The caller continues to call expire() until idle().
  void close(const Status& status);
  bool idle() const { return channel_->idle() && old_channels_.empty(); }

 private:
  bool paused() const { return worker_.now_ns() < paused_until_ns_; }
  void resume();
  void log_line(LogEvent event, const std::string& line, LogFields fields,
                std::source_location where = std::source_location::current()) const;
  void make_channel();

  rpc::Worker& worker_;
  wire::NodeInfo info_;
  std::string name_;
  const RecovererOptions& options_;
  std::unique_ptr<rpc::Channel> channel_;
  std::vector<std::unique_ptr<rpc::Channel>> old_channels_;  // closed channels, until they are idle
  Status end_;                                               // why the Attach of channel_ was refused for good
  uint32_t failures_ = 0;
  uint64_t paused_until_ns_ = 0;
  uint64_t last_probe_ns_ = 0;
  Status last_failure_;
  std::vector<QueuedTask> parked_;
};

}  // namespace loam::commit
