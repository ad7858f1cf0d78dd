// Tree nodes as records of a non-transactional table, under one session of the client. NodeStore (bdtree) has the row
// format; index_trees.cc opens the stores.
#include "client-lib/src/index/tree_store.h"

#include <utility>

#include <loam/bdtree/tree.h>
#include <loam/client/record.h>

#include "client-lib/src/core/backoff.h"
#include "client-lib/src/driver/plain_write.h"
#include "client-lib/src/driver/point_reads.h"
#include "common/base/pause_point.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using bdtree::StoredNode;
using bdtree::TreeNodeId;

/// Node ids that one draw of the counter takes. Splits are far rarer than changes. An undo or a removal may need an
/// id for a merge, so draws may use the reserve for undo (R6, room before the claim); they need a few bytes.
constexpr uint64_t kIdsPerBlock = 256;
/// Waits after a conflict at a tree node; a swap of another client takes about a round trip.
constexpr RetryOptions kSwapRetry{.max_attempts = 0, .initial_backoff_ns = 20'000, .max_backoff_ns = 2'000'000};

}  // namespace

TreeStore::TreeStore(Engine& engine, const Table& nodes, std::shared_ptr<Session> session)
    : NodeStore(nodes.id()),
      engine_(engine),
      nodes_(nodes),
      session_(std::move(session)),
      node_ids_(engine, "tree " + std::to_string(nodes.id().value), kIdsPerBlock, Reserve::kUndo) {}

Result<std::shared_ptr<TreeStore>> TreeStore::open(Engine& engine, const std::string& name) {
  LOAM_ASSIGN_OR_RETURN(const wire::CreateTableReply created,
                        engine.change_catalog<wire::CreateTableReply>(
                            wire::CreateTable{name, TableKind::kNonTransactional, wire::index_node_schema()}));
  if (created.table.schema != wire::index_node_schema()) {
    return Status(StatusCode::kMalformed, "table " + name + " was created with another schema than requested");
  }
  auto store = std::make_shared<TreeStore>(engine, make_table(created.table), nullptr);
  LOAM_RETURN_IF_ERROR(store->prepare());
  return store;
}

Status TreeStore::prepare() {
  LOAM_RETURN_IF_ERROR(node_ids_.open());  // the counter first, so that every tree has its counter
  node_ids_open_ = true;
  Status made = bdtree::Tree::create(*this);
  return made.code() == StatusCode::kAlreadyExists ? ok_status() : made;
}

std::vector<Result<StoredNode>> TreeStore::read(std::span<const Key> keys) {
  const auto session = session_ != nullptr ? session_ : engine_.current_session();
  // Reads for a transaction must not go on under another session: when the session is over, the snapshot is released,
  // and entries that it sees may be removed.
  const auto policy =
      session_ != nullptr ? PointReads::SessionPolicy::kSameSession : PointReads::SessionPolicy::kAnySession;
  auto reads = std::make_shared<PointReads>(engine_, session, nodes_, policy);
  reads->start(keys);
  reads->wait();
  std::vector<Result<StoredNode>> nodes;
  nodes.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const Result<Record> record = reads->take_result(i);
    nodes.push_back(record.ok() ? decode(record->version(), record->bytes()) : record.status());
  }
  return nodes;
}

Result<Version> TreeStore::write(const wire::PlainWrite::Operation& operation,
                                 std::span<const wire::IndexIntent> intents) {
  return plain_write(engine_, session_, nodes_, operation, intents);
}

Result<Version> TreeStore::insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) {
  const Result<Version> made = NodeStore::insert(id, base, delta, reserve);
  if (made.ok()) Env::pause_point("client.tree.node_made");
  return made;
}

Result<TreeNodeId> TreeStore::new_id() {
  const auto draw = [&]() -> Result<uint64_t> {
    // A lost counter is never created again, because it would hand out ids that the tree has used (R31, structure
    // changes of the Bd-tree).
    if (!node_ids_open_) LOAM_RETURN_IF_ERROR(node_ids_.open(Counter::Impl::IfAbsent::kFail));  // idempotent
    node_ids_open_ = true;
    return node_ids_.next();
  };
  const auto number = draw();
  if (number.ok()) return TreeNodeId(bdtree::kRoot.value + *number);
  if (number.code() != StatusCode::kNotFound) return number.status();
  // A commit would take kNotFound to mean that a record does not exist.
  return Status(StatusCode::kMalformed, "the counter of its nodes was lost");
}

uint64_t TreeStore::owner() { return session_ != nullptr ? session_->id().value : engine_.session_id().value; }

void TreeStore::defer(std::function<void()> work) {
  if (engine_.closing()) return;
  engine_.spawn_background([self = shared_from_this(), work = std::move(work)] { work(); }, [] {});
}

void TreeStore::back_off(uint32_t attempt) {
  engine_.worker().scheduler().sleep_for(backoff_ns(kSwapRetry, attempt - 1, engine_.random()));
}

}  // namespace loam::client
