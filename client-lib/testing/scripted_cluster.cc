#include "client-lib/testing/scripted_cluster.h"

#include <algorithm>
#include <utility>

#include <loam/bdtree/index_entries.h>
#include <loam/bdtree/tree.h>

#include "bdtree/testing/memory_store.h"
#include "common/net/tcp/tcp_transport.h"
#include "common/schema/chunk.h"
#include "common/schema/row.h"

namespace loam::client {
namespace {

using wire::Opcode;

}  // namespace

ScriptedCluster::ScriptedCluster(net::TransportOptions options) {
  std::atomic<bool> ready{false};
  thread_ = std::thread([this, options, &ready] {
    transport_ = net::make_tcp_transport(options).value();
    rpc::ListenerMark manager(*this, this), node(*this, nullptr);
    const net::Address any = net::Address::parse("tcp://127.0.0.1:0").value();
    manager_address_ = transport_->listen(any, manager).value()->address().to_string();
    node_address_ = transport_->listen(any, node).value()->address().to_string();
    ready.store(true, std::memory_order_release);  // pairs with wait(): the addresses are set
    ready.notify_all();
    // Relaxed: join() and the mutex order all other data.
    while (!stop_.load(std::memory_order_relaxed)) {
      if (release_.exchange(false, std::memory_order_relaxed)) {  // relaxed: the mutex guards held_
        const std::lock_guard lock(mutex_);
        for (const HeldReply& held : std::exchange(held_, {})) static_cast<void>(held.connection->send(held.answer));
        scans_.clear();
      }
      {
        const std::lock_guard lock(mutex_);
        for (net::Connection* connection : connections_) {
          const size_t which = connection->context<void>() != nullptr ? 0 : 1;
          if (drop_[which]) connection->close({StatusCode::kUnavailable, "the test says so"});
        }
        drop_[0] = drop_[1] = false;
      }
      transport_->poll(1'000'000);
    }
    transport_.reset();
  });
  ready.wait(false, std::memory_order_acquire);  // pairs with the store
}

ScriptedCluster::~ScriptedCluster() {
  stop_.store(true, std::memory_order_relaxed);  // relaxed: see the loop
  thread_.join();
}

void ScriptedCluster::set_script(Script script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void ScriptedCluster::release_held() {
  release_.store(true, std::memory_order_relaxed);  // relaxed: see the loop
}

void ScriptedCluster::fence(wire::Outcome outcome) {
  const std::lock_guard lock(mutex_);
  fenced_ = true;
  outcome_ = outcome;
}

void ScriptedCluster::set_outcome(wire::Outcome outcome) {
  const std::lock_guard lock(mutex_);
  outcome_ = outcome;
}

void ScriptedCluster::accept_loss() {
  const std::lock_guard lock(mutex_);
  lost_before_ = next_id_;
}

void ScriptedCluster::add_index() {
  const std::lock_guard lock(mutex_);
  indexed_ = true;
  ++catalog_version_;
}

void ScriptedCluster::refuse_opens(size_t count) {
  const std::lock_guard lock(mutex_);
  refuse_opens_ = count;
}

void ScriptedCluster::drop_connections(bool manager) {
  const std::lock_guard lock(mutex_);
  drop_[manager ? 0 : 1] = true;
}

void ScriptedCluster::set_node(wire::NodeState state, Incarnation incarnation) {
  const std::lock_guard lock(mutex_);
  node_state_ = state;
  incarnation_ = incarnation;
  ++catalog_version_;
}

void ScriptedCluster::set_second_node(wire::NodeState state) {
  const std::lock_guard lock(mutex_);
  second_ = state;
  ++catalog_version_;
}

bool ScriptedCluster::second_owns(TableId table, Key key) {
  const uint16_t shard = wire::shard_of(table, key);
  return shard % 2 != 0 && shard != wire::shard_of(kTable, Key(1));
}

void ScriptedCluster::set_scan_slot(uint32_t slot) {
  const std::lock_guard lock(mutex_);
  scan_slot_ = slot;
}

void ScriptedCluster::serve_scans() {
  const std::lock_guard lock(mutex_);
  serves_scans_ = true;
}

void ScriptedCluster::set_cluster(wire::ClusterId cluster, bool compares) {
  const std::lock_guard lock(mutex_);
  cluster_ = cluster;
  compares_clusters_ = compares;
}

void ScriptedCluster::set_node_cluster(wire::ClusterId cluster) {
  const std::lock_guard lock(mutex_);
  node_cluster_ = cluster;
}

void ScriptedCluster::set_lease(uint64_t lease_ns) {
  const std::lock_guard lock(mutex_);
  lease_ns_ = lease_ns;
}

ScriptedCluster::Observations ScriptedCluster::observations() const {
  const std::lock_guard lock(mutex_);
  Observations now = observations_;
  now.open_scans = scans_.size();
  for (const auto& [name, table] : created_) now.created.insert(name);
  for (const auto& [record, versions] : versions_) {
    if (!versions.empty()) now.rows[record] = versions.back().first;
  }
  for (const auto& [id, records] : intents_) now.intents[id].records = records;
  for (const auto& [id, changes] : plain_.intents()) now.intents[id.value].index_changes = changes;
  now.in_index = transactions_in_index();
  return now;
}

std::set<uint64_t> ScriptedCluster::transactions_in_index() const {
  std::set<uint64_t> found;
  bdtree::MemoryNodes nodes;
  for (const auto& [record, row] : plain_.rows()) {
    if (record.table != kIndex) continue;
    const RowView view(wire::index_node_schema(), row.row);
    const Bytes base = view.blob(wire::IndexNodeFields::kBase), delta = view.blob(wire::IndexNodeFields::kDelta);
    nodes.records[record.key.value] = {Version(row.version), Buffer(base.begin(), base.end()),
                                       Buffer(delta.begin(), delta.end())};
  }
  if (nodes.records.empty()) return found;
  bdtree::MemoryStore store(nodes);
  const auto entries = bdtree::Tree::open(store)->range("", "", SIZE_MAX).value();
  for (const bdtree::Entry& entry : entries) {
    // The record's key does not matter here.
    const auto decoded = bdtree::IndexEntries::decode(std::string_view(entry.payload), Key(1)).value();
    for (const bdtree::IndexEntry& one : decoded.entries()) found.insert({one.valid_from.value, one.valid_to.value});
  }
  return found;
}

size_t ScriptedCluster::count(Opcode opcode) const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count(observations_.requests.begin(), observations_.requests.end(), opcode));
}

