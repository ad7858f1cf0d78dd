// The handlers of ClusterAdmin, one for each call. A handler runs on a thread of gRPC. Its task runs on the server
// thread, which alone uses the core. convert.cc converts between their types.
#include "commit-manager/src/admin/admin_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "commit-manager/src/admin/convert.h"
#include "common/admin/grpc_server.h"
#include "common/admin/history.h"
#include "common/admin/latency.h"
#include "common/admin/metrics.h"
#include "common/wire/opcode.h"
#include "loam/commit/admin.grpc.pb.h"

namespace loam::commit {
namespace {

using namespace std::chrono_literals;

/// Interval at which a waiting handler checks whether its call was cancelled, by the caller or because the server
/// stops.
constexpr auto kCancelCheck = 20ms;

constexpr std::array kKindsInMetrics = {latency::OperationKind::kBegin, latency::OperationKind::kComplete,
                                        latency::OperationKind::kOther};
constexpr std::array kStagesInMetrics = {latency::Stage::kQueue, latency::Stage::kExecution, latency::Stage::kLog};

class Service final : public admin::ClusterAdmin::Service {
 public:
  explicit Service(AdminBackend backend)
      : backend_(std::move(backend)),
        recent_({{.name = "begins", .kinds = {latency::OperationKind::kBegin}},
                 {.name = "completions", .kinds = {latency::OperationKind::kComplete}}},
                [this] { return backend_.latencies(false); }) {
    history_.add<commit::Statistics>(
        {"begins", "commits", "aborts", "read_only_begins", "upgradable_begins", "open", "sessions"},
        [this] { return totals(); });
    // Behind the totals: if these cannot be read, the latencies are not read either, and belong to the next sample.
    history_.add(recent_.columns(), [this] { return recent_.sample(); });
    history_.start();
  }
  ~Service() override { stop(); }

  // A call that only reads copies the catalog or the counters on the server thread and converts the copy on its own
  // thread. So a large reply does not delay the leases and begins that the server thread serves.

  grpc::Status ListTables(grpc::ServerContext* context, const admin::ListTablesRequest* request,
                          admin::ListTablesReply* reply) override {
    const auto catalog = read_core<wire::Catalog>(context, [](const Core& core) { return core.catalog(); });
    if (!catalog.ok()) return to_grpc(catalog.status());
    fill(*catalog, request->with_system(), *reply);
    return grpc::Status::OK;
  }

  grpc::Status DescribeTable(grpc::ServerContext* context, const admin::DescribeTableRequest* request,
                             admin::Table* reply) override {
    const auto catalog = read_core<wire::Catalog>(context, [](const Core& core) { return core.catalog(); });
    if (!catalog.ok()) return to_grpc(catalog.status());
    return to_grpc(fill(*catalog, request->name(), *reply));
  }

  grpc::Status CreateTable(grpc::ServerContext* context, const admin::CreateTableRequest* request,
                           admin::CreateTableReply* reply) override {
    const auto create = from_proto(*request);
    if (!create.ok()) return to_grpc(create.status());
    // The task has a copy of the request, because it may run after this handler has timed out.
    const auto created = call_core<wire::CreateTableReply>(
        context, [table = create.value()](Core& core, auto done) { core.create_table(table, std::move(done)); });
    if (!created.ok()) return to_grpc(created.status());
    fill(created->table, *reply->mutable_table());
    reply->set_existed(created->existed);
    reply->set_catalog_version(created->catalog_version);
    return grpc::Status::OK;
  }

  grpc::Status DropTable(grpc::ServerContext* context, const admin::DropTableRequest* request,
                         admin::DropTableReply* reply) override {
    const auto dropped = call_core<wire::DropTableReply>(context, [name = request->name()](Core& core, auto done) {
      core.drop_table(wire::DropTable{name}, std::move(done));
    });
    if (!dropped.ok()) return to_grpc(dropped.status());
    reply->set_catalog_version(dropped->catalog_version);
    return grpc::Status::OK;
  }

