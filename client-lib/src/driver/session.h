// Session: one session of the client, with its channels to the commit manager and the storage nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <loam/client/options.h>

#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/driver/counters.h"
#include "client-lib/src/driver/manager_session.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/latency/request_timer.h"
#include "common/rpc/channel.h"
#include "common/rpc/worker.h"

namespace loam::client {

/// A registration at the commit manager, with the channels to the storage nodes that use it. When any server reports
/// that the session has ended, all its channels end, and open requests fail with the session's status. An ended
/// session never opens again. The engine opens another session.
///
/// Owner: shared by the engine and the transactions, snapshots and scans that began under it. Threads: the worker
/// thread only, except for the destruction of an idle session.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  /// The session calls `on_end` once, when it ends, and `on_overload` for every reply that is kOverloaded.
  struct Events {
    std::function<void(Session&)> on_end;
    std::function<void(uint64_t retry_after_ns)> on_overload;
  };
  Session(rpc::Worker& worker, CatalogCache& catalog, EngineCounters& counters, const ClientOptions& options,
          const std::string& manager_address, latency::RequestTimer& timer, Events events);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  ManagerSession& manager() { return manager_; }
  SessionId id() const { return manager_.id(); }
  /// Ok while the session lives; kFenced when it has ended, kCancelled when the client was closed.
  const Status& status() const { return manager_.status(); }
  /// A server has said that the session is fenced.
  void on_fenced(const Status& status) { manager_.end(status); }
  /// Gives the session up: recovery undoes its open transactions (R2, abort order).
  void give_up(const Status& status) { manager_.give_up(status); }

  /// The channel to a storage node of the cached catalog. kUnavailable: there is no such node, or it has lost its
  /// records; the status of the session's end.
  Result<rpc::Channel*> node(NodeId id);
  /// The channel to the storage node that owns a record.
  Result<rpc::Channel*> owner(TableId table, Key key);

  /// Passes the requests to the storage nodes to the network now.
  void flush();

  /// Called in each round of the worker, before and after the poll.
  void before_poll();
  void after_poll(uint64_t now_ns);
  /// The earliest deadline of a request under way.
  uint64_t earliest_deadline_ns() const;
  /// True if the session has ended and no request is under way.
  bool idle() const;

 private:
  /// The channel to a storage node, and what remains of its former channels. A node can lose and regain its channel
  /// within one incarnation: its loss is accepted, or it was not at its address for a while. Therefore the entry stays
  /// as long as the session, and the sequences never begin anew (R3, idempotent requests within a session).
  struct NodeChannel {
    Incarnation incarnation;
    std::unique_ptr<rpc::Channel> channel;  // null: none is needed at present
    uint64_t counted_resent = 0;            // repetitions of `channel` that are counted
    uint64_t next_sequence = 1;             // first sequence of the next channel
  };

  ManagerSession::Options manager_options(const std::string& address);
  std::unique_ptr<rpc::Channel> make_channel(const wire::NodeInfo& info, uint64_t first_sequence);
  void on_error(const wire::Error& error);
  void ended();
  /// Ends the channels to incarnations that the catalog no longer has, or that have lost their records (R10, cluster
  /// identity and incarnations).
  void check_nodes();
  /// Closes the channel of a node, if there is one. The next request to the node makes another.
  void retire(NodeChannel& node, const Status& status);
  /// Counts the repetitions of requests since the last call.
  void count_resent(NodeChannel& node);

  rpc::Worker& worker_;
  CatalogCache& catalog_;
  EngineCounters& counters_;
  const ClientOptions& options_;
  latency::RequestTimer& timer_;
  const Events events_;
  ManagerSession manager_;
  uint64_t counted_resent_ = 0;  // repetitions of the commit manager's channel
  std::map<NodeId, NodeChannel> nodes_;
  std::vector<std::unique_ptr<rpc::Channel>> retired_;  // closed channels, until no request of theirs is under way
  std::shared_ptr<const wire::Catalog> checked_;        // the catalog that check_nodes() has checked
};

/// Holds a registered snapshot open until the object is destroyed. Any thread may destroy it.
class RegisteredSnapshot {
 public:
  RegisteredSnapshot(rpc::Worker& worker, std::shared_ptr<Session> session, BeginResult answer)
      : worker_(worker), session_(std::move(session)), answer_(std::move(answer)) {}
  ~RegisteredSnapshot();
  RegisteredSnapshot(const RegisteredSnapshot&) = delete;
  RegisteredSnapshot& operator=(const RegisteredSnapshot&) = delete;

  const std::shared_ptr<const Snapshot>& snapshot() const { return answer_.snapshot; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const BeginResult& begin_result() const { return answer_; }

 private:
  rpc::Worker& worker_;
  std::shared_ptr<Session> session_;
  const BeginResult answer_;
};

}  // namespace loam::client