void ScriptedCluster::on_connected(net::Connection& connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert(&connection);
  if (connection.context<void>() == nullptr) ++observations_.connections;
}

void ScriptedCluster::on_closed(net::Connection& connection, const Status&) {
  const std::lock_guard lock(mutex_);
  connections_.erase(&connection);
  last_sequence_.erase(&connection);
  std::erase_if(held_, [&](const HeldReply& held) { return held.connection == &connection; });
  std::erase_if(scans_, [&](const auto& scan) { return scan.first == &connection; });
}

void ScriptedCluster::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  const std::lock_guard lock(mutex_);
  for (const Bytes message : messages) {
    if (!serve(connection, message)) return;
  }
}

bool ScriptedCluster::serve(net::Connection& connection, Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_CHECK(wire::decode_envelope(reader, envelope).ok(), "the client sent a message without an envelope");
  uint64_t& last = last_sequence_[&connection];
  const bool about_scan = envelope.opcode == Opcode::kScanCredit || envelope.opcode == Opcode::kScanCancel;
  if (about_scan) {  // has the scan's sequence and no reply
    if (envelope.opcode == Opcode::kScanCancel) scans_.erase({&connection, envelope.sequence});
    observations_.requests.push_back(envelope.opcode);
    return true;
  }
  if (envelope.opcode != Opcode::kRenewSession) {  // a renewal may overtake other requests
    if (envelope.sequence != 0 && envelope.sequence <= last) ++observations_.out_of_sequence;
    last = std::max(last, envelope.sequence);
  }
  observations_.requests.push_back(envelope.opcode);
  const bool greeting = envelope.opcode == Opcode::kAttach || envelope.opcode == Opcode::kOpenSession;
  wire::WriteKind kind{};
  if (envelope.opcode == Opcode::kPlainWrite) {
    ByteReader copy = reader;
    kind = rpc::decoded<wire::PlainWrite>(copy).operations.at(0).kind;
  }
  const MutantResult action = greeting || !script_ ? MutantResult::kAnswer : script_(envelope.opcode, kind);
  const bool apply = action == MutantResult::kAnswer || action == MutantResult::kApplyAndDrop ||
                     action == MutantResult::kHold || action == MutantResult::kApplyAndClose ||
                     action == MutantResult::kLoseManager || action == MutantResult::kFence ||
                     action == MutantResult::kApplyAndFence || action == MutantResult::kForget;
  if (action == MutantResult::kFence) fenced_ = true;
  if (action == MutantResult::kLoseManager) drop_[0] = true;
  Buffer answer;
  if (apply && envelope.opcode == Opcode::kScan && serves_scans_ && !fenced_) {
    send_rows(connection, envelope, reader);
    if (action == MutantResult::kHold || action == MutantResult::kApplyAndDrop)
      scans_.insert({&connection, envelope.sequence});
  }
  if (apply) answer = execute_once(connection, envelope, reader);
  if (action == MutantResult::kCloseAndFence || action == MutantResult::kApplyAndFence) fenced_ = true;
  switch (action) {
    case MutantResult::kAnswer:
    case MutantResult::kLoseManager:
    case MutantResult::kFence:
      if (!answer.empty()) static_cast<void>(connection.send(answer));
      return true;
    case MutantResult::kHold:
      held_.push_back({&connection, std::move(answer)});
      return true;
    case MutantResult::kError:
      static_cast<void>(connection.send(refuse_once(connection, envelope)));
      return true;
    case MutantResult::kForget:
      static_cast<void>(connection.send(
          rpc::encoded(wire::Error{{StatusCode::kUnknownOutcome, "the reply is forgotten"}}, envelope.sequence)));
      return true;
    case MutantResult::kGarbage:
      static_cast<void>(connection.send(as_bytes("\xff nonsense")));
      return true;
    case MutantResult::kWrongStream:
      static_cast<void>(connection.send(rpc::encoded(wire::ScanProgress{}, envelope.sequence)));
      return true;
    case MutantResult::kClose:
    case MutantResult::kApplyAndClose:
    case MutantResult::kCloseAndFence:
    case MutantResult::kApplyAndFence:
      connection.close({StatusCode::kUnavailable, "the script says so"});
      return false;
    default:
      return true;
  }
}

