// A core for tests and benchmarks, with an outbox, state stores and a commit log that record what they get.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/commit/core.h>

#include "common/base/bytes.h"
#include "common/wire/manager.h"
#include "common/wire/message.h"

namespace loam::commit {

/// Keeps every message until the test takes it.
class RecordingOutbox final : public Outbox {
 public:
  bool send(PeerId peer, Bytes message) override {
    if (stuck.contains(peer)) return false;
    sent[peer].emplace_back(message.begin(), message.end());
    return true;
  }
  void close(PeerId peer, const Status& why) override { closed.emplace(peer, why.code()); }
  void log(const LogLine& line, std::source_location) override { log_events.emplace_back(line.message); }

  std::map<PeerId, std::deque<Buffer>> sent;
  std::map<PeerId, StatusCode> closed;
  std::set<PeerId> stuck;  ///< peers with a full send queue
  std::vector<std::string> log_events;
};

/// A reply: the message, or the status of an Error.
template <class M>
struct ReplyOrError {
  std::optional<M> message;
  Status error;
  uint64_t sequence = 0;

  bool ok() const { return message.has_value(); }
  const M* operator->() const { return &message.value(); }
};

/// Stores each state at once. Fails if the test sets `failure`.
class RecordingStateStore final : public StateStore {
 public:
  std::optional<Status> store(Bytes bytes) override {
    if (before_store) before_store();
    if (!failure.ok()) return failure;
    state.assign(bytes.begin(), bytes.end());
    ++stores;
    return ok_status();
  }

  Buffer state;
  uint64_t stores = 0;
  Status failure;
  std::function<void()> before_store;
};

/// A state store that finishes when the test calls finish(). A crash leaves `state`.
class SlowStateStore final : public StateStore {
 public:
  std::optional<Status> store(Bytes bytes) override {
    EXPECT_FALSE(writing.has_value()) << "one store at a time";
    writing.emplace(bytes.begin(), bytes.end());
    ++started;
    return std::nullopt;
  }
  /// Finishes the store that is under way. Returns false if there is none.
  bool finish(Core& core, const Status& outcome = ok_status()) {
    if (!writing.has_value()) return false;
    if (outcome.ok()) state = std::move(*writing);
    writing.reset();
    core.on_state_stored(outcome);
    return true;
  }
  void finish_all(Core& core) {
    while (finish(core)) {
    }
  }

  Buffer state;
  std::optional<Buffer> writing;
  uint64_t started = 0;
};

/// A commit log that records what it gets. With `at_once` everything counts as flushed at once; otherwise the test
/// sets the progress. Positions are those of the core.
class RecordingLog final : public CommitLog {
 public:
  RecordingLog() = default;
  /// Continues a log with this content.
  explicit RecordingLog(CommitLogContents contents) : before(std::move(contents)), progress{before.end, before.end} {}

  void append(std::span<const TransactionId> ids) override {
    EXPECT_FALSE(ids.empty());
    batches.emplace_back(ids.begin(), ids.end());
    all.insert(all.end(), ids.begin(), ids.end());
    bytes_since += bytes_per_commit * ids.size();
  }
  void rewrite(CommitLogContents needed) override {
    EXPECT_EQ(needed.end, end());
    checkpoints.push_back(std::move(needed));
    bytes_since = 0;
  }
  uint64_t bytes() const override { return bytes_since; }

