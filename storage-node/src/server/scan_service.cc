// Start, credits, cancellation and end of scans, and their messages to clients. scan_worker.cc executes the part of
// one scan thread, and network_thread.cc delivers the messages.
#define XXH_INLINE_ALL

#include "storage-node/src/server/scan_service.h"

#include <algorithm>
#include <bitset>
#include <chrono>
#include <limits>
#include <string>

#include <xxhash.h>

#include "common/base/env.h"
#include "storage-node/src/scan/explain.h"

namespace loam::storage {
namespace {

/// Bounds of the time between two progress messages; the service clamps the client's wish to them.
constexpr uint64_t kMinProgressIntervalNs = 20'000'000;
constexpr uint64_t kMaxProgressIntervalNs = 3'600'000'000'000;

uint64_t saturating_add(uint64_t a, uint64_t b) { return a + std::min(b, std::numeric_limits<uint64_t>::max() - a); }

/// Sums the statistics of the parts of a scan. Times are maxima, because the parts run at the same time.
wire::ScanStatistics sum_of(const std::vector<wire::ScanStatistics>& parts) {
  wire::ScanStatistics sum;
  for (const wire::ScanStatistics& part : parts) {
    sum.pages += part.pages;
    sum.pages_skipped += part.pages_skipped;
    sum.pages_total += part.pages_total;
    sum.records += part.records;
    sum.rows += part.rows;
    sum.chunks += part.chunks;
    sum.bytes += part.bytes;
    sum.busy_ns += part.busy_ns;
    sum.queued_ns = std::max(sum.queued_ns, part.queued_ns);
    sum.elapsed_ns = std::max(sum.elapsed_ns, part.elapsed_ns);
  }
  return sum;
}

}  // namespace

ScanService::ScanService(Registry& registry, EpochDomain& epochs, PagePool& pool, std::vector<Outbox*> outboxes,
                         const Options& options)
    : registry_(registry), outboxes_(std::move(outboxes)), options_(options) {
  ScanScheduler::Options scheduler;
  scheduler.max_queries = options.max_queries;
  scheduler.stall_limit_ns = options.stall_limit_ns;
  scheduler.memory = options.memory;
  for (unsigned i = 0; i < options.threads; ++i) {
    workers_.push_back(std::make_unique<ScanWorker>(registry, epochs, pool, scheduler));
    sinks_.push_back(std::make_unique<PartSink>(*this, i));
  }
}

ScanService::~ScanService() { stop(); }

void ScanService::run() {
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i]->run(i, options_.nice);
}

void ScanService::stop() {
  for (auto& worker : workers_) worker->stop();
}

bool ScanService::end_all(const Status& status, uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  for (auto& [id, active] : active_) end(id, active, status);
  return idle_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                        [this] { return active_.empty() && unposted_ends_ == 0; });
}

void ScanService::add_statistics(NodeStatistics& statistics) const {
  statistics.scans += durations().count();
  for (const auto& worker : workers_) {
    statistics.scan_pages += worker->pages();
    statistics.scan_records += worker->entries();
  }
}

latency::Histogram ScanService::durations() const {
  const std::scoped_lock lock(mutex_);
  return durations_;
}

std::vector<QueryStatus> ScanService::queries(uint64_t timeout_ns) {
  // Shared with the commands, which may run after the time-out.
  struct Reports {
    Mutex mutex;
    Condition changed;
    // Guarded by mutex.
    size_t missing = 0;
    std::unordered_map<ScanId, std::vector<QueryState>> parts;
  };
  const auto reports = std::make_shared<Reports>();
  reports->missing = workers_.size();
  for (const auto& worker : workers_) {
    worker->post([reports](const ScanScheduler& scheduler, uint64_t) {
      const std::vector<QueryState> states = scheduler.states();
      const std::scoped_lock lock(reports->mutex);
      for (const QueryState& state : states) reports->parts[state.id].push_back(state);
      if (--reports->missing == 0) reports->changed.notify_all();
    });
  }
  std::unordered_map<ScanId, std::vector<QueryState>> parts;
  {
    std::unique_lock lock(reports->mutex);
    reports->changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return reports->missing == 0; });
    parts.swap(reports->parts);
  }
  const uint64_t now_ns = Env::now_ns();
  const std::scoped_lock lock(mutex_);
  std::vector<QueryStatus> all;
  all.reserve(active_.size());
  for (const auto& [id, active] : active_) all.push_back(status_of(active, parts[id], now_ns));
  return all;
}

