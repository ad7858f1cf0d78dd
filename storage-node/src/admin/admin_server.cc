#include "storage-node/src/admin/admin_server.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <pthread.h>

#include "common/admin/grpc_server.h"
#include "loam/storage/admin.grpc.pb.h"

namespace loam::storage {
namespace {

void fill(const TableStatistics& from, admin::TableStatistics& to) {
  to.set_table(from.table);
  to.set_name(from.name);
  to.set_index_of(from.index_of);
  to.set_keys(from.keys);
  to.set_pages(from.pages);
  to.set_log_bytes(from.log_bytes);
  to.set_garbage_bytes(from.garbage_bytes);
  to.set_column_pages(from.column_pages);
  to.set_index_bytes(from.index_bytes);
  to.set_gets(from.gets);
  to.set_hops(from.hops);
  to.set_writes(from.writes);
  to.set_reverts(from.reverts);
  to.set_conflicts(from.conflicts);
  to.set_no_space(from.no_space);
}

void fill(const NodeStatistics& from, admin::StatisticsReply& to) {
  to.set_uptime_ns(from.uptime_ns);
  to.set_memory_limit_bytes(from.memory_limit_bytes);
  to.set_memory_used_bytes(from.memory_used_bytes);
  to.set_query_memory_limit_bytes(from.query_memory_limit_bytes);
  to.set_query_memory_used_bytes(from.query_memory_used_bytes);
  to.set_query_memory_refused(from.query_memory_refused);
  to.set_batches(from.batches);
  to.set_operations(from.operations);
  to.set_malformed(from.malformed);
  to.set_scans(from.scans);
  to.set_scan_pages(from.scan_pages);
  to.set_scan_records(from.scan_records);
  to.set_compacted_pages(from.compacted_pages);
  to.set_freed_pages(from.freed_pages);
  to.set_messages_in(from.messages_in);
  to.set_messages_out(from.messages_out);
  to.set_frames_in(from.frames_in);
  to.set_frames_out(from.frames_out);
  to.set_bytes_in(from.bytes_in);
  to.set_bytes_out(from.bytes_out);
  to.set_flushes(from.flushes);
  to.set_work_requests(from.work_requests);
  to.set_direct_writes(from.direct_writes);
  to.set_direct_bytes(from.direct_bytes);
  to.set_polls(from.polls);
  to.set_empty_polls(from.empty_polls);
  to.set_sessions(from.sessions);
  to.set_fenced(from.fenced);
  to.set_refused(from.refused);
  to.set_repeated(from.repeated);
  to.set_reconnects(from.reconnects);
  to.set_cluster(from.cluster);
  to.set_manager_epoch(from.manager_epoch);
  to.set_manager_refusal(from.manager_refusal);
  for (const TableStatistics& table : from.tables) fill(table, *to.add_tables());
}

class Service final : public admin::NodeAdmin::Service {
 public:
  Service(std::function<NodeStatistics()> statistics, std::function<NodeStatistics()> health)
      : statistics_(std::move(statistics)), health_(std::move(health)) {}

  grpc::Status Health(grpc::ServerContext*, const admin::HealthRequest*, admin::HealthReply* reply) override {
    const NodeStatistics statistics = health_();
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
    fill(statistics_(), *reply);
    return grpc::Status::OK;
  }

 private:
  const std::function<NodeStatistics()> statistics_;
  const std::function<NodeStatistics()> health_;
};

}  // namespace

struct AdminServer::Impl {
  Impl(std::function<NodeStatistics()> statistics, std::function<NodeStatistics()> health_of_node)
      : service(std::move(statistics), std::move(health_of_node)) {}
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
                                                        std::function<bool()> serving) {
  auto impl = std::make_unique<Impl>(std::move(statistics), std::move(health));
  LOAM_ASSIGN_OR_RETURN(impl->server, GrpcServer::start(address, impl->service));
  impl->health = std::thread([it = impl.get(), serving = std::move(serving)] { it->watch(serving); });
  pthread_setname_np(impl->health.native_handle(), "loam-health");
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->server->address(); }

}  // namespace loam::storage