  grpc::Status RenameTable(grpc::ServerContext* context, const admin::RenameTableRequest* request,
                           admin::RenameTableReply* reply) override {
    const wire::RenameTable rename{request->name(), request->new_name()};
    const auto renamed = call_core<wire::RenameTableReply>(
        context, [rename](Core& core, auto done) { core.rename_table(rename, std::move(done)); });
    if (!renamed.ok()) return to_grpc(renamed.status());
    reply->set_catalog_version(renamed->catalog_version);
    return grpc::Status::OK;
  }

  grpc::Status ListNodes(grpc::ServerContext* context, const admin::ListNodesRequest*,
                         admin::ListNodesReply* reply) override {
    const auto nodes = read_core<std::vector<NodeStatus>>(context, [](const Core& core) { return core.nodes(); });
    if (!nodes.ok()) return to_grpc(nodes.status());
    for (const NodeStatus& node : nodes.value()) fill(node, *reply->add_nodes());
    return grpc::Status::OK;
  }

  grpc::Status GetShardMap(grpc::ServerContext* context, const admin::GetShardMapRequest*,
                           admin::ShardMap* reply) override {
    const auto catalog = read_core<wire::Catalog>(context, [](const Core& core) { return core.catalog(); });
    if (!catalog.ok()) return to_grpc(catalog.status());
    fill(catalog->shards, *reply);
    return grpc::Status::OK;
  }

  grpc::Status AcceptLoss(grpc::ServerContext* context, const admin::AcceptLossRequest* request,
                          admin::AcceptLossReply*) override {
    const NodeId node(request->node());
    // Result needs a value; this one has no meaning.
    const auto accepted = call_core<std::monostate>(context, [node](Core& core, auto done) {
      core.accept_loss(node, [done = std::move(done)](const Status& status) {
        done(status.ok() ? Result<std::monostate>(std::monostate()) : Result<std::monostate>(status));
      });
    });
    return to_grpc(accepted.status());
  }

  grpc::Status ListSessions(grpc::ServerContext* context, const admin::ListSessionsRequest*,
                            admin::ListSessionsReply* reply) override {
    struct Open {
      std::vector<SessionStatus> sessions;
      std::vector<std::string> addresses;  // one for each session
    };
    const auto open = read_core<Open>(context, [this](const Core& core) {
      Open now{core.sessions(), {}};
      now.addresses = addresses_of(now.sessions);
      return now;
    });
    if (!open.ok()) return to_grpc(open.status());
    for (size_t i = 0; i < open->sessions.size(); ++i) {
      fill(open->sessions[i], open->addresses[i], *reply->add_sessions());
    }
    return grpc::Status::OK;
  }

  grpc::Status EndSession(grpc::ServerContext* context, const admin::EndSessionRequest* request,
                          admin::EndSessionReply*) override {
    const SessionId session(request->session());
    const auto ended = call_core<std::monostate>(context, [session](Core& core, const auto& done) {
      const Status status = core.end_session(session);
      done(status.ok() ? Result<std::monostate>(std::monostate()) : Result<std::monostate>(status));
    });
    return to_grpc(ended.status());
  }

  grpc::Status ListTransactions(grpc::ServerContext* context, const admin::ListTransactionsRequest* request,
                                admin::ListTransactionsReply* reply) override {
    struct Open {
      std::vector<TransactionStatus> oldest;
      std::vector<std::string> addresses;  // one for each transaction
      commit::Statistics statistics;
    };
    const size_t max = std::min<size_t>(request->max(), kMaxListedTransactions);
    const auto open = read_core<Open>(context, [this, max](const Core& core) {
      Open now{core.oldest_transactions(max), {}, core.statistics()};
      now.addresses = addresses_of(now.oldest);
      return now;
    });
    if (!open.ok()) return to_grpc(open.status());
    for (size_t i = 0; i < open->oldest.size(); ++i) {
      fill(open->oldest[i], open->addresses[i], *reply->add_transactions());
    }
    reply->set_open(open->statistics.open);
    reply->set_snapshots(open->statistics.read_only_snapshots + open->statistics.upgradable_snapshots);
    return grpc::Status::OK;
  }

