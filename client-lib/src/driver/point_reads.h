// Reads of records by key, of both kinds of tables.
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

/// Some records of one table, read at once: one message to each node that owns some of them (more where one would be
/// too large). Held by who asks, and by itself while requests are under way, so that it may be dropped. Worker's thread
/// only. Reads have no effects: where a node does not answer, or not for these records any more, they are asked for
/// again until the deadline, where the catalog says then; with UnderSession::kAny also under the client's next session.
class PointReads final : public std::enable_shared_from_this<PointReads>, private rpc::Caller {
 public:
  /// kOne: whoever asks holds a snapshot, which ends with its session; what is read later is not what it held.
  enum class UnderSession : uint8_t { kOne, kAny };

  /// With a snapshot (of a transaction of `session`, kOne) for a transactional table.
  PointReads(Engine& engine, std::shared_ptr<Session> session, Table table, std::shared_ptr<const Snapshot> snapshot);
  /// For the other kind.
  PointReads(Engine& engine, std::shared_ptr<Session> session, Table table, UnderSession under);

  /// Sends. Once.
  void start(std::span<const Key> keys);
  bool done() const;
  /// In a fiber: until all answers are in, or a limit of the fiber ends. Asks again for what did not fit into a node's
  /// answer, or may be answered now.
  void wait();
  /// In a fiber: until the requests under way are answered; false if a limit of the fiber ends before. wait() may still
  /// have to ask again.
  bool await_answers();
  /// Ends the records without an answer with `status`, and a wait() of another fiber; later answers are dropped.
  void give_up(const Status& status);
  /// After wait().
  Result<Record> take(size_t index);

 private:
  struct Slot {
    Key key;
    Status status;  // kOk: the row is there; not settled: why it was not answered
    Version version;
    Buffer row;
    bool settled = false;
  };
  /// The slots of one message, by the token of its request.
  using Batch = std::vector<uint32_t>;

  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::Executed executed) override;

  /// No answer is waited for.
  bool answered() const { return open_ == 0 || given_up_; }
  void send_unsettled();
  void send(NodeId node, Batch batch);
  void settle(uint32_t index, const wire::ReadResult& result);
  void fail(const Batch& batch, const Status& status);
  void fail(Slot& slot, const Status& status);
  /// A new attempt may succeed.
  bool passing(StatusCode code) const;
  /// Before a new attempt; false if there is to be none.
  bool prepare_retry();
  void ended();

  Engine& engine_;
  std::shared_ptr<Session> session_;
  const Table table_;
  const std::shared_ptr<const Snapshot> snapshot_;
  const UnderSession under_;
  const size_t batch_limit_;
  std::vector<Slot> slots_;
  std::vector<Batch> batches_;
  uint32_t open_ = 0;
  uint64_t deadline_ns_ = 0;
  uint32_t retries_ = 0;
  bool retrying_ = false;  // an answer was worth a new attempt
  bool given_up_ = false;
  fiber::WaitPoint changed_;
  std::shared_ptr<PointReads> self_;
};

}  // namespace loam::client
