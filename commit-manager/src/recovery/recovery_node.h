// One storage node, as the recoverer talks to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "commit-manager/src/recovery/recoverer.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/worker.h"
#include "common/wire/catalog.h"
#include "common/wire/message.h"

namespace loam::commit {

/// A node that did not answer is left alone for kFirstPauseNs * 2^n, at most kMaxPauseNs: recovery is waited for, so
/// the first is short; the last keeps a node that is gone for good from costing anything.
inline constexpr uint64_t kFirstPauseNs = 5'000'000;
inline constexpr uint64_t kMaxPauseNs = 500'000'000;
/// Failures in a row after which operators are told.
inline constexpr uint32_t kFailuresToNote = 4;

constexpr uint64_t pause_ns(uint32_t failures) {
  return failures < 7 ? std::min(kFirstPauseNs << failures, kMaxPauseNs) : kMaxPauseNs;
}

/// Who asks a node.
class NodeCaller {
 public:
  /// As rpc::Caller.
  virtual Status on_reply(uint32_t token, wire::Opcode opcode, ByteReader& body) = 0;
  virtual void on_failure(uint32_t token, const Status& status, rpc::Executed executed) = 0;

 protected:
  ~NodeCaller() = default;
};

/// A task and how often it was put off.
struct QueuedTask {
  RecoveryTask task;
  uint32_t attempts = 0;
};

/// The channel to one incarnation of one node, whether the node may be asked at present, and the tasks that wait for
/// it.
///
/// A request fails when it is refused, when its deadline passes, or when its connection is lost: recovery asks anew,
/// from what stands in the undo record, and needs no repetition by the channel. After note_failure() the node is
/// *paused*: it takes no request for a while. Then one task at a time may try (next_probe_ns(), take_probe()), until it
/// answers().
///
/// Owner: the engine; the worker's thread only. Calls of NodeCaller come from settle(), or from the transport's poll.
class RecoveryNode final : private rpc::Caller {
 public:
  RecoveryNode(rpc::Worker& worker, wire::NodeInfo info, const RecovererOptions& options);
  RecoveryNode(const RecoveryNode&) = delete;
  RecoveryNode& operator=(const RecoveryNode&) = delete;

  /// The request's number, or why it is not sent. `deadline_ns` is relative; 0: none.
  template <wire::Message M>
  Result<uint64_t> request(const M& message, NodeCaller* caller, uint32_t token, uint64_t timeout_ns) {
    if (paused()) return waiting_status();
    if (!end_.ok()) renew();
    const uint64_t deadline_ns = timeout_ns == 0 ? rpc::kNoDeadline : worker_.now_ns() + timeout_ns;
    const auto sent = channel_->request(message, this, next_call_, deadline_ns);
    if (sent.ok()) calls_.emplace(next_call_++, Call{caller, token, *sent});
    return sent;
  }
  template <wire::Message M>
  void tell_about(uint64_t sequence, const M& message) {
    channel_->tell_about(sequence, message);
  }
  /// None of the caller's requests is answered any more.
  void forget(const NodeCaller* caller);

  bool paused() const { return worker_.now_ns() < paused_until_ns_; }
  Status waiting_status() const;
  /// A request came to nothing, or was answered with kUnavailable.
  void note_failure(const Status& status);
  bool answers() const { return failures_ == 0; }
  /// The tasks that wait for this node.
  std::vector<QueuedTask>& parked() { return parked_; }
  /// When one of them may try; kForever: none waits.
  uint64_t next_probe_ns() const;
  QueuedTask take_probe();
  /// Something about the node has changed: it may be asked at once.
  void resume();

  /// Fails the requests of a lost connection. kFenced once this recoverer's session has been refused.
  Status settle(uint64_t now_ns);
  uint64_t earliest_deadline_ns() const;
  /// Forgets all requests, without a word, and ends the connection. settle() goes on until idle().
  void close(const Status& status);
  /// Fails all requests and takes no more.
  void retire(const Status& status);
  bool idle() const { return channel_->idle() && old_channels_.empty(); }

  const wire::NodeInfo& info() const { return info_; }
  void set_state(wire::NodeState state) { info_.state = state; }
  const std::string& name() const { return name_; }

 private:
  struct Call {
    NodeCaller* caller = nullptr;
    uint32_t token = 0;
    uint64_t sequence = 0;
  };

  Status on_reply(uint64_t call, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t call, const Status& status, rpc::Executed executed) override;
  void note_answer();
  void note(const std::string& line) const;
  void renew();
  void fail_calls(const Status& status);

  rpc::Worker& worker_;
  wire::NodeInfo info_;
  const std::string name_;
  const RecovererOptions& options_;
  std::unique_ptr<rpc::Channel> channel_;
  std::vector<std::unique_ptr<rpc::Channel>> old_channels_;  // that were refused, until their connections have ended
  std::unordered_map<uint64_t, Call> calls_;
  uint64_t next_call_ = 1;
  Status lost_;  // connection lost since the last settle()
  Status end_;   // greeting refused for good
  uint32_t failures_ = 0;
  uint64_t paused_until_ns_ = 0;
  uint64_t last_probe_ns_ = 0;
  Status last_failure_;
  std::vector<QueuedTask> parked_;
};

}  // namespace loam::commit
