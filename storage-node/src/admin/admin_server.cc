// The gRPC service of a storage node, and the thread that updates the standard health service. admin_server_sim.cc
// replaces this file in the simulator.
#include "storage-node/src/admin/admin_server.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <pthread.h>

#include "common/admin/grpc_server.h"
#include "common/admin/history.h"
#include "common/admin/latency.h"
#include "common/admin/statistics.h"
#include "common/base/log.h"
#include "common/wire/opcode.h"
#include "loam/storage/admin.grpc.pb.h"
#include "storage-node/src/admin/node_metrics.h"

namespace loam::storage {
namespace {

admin::QueryState state_of(QueryStatus::State state) {
  switch (state) {
    case QueryStatus::State::kQueued:
      return admin::QUEUED;
    case QueryStatus::State::kReading:
      return admin::READING;
    case QueryStatus::State::kWaitingForClient:
      return admin::WAITING_FOR_CLIENT;
    case QueryStatus::State::kWaitingForMemory:
      return admin::WAITING_FOR_MEMORY;
  }
  return admin::QUERY_STATE_UNSPECIFIED;
}

void fill(const QueryStatus& from, admin::Query& to) {
  to.set_id(from.id.to_string());
  to.set_session(from.id.session.value);
  to.set_address(from.address);
  to.set_table(from.table);
  to.set_snapshot(from.snapshot.value);
  to.set_age_ns(from.age_ns);
  to.set_state(state_of(from.state));
  to.set_waiting_ns(from.waiting_ns);
  to.set_pages(from.pages_total);
  to.set_pages_done(from.pages_total - from.pages_left);
  to.set_records(from.records);
  to.set_rows(from.rows);
  to.set_chunks(from.chunks);
  to.set_unread_chunks(from.unread_chunks);
}

class Service final : public admin::NodeAdmin::Service {
 public:
  explicit Service(AdminBackend backend)
      : backend_(std::move(backend)),
        recent_({{.name = "reads", .kinds = {latency::OperationKind::kRead, latency::OperationKind::kPlainRead}},
                 {.name = "writes", .kinds = {latency::OperationKind::kWrite, latency::OperationKind::kPlainWrite}}},
                [this] { return backend_.latencies(false); }) {
    history_.add<NodeStatistics>({"operations", "appends", "scan_records", "memory_used_bytes",
                                  "query_memory_used_bytes", "bytes_in", "bytes_out"},
                                 [this] { return backend_.statistics(false); });
    history_.add(recent_.columns(), [this] { return recent_.sample(); });
    history_.start();
  }

  grpc::Status Health(grpc::ServerContext*, const admin::HealthRequest*, admin::HealthReply* reply) override {
    const NodeStatistics statistics = backend_.health();
    // A storage node whose records are lost holds a lease and still refuses requests (R10).
    reply->set_in_service(statistics.node != 0 && statistics.lease_holds && !statistics.memory_lost);
    reply->set_node(statistics.node);
    reply->set_incarnation(statistics.incarnation);
    reply->set_connected(statistics.connected);
    reply->set_lease_holds(statistics.lease_holds);
    reply->set_memory_lost(statistics.memory_lost);
    reply->set_cluster(statistics.cluster);
    reply->set_manager_refusal(statistics.manager_refusal);
    return grpc::Status::OK;
  }
  grpc::Status History(grpc::ServerContext*, const loam::admin::HistoryRequest* request,
                       loam::admin::HistoryReply* reply) override {
    history_.fill(request->after_ms(), *reply);
    return grpc::Status::OK;
  }
  grpc::Status Statistics(grpc::ServerContext*, const admin::StatisticsRequest* request,
                          admin::StatisticsReply* reply) override {
    const NodeStatistics statistics = backend_.statistics(!request->without_tables());
    add_statistics(statistics, *reply->mutable_statistics());
    fill_table(statistics.tables, *reply->mutable_tables());
    return grpc::Status::OK;
  }

  grpc::Status SlowOperations(grpc::ServerContext*, const loam::admin::SlowOperationsRequest* request,
                              loam::admin::SlowOperationsReply* reply) override {
    fill_slow_operations(backend_.latencies(true), request->max(), *reply);
    return grpc::Status::OK;
  }
  grpc::Status ListQueries(grpc::ServerContext*, const admin::ListQueriesRequest*,
                           admin::ListQueriesReply* reply) override {
    for (const QueryStatus& query : backend_.queries()) fill(query, *reply->add_queries());
    return grpc::Status::OK;
  }
  grpc::Status CancelQuery(grpc::ServerContext*, const admin::CancelQueryRequest* request,
                           admin::CancelQueryReply* reply) override {
    const auto id = QueryId::parse(request->id());
    if (!id.ok()) return to_grpc(id.status());
    reply->set_ended(backend_.cancel_query(*id));
    if (reply->ended() == 0) return {grpc::StatusCode::NOT_FOUND, "no query " + request->id() + " runs here"};
    log_info("query.ended", "query " + request->id() + " was ended by an operator", {{"query", request->id()}});
    return grpc::Status::OK;
  }

  std::string metrics() const { return metrics_of(backend_.statistics(true), backend_.latencies(false)); }
  bool serving() const { return backend_.serving(); }

 private:
  const AdminBackend backend_;
  RecentLatencies recent_;
  loam::History history_;  // its thread uses the members above
};

}  // namespace

struct AdminServer::Impl {
  explicit Impl(AdminBackend backend) : service(std::move(backend)) {}
  // The thread uses the server, so it ends before the members are destroyed.
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_one();
    if (health.joinable()) health.join();
  }

  void watch() {
    std::unique_lock lock(mutex);
    // Each time-out of the wait is one check. The wait returns true when the server stops.
    while (!changed.wait_for(lock, kHealthCheck, [this] { return stopping; })) server->set_serving(service.serving());
  }

  Service service;
  std::unique_ptr<GrpcServer> server;

  std::mutex mutex;  // guards stopping
  std::condition_variable changed;
  bool stopping = false;
  std::thread health;
};

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address, AdminBackend backend) {
  auto impl = std::make_unique<Impl>(std::move(backend));
  LOAM_ASSIGN_OR_RETURN(impl->server, GrpcServer::start(address, impl->service,
                                                        {.metrics = [it = impl.get()] { return it->service.metrics(); },
                                                         .protocol_version = wire::kProtocolVersion,
                                                         .api = {.service = admin::NodeAdmin::service_full_name()}}));
  impl->health = std::thread([it = impl.get()] { it->watch(); });
  pthread_setname_np(impl->health.native_handle(), "loam-health");
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->server->address(); }

}  // namespace loam::storage