bool ScriptedCluster::repeatable(Opcode opcode) {
  return opcode == Opcode::kRead || opcode == Opcode::kPlainRead || opcode == Opcode::kRenewSession ||
         opcode == Opcode::kGetCatalog || opcode == Opcode::kReleaseSnapshots;
}

Buffer ScriptedCluster::refuse_once(const net::Connection& connection, const wire::Envelope& envelope) {
  Buffer error = rpc::encoded(wire::Error{{StatusCode::kOverloaded, "the script says so"}}, envelope.sequence);
  if (envelope.sequence == 0 || repeatable(envelope.opcode)) return error;
  wire::ReplyWindow& window = connection.context<void>() != nullptr ? *manager_window_ : *node_window_;
  Buffer first;
  const auto found = window.look_up(envelope.sequence, first);
  if (found == wire::ReplyWindow::LookupResult::kNew) window.store(envelope.sequence, error);  // not atomic: a window
  return found == wire::ReplyWindow::LookupResult::kAnswered ? first : error;
}

Buffer ScriptedCluster::execute_once(const net::Connection& connection, const wire::Envelope& envelope,
                                     ByteReader& reader) {
  const bool manager = connection.context<void>() != nullptr;
  if (envelope.opcode != Opcode::kOpenSession && fenced_) {
    return rpc::encoded(wire::Error{{StatusCode::kFenced, "session " + std::to_string(session_.value) + " is fenced"}},
                        envelope.sequence);
  }
  if (envelope.sequence == 0 || repeatable(envelope.opcode))
    return manager ? execute_manager(envelope, reader) : execute(envelope, reader);
  wire::ReplyWindow& window = manager ? *manager_window_ : *node_window_;
  Buffer answer;
  switch (window.look_up(envelope.sequence, answer)) {
    case wire::ReplyWindow::LookupResult::kNew:
      answer = manager ? execute_manager(envelope, reader) : execute(envelope, reader);
      window.store(envelope.sequence, answer);  // not atomic: a window
      return answer;
    case wire::ReplyWindow::LookupResult::kEvicted:
      ++observations_.executed_twice;
      return {};
    default:
      ++observations_.repeated;
      return answer;
  }
}

// ---- storage node --------------------------------------------------------------------------------------------------