QueryStatus ScanService::status_of(const ActiveScan& active, const std::vector<QueryState>& parts, uint64_t now_ns) {
  using State = QueryStatus::State;
  QueryStatus status;
  const Description& description = active.description;
  status.id = description.id;
  status.address = description.address;
  status.table = description.table;
  status.snapshot = description.snapshot;
  status.age_ns = now_ns - std::min(now_ns, description.arrived_ns);
  const auto add = [&status](const wire::ScanStatistics& statistics) {
    status.pages_total += statistics.pages_total;
    status.records += statistics.records;
    status.rows += statistics.rows;
    status.chunks += statistics.chunks;
  };
  for (size_t part = 0; part < active.part_ended.size(); ++part) {
    if (!active.part_ended[part]) continue;
    add(active.statistics[part]);
    status.state = State::kReading;
  }
  // A query waits as soon as one part waits, because its client gets no further row of this part.
  for (const QueryState& part : parts) {
    add(part.statistics);
    status.pages_left += part.pages_left;
    if (part.started) status.state = std::max(status.state, State::kReading);
    if (!part.blocked) continue;
    status.state = std::max(status.state, part.short_of_memory ? State::kWaitingForMemory : State::kWaitingForClient);
    status.waiting_ns = std::max(status.waiting_ns, now_ns - std::min(now_ns, part.blocked_since_ns));
  }
  for (const uint32_t chunks : active.outstanding) status.unread_chunks += chunks;
  return status;
}

size_t ScanService::cancel(const QueryId& id, const Status& status) {
  const std::scoped_lock lock(mutex_);
  size_t count = 0;
  for (auto& [scan, active] : active_) {
    if (active.description.id != id) continue;
    end(scan, active, status);
    ++count;
  }
  return count;
}

ScanService::Description ScanService::describe(const Peer& peer, const wire::Scan& scan) const {
  Description description;
  if (peer.attached()) description.id.session = peer.session()->id();
  // The parts of the message that the client sends to every storage node alike: all except the region.
  wire::Scan common = scan;
  common.region = common.region_bytes = 0;
  Buffer bytes;
  wire::encode_message(common, 0, bytes);
  description.id.hash = static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
  description.address = peer.address();
  if (const auto* table = registry_.view().find(scan.table)) {
    description.table = (*table)->info.name;
    if ((*table)->info.kind == TableKind::kTransactional) description.snapshot = scan.snapshot.base();
  }
  return description;
}

Status ScanService::start(Peer& peer, uint64_t sequence, wire::Scan scan) {
  Description description = describe(peer, scan);  // before make_spec() takes the content of the scan
  LOAM_ASSIGN_OR_RETURN(ScanSpec spec, make_spec(scan));
  if (scan.explain) {
    // A plan reads no page, so the network thread answers it.
    wire::ScanDone done = scan_done(ok_status());
    const std::string plan = explain(*spec.schema, spec.query, spec.pages->size());
    done.plan = plan;
    post(peer.id(), sequence, done);
    return ok_status();
  }
  description.arrived_ns = spec.arrived_ns;
  // Step 1: register the scan before a part runs, because a part that ends at once looks it up.
  const size_t parts = std::min<size_t>(workers_.size(), scan.credits);  // each part needs a credit
  ScanId id;
  {
    const std::scoped_lock lock(mutex_);
    if (active_.size() >= options_.max_queries) {
      return {StatusCode::kOverloaded, "the storage node already runs " + std::to_string(active_.size()) +
                                           " scan queries, its limit; try again"};
    }
    if (by_request_.contains({peer.id(), sequence})) {
      return {StatusCode::kInvalidArgument, "a scan with sequence " + std::to_string(sequence) + " is under way"};
    }
    id = ++last_id_;
    by_request_[{peer.id(), sequence}] = id;
    active_[id] = {.description = std::move(description),
                   .peer = peer.id(),
                   .sequence = sequence,
                   .parts_left = parts,
                   .region = {scan.region, scan.region_bytes},
                   .slots = scan.credits,
                   .part_ended = std::vector<bool>(parts),
                   .outstanding = std::vector<uint32_t>(parts),
                   .statistics = std::vector<wire::ScanStatistics>(parts)};
  }
  // Step 2: give each scan thread its part. All parts share the pinned page list, and the credits are divided evenly.
  spec.parts = parts;
  for (size_t part = 0; part < parts; ++part) {
    ScanSpec own = spec;
    own.part = part;
    own.credits = static_cast<uint32_t>(scan.credits / parts + (part < scan.credits % parts ? 1 : 0));
    workers_[part]->post([this, id, part, own = std::move(own)](ScanScheduler& scheduler, uint64_t now_ns) mutable {
      if (has_failed(id)) return part_done(id, part, {StatusCode::kCancelled, "another part of the scan failed"}, {});
      workers_[part]->watch_table(own.table);
      const Status joined = scheduler.join(id, std::move(own), *sinks_[part], now_ns);
      if (!joined.ok()) part_done(id, part, joined, {});
    });
  }
  return ok_status();
}

