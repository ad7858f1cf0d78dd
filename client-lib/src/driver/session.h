// One session of the client with the cluster: the commit manager's side and the storage nodes'.
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
#include "common/rpc/channel.h"
#include "common/rpc/worker.h"

namespace loam::client {

/// A registration at the commit manager and the channels to storage nodes that speak in its name. When it ends, on
/// whatever side that is noticed first, all of it ends: what is open fails with the session's status. It never comes
/// back; the engine opens another one.
///
/// Owner: the engine, and whoever began something under it (transactions, snapshots, scans). The worker's thread only,
/// but for the destruction of an idle one.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  /// `on_end` is called once, when it ends; `on_overload` for every answer that is kOverloaded.
  struct Events {
    std::function<void(Session&)> on_end;
    std::function<void(uint64_t retry_after_ns)> on_overload;
  };
  Session(rpc::Worker& worker, CatalogCache& catalog, EngineCounters& counters, const ClientOptions& options,
          const std::string& manager_address, Events events);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  ManagerSession& manager() { return manager_; }
  SessionId id() const { return manager_.id(); }
  /// Ok while the session lives; kFenced when it has ended, kCancelled when the client was closed.
  const Status& status() const { return manager_.status(); }
  /// Somebody says that the session is fenced.
  void fenced(const Status& status) { manager_.end(status); }
  /// This session must not go on: recovery will finish what it has left (R2).
  void give_up(const Status& status) { manager_.give_up(status); }

  /// The channel to a node of the cached catalog. kUnavailable: no such node, or one that has lost its records; the
  /// session's end.
  Result<rpc::Channel*> node(NodeId id);
  /// The channel to the node that owns a record.
  Result<rpc::Channel*> owner(TableId table, Key key);

  /// Gives what was sent to the nodes to the network now.
  void flush();

  /// Each round, before and after the poll.
  void before_poll();
  void after_poll(uint64_t now_ns);
  uint64_t earliest_deadline_ns() const;
  /// It has ended and nothing of it is under way.
  bool idle() const;

 private:
  struct NodeChannel {
    Incarnation incarnation;
    std::unique_ptr<rpc::Channel> channel;
    uint64_t counted_resent = 0;
  };

  ManagerSession::Options manager_options(const std::string& address);
  std::unique_ptr<rpc::Channel> make_channel(const wire::NodeInfo& info);
  void on_error(const wire::Error& error);
  void ended();
  /// Ends the channels to incarnations that the catalog does not know any more, or that have lost their records.
  void check_nodes();
  void retire(NodeChannel& node, const Status& status);

  rpc::Worker& worker_;
  CatalogCache& catalog_;
  EngineCounters& counters_;
  const ClientOptions& options_;
  const Events events_;
  ManagerSession manager_;
  uint64_t counted_resent_ = 0;  // of the commit manager's channel
  std::map<NodeId, NodeChannel> nodes_;
  std::vector<std::unique_ptr<rpc::Channel>> retired_;  // of old incarnations, until nothing of theirs is under way
  std::shared_ptr<const wire::Catalog> checked_;        // what check_nodes() saw last
};

/// A read-only snapshot that is held until the object dies, on whatever thread.
class SnapshotLease {
 public:
  SnapshotLease(rpc::Worker& worker, std::shared_ptr<Session> session, BeginAnswer answer)
      : worker_(worker), session_(std::move(session)), answer_(std::move(answer)) {}
  ~SnapshotLease();
  SnapshotLease(const SnapshotLease&) = delete;
  SnapshotLease& operator=(const SnapshotLease&) = delete;

  const std::shared_ptr<const Snapshot>& snapshot() const { return answer_.snapshot; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const BeginAnswer& begun() const { return answer_; }

 private:
  rpc::Worker& worker_;
  std::shared_ptr<Session> session_;
  const BeginAnswer answer_;
};

}  // namespace loam::client