  /// Returns the position of the last commit.
  uint64_t end() const { return before.end + all.size(); }
  /// Reports the commits up to this position as accepted.
  void accept(Core& core, uint64_t position) {
    progress.accepted = position;
    core.on_log_progress(progress);
  }
  /// Reports the commits up to this position as flushed.
  void flush(Core& core, uint64_t position) {
    progress.flushed = position;
    core.on_log_progress(progress);
  }
  /// Reports all commits as accepted and flushed.
  void finish(Core& core) {
    progress = {end(), end()};
    core.on_log_progress(progress);
  }
  /// Returns the content at the next start if the records up to this position survive, with the newest checkpoint up
  /// to it.
  CommitLogContents left(uint64_t position) const {
    CommitLogContents contents = before;
    for (const CommitLogContents& beginning : checkpoints) {
      if (beginning.end <= position) contents = beginning;
    }
    std::set<TransactionId> ids;
    for (const IdRange& range : contents.committed) {
      for (uint64_t id = range.first.value; id <= range.last.value; ++id) ids.emplace(id);
    }
    for (uint64_t at = contents.end; at < position; ++at) ids.insert(all[at - before.end]);
    contents.committed.clear();
    for (const TransactionId id : ids) {
      const bool next = !contents.committed.empty() && contents.committed.back().last.value + 1 == id.value;
      if (!next) contents.committed.push_back({id, id});
      contents.committed.back().last = id;
    }
    contents.end = position;
    return contents;
  }

  CommitLogContents before;
  CommitLogProgress progress;
  bool at_once = true;
  uint64_t bytes_per_commit = 8;
  uint64_t bytes_since = 0;
  std::vector<TransactionId> all;  ///< appended after `before`
  std::vector<std::vector<TransactionId>> batches;
  std::vector<CommitLogContents> checkpoints;
};

/// A core with its clock and its recording interfaces. Tests use it as clients and storage nodes.
class CoreHarness {
 public:
  explicit CoreHarness(const CoreOptions& options = open_at_once(), StateStore* state_store = nullptr, Bytes state = {},
                       RecordingLog* commit_log = nullptr)
      : log(commit_log),
        core(options, outbox, state_store, state, commit_log,
             commit_log == nullptr ? CommitLogContents{} : log->before) {
    core.on_timer(now_ns);  // stores the first state
  }

  /// Lease of clients and of storage nodes.
  static constexpr uint64_t kLeaseNs = 2'000'000'000;

  static CoreOptions open_at_once() {
    CoreOptions options;
    options.initial_nodes = 0;
    options.client_lease_ns = options.node_lease_ns = kLeaseNs;
    return options;
  }

  PeerId connect() { return PeerId(++last_peer_); }

  /// Advances the clock by `ns`, and calls on_timer() whenever it is due.
  void run_for(uint64_t ns) {
    const uint64_t end = now_ns + ns;
    for (uint64_t due = core.next_deadline_ns(); due < end; due = core.next_deadline_ns()) {
      now_ns = std::max(now_ns, due);
      core.on_timer(now_ns);
    }
    now_ns = end;
    core.on_timer(now_ns);
  }

  void deliver(PeerId peer, Bytes message) { deliver_frame(peer, std::span(&message, 1)); }
  void deliver_frame(PeerId peer, std::span<const Bytes> messages) {
    core.on_messages(peer, messages, now_ns);
    if (log != nullptr && log->at_once && log->progress.flushed != log->end()) log->finish(core);
  }

  template <wire::Message M>
  static Buffer encoded(const M& message, uint64_t sequence) {
    Buffer bytes;
    wire::encode_message(message, sequence, bytes);
    return bytes;
  }

  /// Sends a request; returns its sequence.
  template <wire::Message M>
  uint64_t post(PeerId peer, const M& request) {
    const uint64_t sequence = ++last_sequence_;
    deliver(peer, encoded(request, sequence));
    return sequence;
  }