wire::WriteResult ScriptedCluster::write(const wire::Write& message, const wire::Write::Operation& operation) {
  auto& versions = versions_[operation.record];
  const uint64_t id = message.transaction.value;
  if (!versions.empty() && versions.back().first == id) return {StatusCode::kOk, Version(id)};
  if (!versions.empty() && !message.snapshot.visible(Version(versions.back().first)))
    return {StatusCode::kConflict, {}};
  const bool exists = !versions.empty() && !versions.back().second.empty();
  if (operation.kind == wire::WriteKind::kInsert && exists) return {StatusCode::kAlreadyExists, {}};
  if (operation.kind != wire::WriteKind::kInsert && !exists) return {StatusCode::kNotFound, {}};
  intents_[id].insert(operation.record);
  versions.emplace_back(id, Buffer(operation.row.begin(), operation.row.end()));
  return {StatusCode::kOk, Version(id)};
}

wire::WriteResult ScriptedCluster::revert(wire::RecordId record, TransactionId transaction) {
  auto& versions = versions_[record];
  const auto own = std::ranges::find(versions, transaction.value, &std::pair<uint64_t, Buffer>::first);
  if (own == versions.end()) return {StatusCode::kOk, {}};
  if (own + 1 != versions.end()) return {StatusCode::kConflict, {}};
  versions.pop_back();
  return {StatusCode::kOk, {}};
}

Buffer ScriptedCluster::execute(const wire::Envelope& envelope, ByteReader& reader) {
  if (auto answer = plain_.execute(envelope, reader)) return std::move(*answer);
  switch (envelope.opcode) {
    case Opcode::kAttach: {
      const auto message = rpc::decoded<wire::Attach>(reader);
      if (message.cluster != node_cluster_) {
        return rpc::encoded(wire::Error{{StatusCode::kWrongCluster, "a node of another cluster"}}, envelope.sequence);
      }
      if (message.incarnation != incarnation_) {
        return rpc::encoded(wire::Error{{StatusCode::kUnavailable, "another incarnation"}}, envelope.sequence);
      }
      return rpc::encoded(wire::AttachReply{NodeId(1)}, envelope.sequence);
    }
    case Opcode::kRead: {
      const auto message = rpc::decoded<wire::Read>(reader);
      wire::ReadReply reply;
      for (const wire::RecordId& record : message.records) {
        wire::ReadResult result{StatusCode::kNotFound, {}, {}};
        for (const auto& [version, row] : versions_[record]) {
          if (message.snapshot.visible(Version(version)) && !row.empty())
            result = {StatusCode::kOk, Version(version), row};
        }
        // As if a reply had room for two rows at most.
        if (reply.results.size() >= 2) result = {StatusCode::kOverloaded, {}, {}};
        reply.results.push_back(result);
      }
      return rpc::encoded(reply, envelope.sequence);
    }
    case Opcode::kWrite: {
      const auto message = rpc::decoded<wire::Write>(reader);
      wire::WriteReply reply;
      for (const auto& operation : message.operations) reply.results.push_back(write(message, operation));
      return rpc::encoded(reply, envelope.sequence);
    }
    case Opcode::kRevert: {
      const auto message = rpc::decoded<wire::Revert>(reader);
      wire::RevertReply reply;
      for (const wire::RecordId& record : message.records) {
        reply.results.push_back(revert(record, message.transaction));
      }
      return rpc::encoded(reply, envelope.sequence);
    }
    case Opcode::kPing:
      return rpc::encoded(wire::Pong{}, envelope.sequence);
    case Opcode::kScan:
      if (serves_scans_) return rpc::encoded(wire::ScanDone{}, envelope.sequence);
      if (scan_slot_.has_value()) return rpc::encoded(wire::ScanChunk{{}, *scan_slot_, 64}, envelope.sequence);
      return rpc::encoded(wire::ScanDone{{StatusCode::kOverloaded, "too many scans"}, {}, kScanRetryNs},
                          envelope.sequence);
    default:
      return rpc::encoded(wire::Error{{StatusCode::kInvalidArgument, "the scripted node does not do that"}},
                          envelope.sequence);
  }
}