  grpc::Status Health(grpc::ServerContext* context, const admin::HealthRequest*, admin::HealthReply* reply) override {
    struct Health {
      bool ready = false;
      commit::Statistics statistics;
      std::string address;
    };
    // One task reads all of them, so they describe one moment.
    const auto health = read_core<Health>(
        context, [this](const Core& core) { return Health{core.ready(), core.statistics(), backend_.address()}; });
    if (!health.ok()) return to_grpc(health.status());
    reply->set_ready(health->ready);
    reply->set_nodes_live(static_cast<uint32_t>(health->statistics.nodes_live));
    reply->set_nodes_dead(static_cast<uint32_t>(health->statistics.nodes_dead));
    reply->set_epoch(health->statistics.epoch);
    reply->set_restarting(health->statistics.restarting);
    reply->set_cluster(health->statistics.cluster);
    reply->set_not_serving(health->statistics.not_serving);
    reply->set_address(health->address);
    return grpc::Status::OK;
  }

  grpc::Status Statistics(grpc::ServerContext* context, const admin::StatisticsRequest*,
                          admin::StatisticsReply* reply) override {
    struct Numbers {
      ManagerStatistics statistics;
      std::vector<Orphan> orphans;
    };
    const auto numbers = read_core<Numbers>(
        context, [this](const Core& core) { return Numbers{backend_.statistics(core), core.orphans()}; });
    if (!numbers.ok()) return to_grpc(numbers.status());
    fill(numbers->statistics, *reply);
    // orphans() ascends, so the reply lists the oldest ones. These hold back garbage collection most.
    const size_t listed = std::min(numbers->orphans.size(), kMaxListedOrphans);
    for (size_t i = 0; i < listed; ++i) {
      admin::OrphanedTransaction& orphan = *reply->add_orphans();
      orphan.set_id(numbers->orphans[i].id.value);
      orphan.set_session(numbers->orphans[i].session.value);
    }
    return grpc::Status::OK;
  }

  grpc::Status SlowOperations(grpc::ServerContext*, const loam::admin::SlowOperationsRequest* request,
                              loam::admin::SlowOperationsReply* reply) override {
    fill_slow_operations(backend_.latencies(true), request->max(), *reply);
    return grpc::Status::OK;
  }

  grpc::Status History(grpc::ServerContext*, const loam::admin::HistoryRequest* request,
                       loam::admin::HistoryReply* reply) override {
    history_.fill(request->after_ms(), *reply);
    return grpc::Status::OK;
  }

  /// Ends all waits for the core, and the samples of the history.
  void stop() {
    stopping_.store(true, std::memory_order_relaxed);  // relaxed: readers only stop waiting
    history_.stop();
  }

  /// Returns where the status page reaches the administration of a storage node.
  Result<std::string> node_address(uint64_t id) {
    const auto nodes = read_core<std::vector<NodeStatus>>(nullptr, [](const Core& core) { return core.nodes(); });
    if (!nodes.ok()) return nodes.status();
    const auto node = std::ranges::find(*nodes, NodeId(id), [](const NodeStatus& one) { return one.info.id; });
    const std::string name = "storage node " + std::to_string(id);
    if (node == nodes->end()) return Status(StatusCode::kNotFound, "there is no " + name);
    if (node->info.state != wire::NodeState::kLive) return Status(StatusCode::kUnavailable, name + " is not live");
    if (node->info.admin_address.empty()) {
      return Status(StatusCode::kUnavailable, name + " runs without administration (its option --admin is empty)");
    }
    return node->info.admin_address;
  }

  /// The metrics of the commit manager. After a time-out they say only that the core does not answer.
  std::string metrics() {
    const auto numbers =
        read_core<ManagerStatistics>(nullptr, [this](const Core& core) { return backend_.statistics(core); });
    Metrics metrics;
    if (!numbers.ok()) return "# " + numbers.status().to_string() + "\n";
    metrics.add("loam_manager", numbers->core);
    metrics.add("loam_manager", *numbers);
    add_latencies(metrics, "loam_manager", backend_.latencies(false), kKindsInMetrics, kStagesInMetrics);
    metrics.add("loam_recovery", numbers->recovery);
    return metrics.text();
  }

