// The storage node as one object: check of the options, construction of the parts, statistics, and shutdown.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include <loam/storage/node.h>

#include "common/base/env.h"
#include "common/base/log.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/net/make_transport.h"
#include "common/net/transport/transport.h"
#include "storage-node/src/admin/admin_server.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/intents.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/session_table.h"
#include "storage-node/src/scan/query_memory.h"
#include "storage-node/src/server/background_thread.h"
#include "storage-node/src/server/compaction_share.h"
#include "storage-node/src/server/control_thread.h"
#include "storage-node/src/server/cores.h"
#include "storage-node/src/server/network_thread.h"
#include "storage-node/src/server/scan_service.h"
#include "storage-node/src/server/table_statistics.h"

namespace loam::storage {
namespace {

constexpr unsigned kMaxNetworkThreads = 64;
constexpr unsigned kMaxScanThreads = 64;
/// Number of epoch slots besides those of network and scan threads: the background thread has two, one of them for its
/// MemoryReporter, the control thread has one, and the callers of statistics share one (TableStatisticsReader).
constexpr size_t kOwnEpochThreads = 4;
/// The lowest priority of Linux.
constexpr unsigned kMaxNice = 19;
/// Upper bound on --spin. A longer spin only takes a core from other threads; --never-sleep exists for that.
constexpr uint64_t kMaxSpinNs = 1'000'000'000;
/// Time within which scan threads report their queries to operators. A step takes microseconds.
constexpr uint64_t kQueryReportWithinNs = 1'000'000'000;
constexpr uint64_t kMinStallLimitNs = 10'000'000;  // the interval at which scan threads check queries that wait
constexpr uint64_t kMaxStallLimitNs = 3'600'000'000'000;
/// Default of --intent-memory: memory / kIntentMemoryPart, and at least this. 16 MiB hold 700,000 writes of open
/// transactions.
constexpr uint64_t kMinIntentMemoryBytes = uint64_t{16} << 20;
constexpr uint64_t kIntentMemoryPart = 32;

Status out_of_range(const std::string& option, const std::string& range) {
  return {StatusCode::kInvalidArgument, "option " + option + " must be " + range};
}

std::optional<ColumnPolicy> policy_of(const std::string& columns) {
  if (columns == "never") return ColumnPolicy::kNever;
  if (columns == "scanned") return ColumnPolicy::kScanned;
  if (columns == "always") return ColumnPolicy::kAlways;
  return std::nullopt;
}

}  // namespace

Status NodeOptions::check() const {
  LOAM_RETURN_IF_ERROR(net::Address::parse(listen).status());
  if (!advertise.empty()) LOAM_RETURN_IF_ERROR(net::Address::parse(advertise).status());
  LOAM_RETURN_IF_ERROR(net::Address::parse(manager).status());
  if (spin_ns > kMaxSpinNs) return out_of_range("spin", "0 to 1 s");
  if (network_threads == 0 || network_threads > kMaxNetworkThreads) {
    return out_of_range("network-threads", "1 to " + std::to_string(kMaxNetworkThreads));
  }
  LOAM_RETURN_IF_ERROR(parse_cores(network_cores).status());
  if (batch_group == 0 || batch_group > ExecuteOptions::kMaxGroup) {
    return out_of_range("batch-group", "1 to " + std::to_string(ExecuteOptions::kMaxGroup));
  }
  if (scan_threads == 0 || scan_threads > kMaxScanThreads) {
    return out_of_range("scan-threads", "1 to " + std::to_string(kMaxScanThreads));
  }
  if (!std::has_single_bit(page_bytes) || page_bytes < PagePool::kMinPageBytes ||
      page_bytes > PagePool::kMaxPageBytes) {
    return out_of_range("page", "a power of two from 4 KiB to 1 GiB");
  }
  if (!policy_of(columns)) return out_of_range("columns", "never, scanned or always");
  if (column_rows == 0) return out_of_range("column-rows", "at least 1");
  if (!(compact_dead_share > 0 && compact_dead_share < 1)) return out_of_range("compact-dead-share", "between 0 and 1");
  if (!(compact_core_share >= 0 && compact_core_share < 1)) {
    return out_of_range("compact-core-share", "0 (never) or more, and below 1");
  }
  if (!(compact_watermark > 0 && compact_watermark < 1)) return out_of_range("compact-watermark", "between 0 and 1");
  if (background_nice > kMaxNice) return out_of_range("background-nice", "0 to " + std::to_string(kMaxNice));
  if (scan_nice > kMaxNice) return out_of_range("scan-nice", "0 to " + std::to_string(kMaxNice));
  if (!(query_memory_share > 0 && query_memory_share < 1)) return out_of_range("query-memory-share", "between 0 and 1");
  if (max_queries == 0) return out_of_range("max-queries", "at least 1");
  if (scan_stall_limit_ns < kMinStallLimitNs || scan_stall_limit_ns > kMaxStallLimitNs) {
    return out_of_range("scan-stall-limit", "10 ms to 1 h");
  }
  return ok_status();
}

/// The parts of a storage node. Each member depends only on members before it; stop() and the destructor end them in
/// reverse order. The caller has checked the options.
struct StorageNode::Impl {
  Impl(const NodeOptions& o, std::function<void(const Status&)> ended)
      : options(o),
        on_replaced(std::move(ended)),
        started_ns(Env::now_ns()),
        query_memory(static_cast<uint64_t>(static_cast<double>(o.memory_bytes) * o.query_memory_share)),
        intent_pool(o.intent_memory_bytes != 0 ? o.intent_memory_bytes
                                               : std::max(o.memory_bytes / kIntentMemoryPart, kMinIntentMemoryBytes)),
        epochs(size_t{o.network_threads} + o.scan_threads + kOwnEpochThreads) {}
  ~Impl() { stop(); }