Result<ScanSpec> ScanService::make_spec(wire::Scan& scan) const {
  // The caller holds the epoch guard of its batch from the check of the snapshot to the pin. So the compactor frees no
  // page with a version that the snapshot sees in between (R14, refusal of old snapshots; R23, immutable page list).
  const RegistryView& view = registry_.view();
  const std::shared_ptr<ServedTable>* found = view.find(scan.table);
  if (found == nullptr && view.deferred.contains(scan.table)) {
    return Status(StatusCode::kNoSpace, "the storage node has no memory for table " + std::to_string(scan.table.value) +
                                            " yet; remove records or drop tables, then try again");
  }
  if (found == nullptr) {
    return Status(StatusCode::kNoSuchTable,
                  "table " + std::to_string(scan.table.value) + " was dropped or never existed");
  }
  const std::shared_ptr<ServedTable>& table = *found;
  if (scan.map_version != view.shards.version) {
    Env::probe("node.scan.other_map");
    return Status(StatusCode::kWrongShard, "the scan names shard map " + std::to_string(scan.map_version) +
                                               ", the storage node has " + std::to_string(view.shards.version));
  }
  if (scan.credits == 0 || scan.credits > kMaxScanCredits) {
    return Status(StatusCode::kInvalidArgument, "a scan starts with 1 to " + std::to_string(kMaxScanCredits) +
                                                    " credits, not " + std::to_string(scan.credits));
  }
  if (scan.without.size() > wire::kMaxScanWithout || !std::ranges::is_sorted(scan.without)) {
    return Status(StatusCode::kInvalidArgument, "a scan leaves out at most " + std::to_string(wire::kMaxScanWithout) +
                                                    " records, and names them in ascending order");
  }
  if (scan.added > table->info.schema.added()) {
    return Status(StatusCode::kUnavailable, "the storage node does not know all fields of the table yet; try again");
  }
  LOAM_RETURN_IF_ERROR(scan.query.check(table->info.schema));
  ScanSpec spec;
  if (!scan.without.empty()) spec.without = std::make_shared<const std::vector<Key>>(std::move(scan.without));
  if (table->info.kind == TableKind::kTransactional && !registry_.publication().covers(scan.snapshot)) {
    return Status(StatusCode::kSnapshotTooOld,
                  "versions that this snapshot sees may have been collected; begin a new transaction");
  }
  // A scan that names shards filters its rows by shard. Other scans return all records, because the storage node
  // accepts no record of a shard that it does not own (R26, shards of a scan).
  if (!scan.shards.empty()) {
    auto served = std::make_shared<std::bitset<wire::kVirtualShards>>();
    for (const uint16_t shard : scan.shards) {
      if (shard >= wire::kVirtualShards || !view.owned[shard]) {
        return Status(StatusCode::kWrongShard, "the storage node does not own shard " + std::to_string(shard));
      }
      served->set(shard);
    }
    spec.owns = [served, id = scan.table](Key key) { return served->test(wire::shard_of(id, key)); };
  }
  spec.table = scan.table;
  spec.kind = table->info.kind;
  spec.schema = std::shared_ptr<const Schema>(table, &table->info.schema);
  spec.schemas = table->table->schemas();
  spec.storage = table;
  spec.pages = std::make_shared<PinnedPages>(table->table->pages().pin());
  table->table->count_scan();
  spec.snapshot = std::move(scan.snapshot);
  spec.query = std::move(scan.query);
  spec.arrived_ns = Env::now_ns();
  if (scan.time_limit_ns != 0) spec.deadline_ns = saturating_add(spec.arrived_ns, scan.time_limit_ns);
  if (scan.progress_interval_ns != 0) {
    spec.progress_interval_ns = std::clamp(scan.progress_interval_ns, kMinProgressIntervalNs, kMaxProgressIntervalNs);
  }
  return spec;
}

void ScanService::credit(Peer& peer, uint64_t sequence, uint32_t credits) {
  const std::scoped_lock lock(mutex_);
  const auto request = by_request_.find({peer.id(), sequence});
  if (request == by_request_.end()) return;  // the scan has just ended
  ActiveScan& active = active_.at(request->second);
  // Give each credit to the part with the most chunks under way. Ignore credits beyond the chunks that were sent.
  for (uint32_t i = 0; i < std::min(credits, kMaxScanCredits); ++i) {
    const auto most = std::ranges::max_element(active.outstanding);
    if (*most == 0) break;
    --*most;
    const auto part = static_cast<size_t>(most - active.outstanding.begin());
    workers_[part]->post([id = request->second](ScanScheduler& scheduler, uint64_t) { scheduler.credit(id, 1); });
  }
}