void ScriptedCluster::send_rows(net::Connection& connection, const wire::Envelope& envelope, ByteReader reader) {
  const auto scan = rpc::decoded<wire::Scan>(reader);
  const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
  ChunkBuilder rows(scan.query.partial_schema(schema));
  for (const auto& [record, versions] : versions_) {
    if (record.table != scan.table) continue;
    const Buffer* newest = nullptr;
    for (const auto& [version, row] : versions) {
      if (scan.snapshot.visible(Version(version))) newest = &row;
    }
    if (newest == nullptr || newest->empty()) continue;
    rows.append<int64_t>(0, RowView(schema, *newest).int64(0));
    rows.end_row();
    Buffer chunk;
    LOAM_CHECK(rows.finish(chunk).ok(), "a chunk of one row is small");
    static_cast<void>(connection.send(rpc::encoded(wire::ScanChunk{chunk}, envelope.sequence)));
  }
}

// ---- commit manager ------------------------------------------------------------------------------------------------

wire::Catalog ScriptedCluster::catalog() const {
  wire::Catalog catalog;
  catalog.version = catalog_version_;
  for (const wire::TableInfo& info : wire::system_tables()) catalog.tables.push_back(info);
  const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
  catalog.tables.push_back({kTable, "t", TableKind::kTransactional, schema});
  catalog.tables.push_back({kPlainTable, "plain", TableKind::kNonTransactional, schema});
  for (const auto& [name, table] : created_) catalog.tables.push_back(table);
  if (indexed_) {
    wire::TableInfo index{kIndex, "t_x", TableKind::kNonTransactional, wire::index_node_schema()};
    index.index.table = kTable;
    index.index.parts = {{0, false}};
    catalog.tables.push_back(std::move(index));
  }
  catalog.nodes.push_back({NodeId(1), incarnation_, node_address_, "", node_state_});
  catalog.shards.version = 1;
  catalog.shards.owners.assign(wire::kVirtualShards, NodeId(1));
  if (second_) {
    // No server listens at port 1: connections are refused at once.
    catalog.nodes.push_back({NodeId(2), Incarnation(2), "tcp://127.0.0.1:1", "", *second_});
    for (size_t shard = 1; shard < wire::kVirtualShards; shard += 2) catalog.shards.owners[shard] = NodeId(2);
    catalog.shards.owners[wire::shard_of(kTable, Key(1))] = NodeId(1);
  }
  return catalog;
}

Buffer ScriptedCluster::open_session(const wire::Envelope& envelope, ByteReader& reader) {
  const auto message = rpc::decoded<wire::OpenSession>(reader);
  if (compares_clusters_ && message.cluster && message.cluster != cluster_) {
    return rpc::encoded(wire::Error{{StatusCode::kWrongCluster, "another cluster"}}, envelope.sequence);
  }
  if (message.resume != SessionId()) {
    if (fenced_ || message.resume != session_ || message.manager_epoch != 1) {
      return rpc::encoded(wire::Error{{StatusCode::kFenced, "that session has ended"}}, envelope.sequence);
    }
    ++observations_.resumed;
  } else {
    if (refuse_opens_ > 0) {
      --refuse_opens_;
      return rpc::encoded(wire::Error{{StatusCode::kUnavailable, "recovering"}}, envelope.sequence);
    }
    ++observations_.opened;
    session_ = SessionId(session_.value + 1);
    fenced_ = false;
    manager_window_.emplace(wire::kManagerReplyWindow);
    node_window_.emplace(wire::kNodeReplyWindow);
    open_ids_.clear();
  }
  return rpc::encoded(wire::OpenSessionReply{session_, 1, "", catalog(), lease_ns_, cluster_}, envelope.sequence);
}

Buffer ScriptedCluster::create_table(const wire::Envelope& envelope, const wire::CreateTable& message) {
  const wire::TableInfo table{TableId(next_table_), message.name, message.kind, message.schema};
  const auto [at, made] = created_.emplace(message.name, table);
  if (made) ++next_table_, ++catalog_version_;
  return rpc::encoded(wire::CreateTableReply{at->second, !made, catalog_version_}, envelope.sequence);
}

Buffer ScriptedCluster::drop_table(const wire::Envelope& envelope, const wire::DropTable& message) {
  const auto found = created_.find(message.name);
  if (found != created_.end() && found->second.id == message.table) created_.erase(found), ++catalog_version_;
  return rpc::encoded(wire::DropTableReply{catalog_version_}, envelope.sequence);
}

Buffer ScriptedCluster::rename_table(const wire::Envelope& envelope, const wire::RenameTable& message) {
  const auto found = created_.find(message.name);
  if (found != created_.end() && found->second.id == message.table) {
    auto table = created_.extract(found);
    table.key() = table.mapped().name = message.new_name;
    created_.insert(std::move(table));
    ++catalog_version_;
  }
  return rpc::encoded(wire::RenameTableReply{catalog_version_}, envelope.sequence);
}

