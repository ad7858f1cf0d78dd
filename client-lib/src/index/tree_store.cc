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

/// Numbers that one draw takes: a node is split far more seldom than it is changed. Whoever undoes or removes may have
/// to, so draws take the room for undo: a few bytes.
constexpr uint64_t kNumbers = 256;
/// Others' swaps take a round trip.
constexpr RetryOptions kSwapRetry{.max_attempts = 0, .initial_backoff_ns = 20'000, .max_backoff_ns = 2'000'000};

}  // namespace

TreeStore::TreeStore(Engine& engine, const Table& nodes, std::shared_ptr<Session> session)
    : NodeStore(nodes.id()),
      engine_(engine),
      nodes_(nodes),
      session_(std::move(session)),
      numbers_(engine, "tree " + std::to_string(nodes.id().value), kNumbers, Reserve::kUndo) {}

Result<std::shared_ptr<TreeStore>> TreeStore::open(Engine& engine, const std::string& name) {
  LOAM_ASSIGN_OR_RETURN(const wire::TableCreated created,
                        engine.change_catalog<wire::TableCreated>(
                            wire::CreateTable{name, TableKind::kNonTransactional, wire::index_node_schema()}));
  if (created.table.schema != wire::index_node_schema()) {
    return Status(StatusCode::kMalformed, "table " + name + " was made with another schema than was asked for");
  }
  auto store = std::make_shared<TreeStore>(engine, make_table(created.table), nullptr);
  LOAM_RETURN_IF_ERROR(store->prepare());
  return store;
}

Status TreeStore::prepare() {
  LOAM_RETURN_IF_ERROR(numbers_.open());  // first: a tree that is there has its numbers
  numbers_open_ = true;
  Status made = bdtree::Tree::create(*this);
  return made.code() == StatusCode::kAlreadyExists ? ok_status() : made;
}

std::vector<Result<StoredNode>> TreeStore::read(std::span<const Key> keys) {
  const auto session = session_ != nullptr ? session_ : engine_.present();
  // On behalf of a transaction: entries that its snapshot sees may be gone when its session is over.
  const auto under = session_ != nullptr ? PointReads::UnderSession::kOne : PointReads::UnderSession::kAny;
  auto reads = std::make_shared<PointReads>(engine_, session, nodes_, under);
  reads->start(keys);
  reads->wait();
  std::vector<Result<StoredNode>> nodes;
  nodes.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const Result<Record> record = reads->take(i);
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
    // A counter that was lost begins again nowhere: it would give numbers that the tree has had. [R31]
    if (!numbers_open_) LOAM_RETURN_IF_ERROR(numbers_.open(Counter::Impl::IfAbsent::kRefuse));  // twice is once
    numbers_open_ = true;
    return numbers_.next();
  };
  const auto number = draw();
  if (number.ok()) return TreeNodeId(bdtree::kRoot.value + *number);
  if (number.code() != StatusCode::kNotFound) return number.status();
  // To a commit, kNotFound would say that a record is not there.
  return Status(StatusCode::kMalformed, "the counter of its nodes was lost");
}

uint64_t TreeStore::owner() { return session_ != nullptr ? session_->id().value : engine_.session_id().value; }

void TreeStore::defer(std::function<void()> work) {
  if (engine_.closing()) return;
  engine_.spawn_own([self = shared_from_this(), work = std::move(work)] { work(); }, [] {});
}

void TreeStore::back_off(uint32_t attempt) {
  engine_.worker().scheduler().sleep_for(backoff_ns(kSwapRetry, attempt - 1, engine_.random()));
}

}  // namespace loam::client