  Status start();
  Status start_network();
  void stop();
  NodeStatistics statistics(bool with_tables = true);
  NodeStatistics health() const;
  latency::Latencies latencies(bool with_slow) const;
  std::string check_invariants();

  const NodeOptions options;
  const std::function<void(const Status&)> on_replaced;
  const uint64_t started_ns;
  QueryMemory query_memory;
  IntentPool intent_pool;
  std::unique_ptr<PagePool> pool;
  EpochDomain epochs;
  std::unique_ptr<Compactor> compactor;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<TableStatisticsReader> tables;
  std::unique_ptr<SessionTable> sessions;
  std::unique_ptr<CompactionShare> share;
  std::vector<std::unique_ptr<NetworkThread>> network;
  std::unique_ptr<ScanService> scans;
  std::unique_ptr<BackgroundThread> background;
  std::unique_ptr<ControlThread> control;
  std::unique_ptr<AdminServer> admin;
  net::Listener* listener = nullptr;
  std::string address;
  std::string admin_address;
};

Status StorageNode::Impl::start() {
  // Phase 1: memory. Queries have a part of --memory of their own, so they cannot fill the pool of the records.
  PagePoolOptions pool_options;
  pool_options.limit_bytes = options.memory_bytes - query_memory.limit_bytes();
  pool_options.page_size_bytes = options.page_bytes;
  pool_options.huge_pages = options.huge_pages;
  pool_options.prefault = !Env::kSimulated;  // a simulation has many storage nodes with short lives
  auto created = PagePool::create(pool_options);
  if (!created.ok()) {
    return {created.code(), std::string(created.status().message()) + " (--memory has " +
                                std::to_string(options.memory_bytes) + " bytes; --query-memory-share reserves " +
                                std::to_string(query_memory.limit_bytes()) + " of them for queries)"};
  }
  pool = std::move(created).value();
  CompactorOptions compactor_options;
  compactor_options.dead_share = options.compact_dead_share;
  compactor_options.columns = *policy_of(options.columns);
  compactor_options.min_column_rows = options.column_rows;
  compactor = std::make_unique<Compactor>(compactor_options, *pool, epochs);
  // Phase 2: the state that threads share. Network threads have the writer numbers from 0 on, the background thread
  // has the next one.
  const size_t background_writer = options.network_threads;
  registry = std::make_unique<Registry>(epochs, *pool, *compactor, Registry::Options{background_writer + 1, {}});
  tables = std::make_unique<TableStatisticsReader>(*registry, epochs, "statistics");
  sessions = std::make_unique<SessionTable>(intent_pool, [this](PeerId peer, Status status) {
    // The id of a peer names its network thread (NetworkThread::on_connected()).
    network[peer % network.size()]->post({.peer = peer, .close = std::move(status)});
  });
  share = std::make_unique<CompactionShare>(
      CompactionShare::Options{.share = options.compact_core_share, .watermark = options.compact_watermark});
  // Phase 3: threads. The control thread comes last, because requests are served as soon as it has registered the
  // node.
  LOAM_RETURN_IF_ERROR(start_network());
  background = std::make_unique<BackgroundThread>(
      *registry, *compactor, *pool, epochs, *share,
      BackgroundThread::Options{.writer = background_writer, .nice = static_cast<int>(options.background_nice)});
  background->run();
  control = std::make_unique<ControlThread>(*registry, *sessions, epochs, on_replaced);
  if (!options.admin_listen.empty()) {
    AdminBackend backend;
    backend.statistics = [this](bool with_tables) { return statistics(with_tables); };
    backend.health = [this] { return health(); };
    backend.latencies = [this](bool with_slow) { return latencies(with_slow); };
    backend.serving = [this] { return registry->in_service() && registry->lease_holds(Env::now_ns()); };
    backend.queries = [this] { return scans->queries(kQueryReportWithinNs); };
    backend.cancel_query = [this](const QueryId& id) {
      return scans->cancel(id, {StatusCode::kCancelled, "cancelled by an operator (loam query cancel)"});
    };
    LOAM_ASSIGN_OR_RETURN(admin, AdminServer::start(options.admin_listen, std::move(backend)));
    admin_address = admin->address();
  }
  return control->start(net::Address::parse(options.manager).value(),
                        {options.advertise.empty() ? address : options.advertise, admin_address, pool->limit_bytes()},
                        options.register_timeout_ns);
}

// The storage node listens before it registers, because the registration names its address. Until it is registered it
// answers kUnavailable.
Status StorageNode::Impl::start_network() {
  LOAM_ASSIGN_OR_RETURN(const net::Address wanted, net::Address::parse(options.listen));
  net::TransportOptions transport_options;
  transport_options.spin_ns = options.never_sleep ? net::kForever : options.spin_ns;
  LOAM_ASSIGN_OR_RETURN(const std::vector<unsigned> cores, parse_cores(options.network_cores));
  // All network threads share one listener, which distributes the connections among them in turn.
  std::vector<net::Transport::AcceptTarget> targets;
  std::vector<Outbox*> outboxes;
  for (size_t i = 0; i < options.network_threads; ++i) {
    LOAM_ASSIGN_OR_RETURN(auto transport, net::make_transport(wanted.scheme, transport_options));
    network.push_back(std::make_unique<NetworkThread>(i, options.network_threads, std::move(transport), *registry,
                                                      *sessions, epochs, *pool, *share,
                                                      ExecuteOptions{options.batch_group, options.batch_prefetch}));
    targets.push_back({&network.back()->transport(), network.back().get()});
    outboxes.push_back(network.back().get());
  }
  LOAM_ASSIGN_OR_RETURN(listener, network.front()->transport().listen(wanted, targets));
  address = listener->address().to_string();
  scans = std::make_unique<ScanService>(*registry, epochs, *pool, std::move(outboxes),
                                        ScanService::Options{.threads = options.scan_threads,
                                                             .max_queries = options.max_queries,
                                                             .stall_limit_ns = options.scan_stall_limit_ns,
                                                             .memory = &query_memory,
                                                             .nice = static_cast<int>(options.scan_nice)});
  // Network threads start last, because a request may start a scan.
  scans->run();
  for (size_t i = 0; i < network.size(); ++i) {
    network[i]->set_scans(*scans, *scans);
    network[i]->run(cores.empty() ? std::nullopt : std::optional(cores[i % cores.size()]));
  }
  return ok_status();
}

// The order matters. Requests are refused first. Then the scans end, so that their last messages are in the outboxes
// before the network threads drain them. The background thread ends last; it frees memory for the others.
void StorageNode::Impl::stop() {
  admin.reset();
  if (registry) registry->leave_service();
  if (control) control->stop();
  if (scans && !scans->end_all({StatusCode::kUnavailable, "the storage node is stopping"}, kDrainNs)) {
    log_warning("scan.not_ended", "some scans had not ended in time when the storage node stopped");
  }
  for (auto& thread : network) thread->stop();
  if (scans) scans->stop();
  if (background) background->stop();
}

// Returns identity and state of service. It enters no epoch and reads no table, so it never waits for statistics().
NodeStatistics StorageNode::Impl::health() const {
  NodeStatistics s;
  s.node = registry->self().value;
  s.incarnation = registry->incarnation().value;
  s.lease_holds = registry->lease_holds(Env::now_ns());
  s.memory_lost = registry->memory_lost();
  if (control == nullptr) return s;
  s.connected = control->connected();
  const wire::HistoryPoint known = control->known();
  if (known.cluster) s.cluster = wire::to_string(known.cluster);
  s.manager_epoch = known.epoch;
  s.manager_refusal = control->refusal();
  return s;
}

NodeStatistics StorageNode::Impl::statistics(bool with_tables) {
  NodeStatistics s = health();
  s.sessions = sessions->size();
  s.reconnects = control != nullptr ? control->reconnects() : 0;
  s.uptime_ns = Env::now_ns() - started_ns;
  const PagePoolStatistics memory = pool->statistics();
  s.memory_limit_bytes = memory.limit_bytes;
  s.memory_write_limit_bytes = memory.write_limit_bytes;
  s.memory_used_bytes = memory.used_bytes;
  s.query_memory_limit_bytes = query_memory.limit_bytes();
  s.query_memory_used_bytes = query_memory.used_bytes();
  s.query_memory_refused = query_memory.refused();
  s.intent_memory_limit_bytes = intent_pool.limit_bytes();
  s.intent_memory_used_bytes = intent_pool.used_bytes();
  s.intents = sessions->intents();
  for (const auto& thread : network) {
    const ExecutorCounters* const executor = thread->counters();
    if (executor != nullptr) statistics::add_counters<ExecutorNumbers>(*executor, s);
    statistics::add_counters<net::TransportNumbers>(thread->transport_counters(), s);
  }
  scans->add_statistics(s);
  const CompactorStatistics compaction = compactor->statistics();
  s.compacted_pages = compaction.pages_rewritten;
  s.freed_pages = compaction.pages_freed;
  if (with_tables) s.tables = tables->read();
  return s;
}

latency::Latencies StorageNode::Impl::latencies(bool with_slow) const {
  latency::Latencies all;
  for (const auto& thread : network) {
    const latency::Recorder* const recorder = thread->latencies();
    if (recorder != nullptr) all.add(*recorder, with_slow);
  }
  all.kinds[static_cast<size_t>(latency::OperationKind::kScan)].merge(scans->durations());
  all.now_ns = Env::now_ns();
  return all;
}

std::string StorageNode::Impl::check_invariants() {
  pool->check_invariants();
  return tables->check([](const ServedTable& table) {
    const std::string wrong = table.table->check_invariants();
    return wrong.empty() ? wrong : "table " + table.info.name + ": " + wrong;
  });
}

Result<std::unique_ptr<StorageNode>> StorageNode::start(const NodeOptions& options,
                                                        std::function<void(const Status&)> on_replaced) {
  LOAM_RETURN_IF_ERROR(options.check());
  auto impl = std::make_unique<Impl>(options, std::move(on_replaced));
  LOAM_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<StorageNode>(new StorageNode(std::move(impl)));
}

StorageNode::StorageNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StorageNode::~StorageNode() = default;

void StorageNode::stop() { impl_->stop(); }
const std::string& StorageNode::address() const { return impl_->address; }
const std::string& StorageNode::admin_address() const { return impl_->admin_address; }
NodeStatistics StorageNode::statistics() const { return impl_->statistics(); }
latency::Latencies StorageNode::latencies() const { return impl_->latencies(true); }
std::string StorageNode::check_invariants() const { return impl_->check_invariants(); }

}  // namespace loam::storage