 private:
  /// Returns the network address of the client of each element. Called from within a task.
  template <class Element>
  std::vector<std::string> addresses_of(const std::vector<Element>& elements) const {
    std::vector<std::string> addresses;
    addresses.reserve(elements.size());
    for (const Element& one : elements) addresses.push_back(backend_.peer_address(one.peer));
    return addresses;
  }

  /// Posts `start`, and waits until it has called its second argument, which it does once, at once or later.
  template <class T, class Start>
  Result<T> call_core(grpc::ServerContext* context, Start start) {
    // Shared with the callback of the core, which may come after this handler has timed out.
    const auto answer = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> future = answer->get_future();
    const bool posted = backend_.post([start = std::move(start), answer](Core& core) mutable {
      start(core, [answer](Result<T> result) { answer->set_value(std::move(result)); });
    });
    if (!posted) return Status(StatusCode::kUnavailable, "the commit manager is stopping");
    // The handler waits in short intervals, because gRPC wakes no synchronous handler whose call is cancelled. A
    // change that has started cannot be taken back: storage nodes may have executed it already. So the change
    // continues after the handler has stopped waiting. A handler that times out reports kUnknownOutcome; a handler
    // whose call was cancelled reports kCancelled.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(backend_.timeout_ns);
    while (future.wait_for(kCancelCheck) != std::future_status::ready) {
      // relaxed: nothing else is read with it
      if (stopping_.load(std::memory_order_relaxed)) {
        return Status(StatusCode::kUnavailable, "the commit manager is stopping");
      }
      if (context != nullptr && context->IsCancelled())
        return Status(StatusCode::kCancelled, "the call was cancelled; a change that has started continues");
      if (std::chrono::steady_clock::now() > deadline) {
        return Status(StatusCode::kUnknownOutcome,
                      "storage nodes have not answered yet; the change continues, ask again for its outcome");
      }
    }
    try {
      return future.get();
    } catch (const std::future_error&) {  // the task was dropped
      return Status(StatusCode::kUnavailable, "the commit manager is stopping");
    }
  }

  /// Posts a task that reads the core, and waits for its result.
  template <class T, class Look>
  Result<T> read_core(grpc::ServerContext* context, Look look) {
    return call_core<T>(context, [look = std::move(look)](Core& core, const auto& done) { done(look(core)); });
  }

  std::optional<commit::Statistics> totals() {
    auto numbers = read_core<commit::Statistics>(nullptr, [](const Core& core) { return core.statistics(); });
    return numbers.ok() ? std::optional(std::move(*numbers)) : std::nullopt;
  }

  const AdminBackend backend_;
  std::atomic<bool> stopping_{false};  // written by stop(); waiting handlers read it
  RecentLatencies recent_;
  loam::History history_;  // its thread uses the members above
};

}  // namespace

struct AdminServer::Impl {
  explicit Impl(AdminBackend backend) : service(std::move(backend)) {}

  // The server is destroyed first, because its handlers use the service.
  Service service;
  std::unique_ptr<GrpcServer> server;
};

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address, AdminBackend backend) {
  if (!backend.token_file.empty()) LOAM_RETURN_IF_ERROR(read_token(backend.token_file).status());
  ApiOptions api{.service = std::string(admin::ClusterAdmin::service_full_name()), .token_file = backend.token_file};
  auto impl = std::make_unique<Impl>(std::move(backend));
  api.node_address = [it = impl.get()](uint64_t node) { return it->service.node_address(node); };
  LOAM_ASSIGN_OR_RETURN(impl->server, GrpcServer::start(address, impl->service,
                                                        {.metrics = [it = impl.get()] { return it->service.metrics(); },
                                                         .protocol_version = wire::kProtocolVersion,
                                                         .api = std::move(api)}));
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

void AdminServer::set_serving(bool serving) { impl_->server->set_serving(serving); }
void AdminServer::stop() {
  impl_->service.stop();
  impl_->server->stop();
}
const std::string& AdminServer::address() const { return impl_->server->address(); }

}  // namespace loam::commit