  /// Takes the oldest message for the peer, which must be an M or an Error.
  template <wire::Message M>
  ReplyOrError<M> receive(PeerId peer) {
    ReplyOrError<M> answer;
    auto& queue = outbox.sent[peer];
    if (queue.empty()) {
      answer.error = Status(StatusCode::kTimeout, "no message");
      return answer;
    }
    const Buffer bytes = std::move(queue.front());
    queue.pop_front();
    ByteReader reader(bytes);
    wire::Envelope envelope;
    answer.error = wire::decode_envelope(reader, envelope);
    answer.sequence = envelope.sequence;
    if (!answer.error.ok()) return answer;
    if (envelope.opcode == wire::Opcode::kError) {
      wire::Error error;
      const Status decoded = wire::decode_body(reader, error);
      answer.error = decoded.ok() ? error.status : decoded;
    } else if (envelope.opcode == M::kOpcode) {
      answer.message.emplace();
      answer.error = wire::decode_body(reader, *answer.message);
      if (!answer.error.ok()) answer.message.reset();
    } else {
      answer.error = Status(StatusCode::kInternal, "got " + std::string(wire::to_string(envelope.opcode)));
    }
    return answer;
  }

  template <wire::Message Reply, wire::Message M>
  ReplyOrError<Reply> call(PeerId peer, const M& request) {
    post(peer, request);
    return receive<Reply>(peer);
  }

  /// Connects a client and opens a session.
  PeerId client(const std::string& name = "test") {
    const PeerId peer = connect();
    static_cast<void>(call<wire::OpenSessionReply>(peer, wire::OpenSession{name}));
    return peer;
  }

  /// Connects and registers a storage node: a new process, or one with this incarnation.
  PeerId node(const std::string& address, Incarnation incarnation = Incarnation(0)) {
    const PeerId peer = connect();
    static_cast<void>(call<wire::RegisterNodeReply>(peer, wire::RegisterNode{address, "", 1 << 20, incarnation}));
    return peer;
  }

  /// Takes all messages for the peer and returns the newest M, if there is one.
  template <wire::Message M>
  ReplyOrError<M> newest(PeerId peer) {
    ReplyOrError<M> found;
    found.error = Status(StatusCode::kTimeout, "no message");
    while (!outbox.sent[peer].empty()) {
      if (auto message = receive<M>(peer); message.ok()) found = std::move(message);
    }
    return found;
  }

  /// Takes all messages for the node and acknowledges the newest fence among them. Returns false if there is none.
  bool acknowledge_fence(PeerId node) {
    const auto fence = newest<wire::Fence>(node);
    if (fence.ok()) deliver(node, encoded(wire::FenceReply{}, fence.sequence));
    return fence.ok();
  }

  /// Takes all messages for the node and acknowledges each.
  void acknowledge_all(PeerId node) {
    auto& queue = outbox.sent[node];
    while (!queue.empty()) {
      ByteReader reader(queue.front());
      wire::Envelope envelope;
      ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
      switch (envelope.opcode) {
        case wire::Opcode::kFence:
          deliver(node, encoded(wire::FenceReply{}, envelope.sequence));
          break;
        case wire::Opcode::kInstallTable:
          deliver(node, encoded(wire::InstallTableReply{}, envelope.sequence));
          break;
        case wire::Opcode::kAcceptLoss:
          deliver(node, encoded(wire::AcceptLossReply{}, envelope.sequence));
          break;
        case wire::Opcode::kPublish: {
          wire::Publish publish;
          ASSERT_TRUE(wire::decode_body(reader, publish).ok());
          const Publication& seen = publish.publication;
          deliver(node, encoded(wire::PublishReply{seen.cm_epoch, seen.number}, envelope.sequence));
          break;
        }
        default:
          break;
      }
      queue.pop_front();
    }
  }

  uint64_t now_ns = 1'000'000'000;
  RecordingOutbox outbox;
  RecordingLog* const log;
  Core core;

 private:
  uint64_t last_peer_ = 0;
  uint64_t last_sequence_ = 0;
};

inline constexpr uint64_t kLease = CoreHarness::kLeaseNs;
/// Time after which a lease has ended and the core has noticed it.
inline constexpr uint64_t kLeaseExpiryNs = kLease + kLease / 8 + kLease / 16 + 1;

inline Schema test_schema(FieldType type = FieldType::kInt64) {
  return Schema::make({{"id", FieldType::kInt64, false}, {"balance", type, true}}).value();
}

}  // namespace loam::commit