void ScanService::cancel(Peer& peer, uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  const auto request = by_request_.find({peer.id(), sequence});
  if (request != by_request_.end()) cancel_parts(request->second, {StatusCode::kCancelled, "cancelled by the client"});
}

void ScanService::peer_disconnected(PeerId peer) {
  const std::scoped_lock lock(mutex_);
  // The map is ordered by peer and sequence, so the scans of one peer follow each other.
  for (auto request = by_request_.lower_bound({peer, 0}); request != by_request_.end() && request->first.first == peer;
       ++request) {
    Env::probe("node.scan.client_gone");
    cancel_parts(request->second, {StatusCode::kCancelled, "the client has disconnected"});
  }
}

// A part that joins asks whether another part has failed. cancel_parts() could not end a query that had not joined yet.
bool ScanService::has_failed(ScanId id) {
  const std::scoped_lock lock(mutex_);
  return !active_.at(id).status.ok();
}

void ScanService::end(ScanId id, ActiveScan& active, const Status& why) {
  if (active.status.ok()) active.status = why;  // has_failed() then ends the parts that join later
  cancel_parts(id, why);
}

void ScanService::cancel_parts(ScanId id, const Status& why) {
  for (size_t part = 0; part < active_.at(id).outstanding.size(); ++part) {
    workers_[part]->post([id, why](ScanScheduler& scheduler, uint64_t now_ns) { scheduler.cancel(id, why, now_ns); });
  }
}

void ScanService::send_chunk(ScanId id, size_t part, Bytes bytes, ChunkMemory memory) {
  OutgoingMessage outgoing;
  outgoing.memory = std::move(memory);
  outgoing.region_data.assign(bytes.begin(), bytes.end());
  const std::scoped_lock lock(mutex_);
  ActiveScan& active = active_.at(id);
  ++active.outstanding[part];
  outgoing.peer = active.peer;
  wire::ScanChunk chunk;
  const uint64_t slot_bytes = active.region.size / active.slots;
  if (bytes.size() <= slot_bytes) {
    // There are as many slots as credits, and chunks use the slots in turn. The client returns the credit of a chunk
    // after it has read the chunk, so the next slot is free when a credit is left. Chunks in messages use no slot and
    // leave more room.
    chunk.slot = static_cast<uint32_t>(active.slots_used++ % active.slots);
    chunk.bytes_in_slot = static_cast<uint32_t>(bytes.size());
    outgoing.region = active.region;
    outgoing.offset = chunk.slot * slot_bytes;
  } else {
    chunk.chunk = bytes;
    outgoing.region_data = {};
    outgoing.message.reserve(bytes.size() + 64);
  }
  wire::encode_message(chunk, active.sequence, outgoing.message);
  outbox_of(outgoing.peer).post(std::move(outgoing));
}

template <class Message>
void ScanService::post(PeerId peer, uint64_t sequence, const Message& message) {
  OutgoingMessage outgoing{.peer = peer};
  wire::encode_message(message, sequence, outgoing.message);
  outbox_of(peer).post(std::move(outgoing));
}

void ScanService::part_progress(ScanId id, size_t part, const wire::ScanStatistics& statistics) {
  wire::ScanProgress progress;
  PeerId peer;
  uint64_t sequence;
  {
    const std::scoped_lock lock(mutex_);
    ActiveScan& active = active_.at(id);
    active.statistics[part] = statistics;
    if (part != active.reporting_part()) return;  // one part reports for all of them
    progress.statistics = sum_of(active.statistics);
    peer = active.peer;
    sequence = active.sequence;
  }
  post(peer, sequence, progress);
}

void ScanService::part_done(ScanId id, size_t part, const Status& status, const wire::ScanStatistics& statistics) {
  ActiveScan ended;
  {
    const std::scoped_lock lock(mutex_);
    ActiveScan& active = active_.at(id);
    active.statistics[part] = statistics;
    active.part_ended[part] = true;
    // The first error is the result of the scan, so the other parts need not continue.
    if (!status.ok() && active.status.ok()) {
      Env::probe("node.scan.failed");
      active.status = status;
      cancel_parts(id, {StatusCode::kCancelled, "another part of the scan failed"});
    }
    if (--active.parts_left > 0) return;
    durations_.add(Env::now_ns() - active.description.arrived_ns);
    ended = std::move(active);
    by_request_.erase({ended.peer, ended.sequence});
    active_.erase(id);
    ++unposted_ends_;
  }
  post(ended.peer, ended.sequence, scan_done(std::move(ended.status), sum_of(ended.statistics)));
  const std::scoped_lock lock(mutex_);
  --unposted_ends_;
  if (active_.empty() && unposted_ends_ == 0) idle_.notify_all();
}

}  // namespace loam::storage
