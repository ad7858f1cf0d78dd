// The gRPC service of a storage node, and the thread that updates the standard health service. admin_server_sim.cc
// replaces this file in the simulator.
#include "storage-node/src/admin/admin_server.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <pthread.h>

#include "common/admin/grpc_server.h"
#include "common/admin/latency.h"
#include "common/admin/statistics.h"
#include "common/wire/opcode.h"
#include "loam/storage/admin.grpc.pb.h"
#include "storage-node/src/admin/node_metrics.h"

namespace loam::storage {
namespace {

class Service final : public admin::NodeAdmin::Service {
 public:
  Service(std::function<NodeStatistics()> statistics, std::function<NodeStatistics()> health,
          std::function<latency::Latencies()> latencies)
      : statistics_(std::move(statistics)), health_(std::move(health)), latencies_(std::move(latencies)) {}

  grpc::Status Health(grpc::ServerContext*, const admin::HealthRequest*, admin::HealthReply* reply) override {
    const NodeStatistics statistics = health_();
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
  grpc::Status Statistics(grpc::ServerContext*, const admin::StatisticsRequest*,
                          admin::StatisticsReply* reply) override {
    const NodeStatistics statistics = statistics_();
    add_statistics(statistics, *reply->mutable_statistics());
    fill_table(statistics.tables, *reply->mutable_tables());
    return grpc::Status::OK;
  }

  grpc::Status SlowOperations(grpc::ServerContext*, const loam::admin::SlowOperationsRequest* request,
                              loam::admin::SlowOperationsReply* reply) override {
    fill_slow_operations(latencies_(), request->max(), *reply);
    return grpc::Status::OK;
  }

  std::string metrics() const { return metrics_of(statistics_(), latencies_()); }

 private:
  const std::function<NodeStatistics()> statistics_;
  const std::function<NodeStatistics()> health_;
  const std::function<latency::Latencies()> latencies_;
};

}  // namespace

struct AdminServer::Impl {
  Impl(std::function<NodeStatistics()> statistics, std::function<NodeStatistics()> health_of_node,
       std::function<latency::Latencies()> latencies)
      : service(std::move(statistics), std::move(health_of_node), std::move(latencies)) {}
  // The thread uses the server, so it ends before the members are destroyed.
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_one();
    if (health.joinable()) health.join();
  }

  void watch(const std::function<bool()>& serving) {
    std::unique_lock lock(mutex);
    // Each time-out of the wait is one check. The wait returns true when the server stops.
    while (!changed.wait_for(lock, kHealthCheck, [this] { return stopping; })) server->set_serving(serving());
  }

  Service service;
  std::unique_ptr<GrpcServer> server;

  std::mutex mutex;  // guards stopping
  std::condition_variable changed;
  bool stopping = false;
  std::thread health;
};

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address,
                                                        std::function<NodeStatistics()> statistics,
                                                        std::function<NodeStatistics()> health,
                                                        std::function<latency::Latencies()> latencies,
                                                        std::function<bool()> serving) {
  auto impl = std::make_unique<Impl>(std::move(statistics), std::move(health), std::move(latencies));
  LOAM_ASSIGN_OR_RETURN(impl->server, GrpcServer::start(address, impl->service,
                                                        {.metrics = [it = impl.get()] { return it->service.metrics(); },
                                                         .protocol_version = wire::kProtocolVersion}));
  impl->health = std::thread([it = impl.get(), serving = std::move(serving)] { it->watch(serving); });
  pthread_setname_np(impl->health.native_handle(), "loam-health");
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->server->address(); }

}  // namespace loam::storage
