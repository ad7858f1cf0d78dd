// PointReads: reads of records by key, for both kinds of tables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <loam/client/record.h>
#include <loam/client/table.h>

#include "client-lib/src/driver/engine.h"
#include "common/fiber/wait.h"
#include "common/rpc/channel.h"
#include "common/wire/storage.h"

namespace loam::client {

/// Reads several records of one table together, with one message to each storage node that owns some of them, or
/// several messages if one would be too large.
///
/// Reads have no effects, so they are repeated until the deadline if a storage node does not answer or no longer owns
/// the records. The repetition goes to the owner in the current catalog; with SessionPolicy::kAnySession also under
/// the client's next session.
///
/// Owner: the caller; the object also keeps itself alive while requests are under way, so the caller may drop it.
/// Threads: the worker thread only.
class PointReads final : public std::enable_shared_from_this<PointReads>, private rpc::ResponseHandler {
 public:
  /// kSameSession: the reads fail when their session ends, because the snapshot ends with it. kAnySession: they go on
  /// under the next session.
  enum class SessionPolicy : uint8_t { kSameSession, kAnySession };

  /// Reads of a transactional table in the snapshot of a transaction of `session` (kSameSession).
  PointReads(Engine& engine, std::shared_ptr<Session> session, Table table, std::shared_ptr<const Snapshot> snapshot);
  /// Reads of a non-transactional table.
  PointReads(Engine& engine, std::shared_ptr<Session> session, Table table, SessionPolicy policy);

  /// Sends the requests. Called once.
  void start(std::span<const Key> keys);
  /// True if every record has its result.
  bool done() const;
  /// Waits until every record has its result, or a limit of the fiber ends. Requests again the records that did not
  /// fit into a reply, and those whose failure may be over. In a fiber.
  void wait();
  /// Waits for the replies to the requests under way; wait() may have to repeat some of them. False: a limit of the
  /// fiber ended first. In a fiber.
  bool await_answers();
  /// Fails all records without a result with `status`, and ends a wait() of another fiber. Later replies are dropped.
  void cancel(const Status& status);
  /// Moves out the result of one record, by its index in the keys. After wait().
  Result<Record> take_result(size_t index);

 private:
  struct KeyRead {
    Key key;
    Status status;  // kOk: the row has arrived; if not done: the reason of the last failure
    Version version;
    Buffer row;
    bool done = false;
  };
  /// The slots of one message, by the token of its request.
  using Batch = std::vector<uint32_t>;

  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) override;

  /// True if no reply is outstanding.
  bool answered() const { return in_flight_ == 0 || cancelled_; }
  void send_pending();
  void send(NodeId node, Batch batch);
  void finish(uint32_t index, const wire::ReadResult& result);
  void fail(const Batch& batch, const Status& status);
  void fail(KeyRead& read, const Status& status);
  /// True if a new attempt may succeed.
  bool is_transient(StatusCode code) const;
  /// Waits before a new attempt. False: there must be no further attempt.
  bool prepare_retry();
  void on_batch_done();

  Engine& engine_;
  std::shared_ptr<Session> session_;
  const Table table_;
  const std::shared_ptr<const Snapshot> snapshot_;
  const SessionPolicy session_policy_;
  const size_t batch_limit_;
  std::vector<KeyRead> reads_;
  std::vector<Batch> batches_;
  uint32_t in_flight_ = 0;
  uint64_t deadline_ns_ = 0;
  uint32_t retries_ = 0;
  bool retrying_ = false;  // some reads need a new attempt
  bool cancelled_ = false;
  fiber::WaitPoint changed_;
  std::shared_ptr<PointReads> self_;
};

}  // namespace loam::client