wire::CompleteReply ScriptedCluster::complete(const wire::Complete& message) {
  wire::CompleteReply reply;
  for (const auto& [id, committed] : message.outcomes) {
    if (!open_ids_.contains(id.value)) {
      LOAM_CHECK(!committed || observations_.completed.contains(id.value), "a commit of an id that is not open");
      continue;
    }
    if (committed && id.value < lost_before_) {
      ++observations_.refused;
      reply.refused.push_back(id);
      continue;
    }
    observations_.completed[id.value] = committed;
    open_ids_.erase(id.value);
    intents_.erase(id.value);  // as if the publication arrived at once
    plain_.forget(id);
  }
  return reply;
}

wire::Outcome ScriptedCluster::outcome_of(TransactionId id) const {
  const auto completed = observations_.completed.find(id.value);
  if (completed != observations_.completed.end())
    return completed->second ? wire::Outcome::kCommitted : wire::Outcome::kAborted;
  return open_ids_.contains(id.value) && !fenced_ ? wire::Outcome::kPending : outcome_;
}

Buffer ScriptedCluster::execute_manager(const wire::Envelope& envelope, ByteReader& reader) {
  switch (envelope.opcode) {
    case Opcode::kOpenSession:
      return open_session(envelope, reader);
    case Opcode::kRenewSession:
      observations_.renewal = rpc::decoded<wire::RenewSession>(reader);
      return rpc::encoded(wire::RenewSessionReply{catalog_version_}, envelope.sequence);
    case Opcode::kGetOutcomes: {
      wire::GetOutcomesReply reply;
      for (TransactionId id : rpc::decoded<wire::GetOutcomes>(reader).ids) reply.outcomes.push_back(outcome_of(id));
      return rpc::encoded(reply, envelope.sequence);
    }
    case Opcode::kGetCatalog:
      return rpc::encoded(wire::GetCatalogReply{catalog()}, envelope.sequence);
    case Opcode::kBegin: {
      const auto message = rpc::decoded<wire::Begin>(reader);
      for (const uint64_t number : message.upgrades) {
        if (upgradable_.contains(number)) continue;
        return rpc::encoded(wire::Error{{StatusCode::kInvalidArgument, "no upgradable snapshot"}}, envelope.sequence);
      }
      wire::BeginReply begun;
      std::vector<Version> open;
      open.reserve(open_ids_.size());
      for (uint64_t id : open_ids_) open.push_back(Version(id));
      begun.snapshot =
          Snapshot::make(Version(open.empty() ? next_id_ - 1 : open[0].value - 1), Version(next_id_ - 1), open).value();
      begun.durable = begun.snapshot.base();
      begun.first_id = TransactionId(next_id_);
      begun.snapshot_number = message.read_only ? next_number_++ : 0;
      begun.catalog_version = catalog_version_;
      begun.upgradable_number = message.upgradable ? next_number_++ : 0;
      if (message.upgradable) upgradable_.insert(begun.upgradable_number);
      const size_t ids = message.read_write + message.upgrades.size();
      for (size_t i = 0; i < ids; ++i) open_ids_.insert(next_id_++);
      observations_.begun += ids;
      return rpc::encoded(begun, envelope.sequence);
    }
    case Opcode::kComplete:
      return rpc::encoded(complete(rpc::decoded<wire::Complete>(reader)), envelope.sequence);
    case Opcode::kReleaseSnapshots:
      for (uint64_t number : rpc::decoded<wire::ReleaseSnapshots>(reader).numbers) {
        observations_.released.insert(number);
        upgradable_.erase(number);
      }
      return {};
    case Opcode::kCreateTable:
      return create_table(envelope, rpc::decoded<wire::CreateTable>(reader));
    case Opcode::kDropTable:
      return drop_table(envelope, rpc::decoded<wire::DropTable>(reader));
    case Opcode::kRenameTable:
      return rename_table(envelope, rpc::decoded<wire::RenameTable>(reader));
    case Opcode::kCloseSession:
      fenced_ = true;  // recovery aborts its open transactions
      return rpc::encoded(wire::CloseSessionReply{}, envelope.sequence);
    default:
      return rpc::encoded(wire::Error{{StatusCode::kInvalidArgument, "the scripted manager does not do that"}},
                          envelope.sequence);
  }
}

}  // namespace loam::client
