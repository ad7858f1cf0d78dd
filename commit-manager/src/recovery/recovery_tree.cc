#include "commit-manager/src/recovery/recovery_tree.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <loam/bdtree/index_entries.h>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "common/fiber/fiber_group.h"
#include "common/schema/row.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using bdtree::StoredNode;
using bdtree::TreeNodeId;
using Fields = wire::IndexNodeFields;

/// Others' swaps take a round trip.
constexpr uint64_t kBackOffNs = 100'000;

Buffer copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

Result<Buffer> row_of(const Schema& schema, std::span<const Bytes> blobs) {
  RowBuilder builder(schema);
  for (size_t i = 0; i < blobs.size(); ++i) LOAM_RETURN_IF_ERROR(builder.set_blob(i, blobs[i]));
  LOAM_ASSIGN_OR_RETURN(const Bytes row, builder.finish());
  return copy(row);
}

}  // namespace

// ---- one request ---------------------------------------------------------------------------------------------------

RecoveryCall::~RecoveryCall() {
  if (RecoveryNode* const node = answered_.happened() ? nullptr : engine_.node(node_)) node->forget(this);
}

template <wire::Message M>
void RecoveryCall::send(NodeId id, const M& message) {
  node_ = id;
  RecoveryNode* const node = engine_.node(id);
  if (node == nullptr) return end({StatusCode::kUnavailable, "no storage node owns a node of an index"});
  const auto sent = node->request(message, this, 0, engine_.options().request_timeout_ns);
  if (!sent.ok()) end(sent.status());
}

Status RecoveryCall::wait() {
  answered_.wait();
  return status_;
}

void RecoveryCall::end(const Status& status) {
  if (answered_.happened()) return;
  status_ = status;
  answered_.notify();
}

Status RecoveryCall::on_reply(uint32_t, wire::Opcode opcode, ByteReader& body) {
  if (opcode == wire::Opcode::kPlainReadReply) {
    wire::PlainReadReply reply;
    LOAM_RETURN_IF_ERROR(wire::decode_body(body, reply));
    for (const wire::ReadResult& result : reply.results) {
      codes.push_back(result.code);
      StoredNode& node = rows.emplace_back();
      if (result.code != StatusCode::kOk) continue;
      LOAM_RETURN_IF_ERROR(validate_row(wire::index_node_schema(), result.row));
      const RowView row(wire::index_node_schema(), result.row);
      node = {result.version, copy(row.blob(Fields::kBase)), copy(row.blob(Fields::kDelta))};
    }
  } else if (opcode == wire::Opcode::kPlainWriteReply) {
    wire::PlainWriteReply reply;
    LOAM_RETURN_IF_ERROR(wire::decode_body(body, reply));
    results = std::move(reply.results);
  } else {
    return rpc::unexpected_reply(opcode);
  }
  end(ok_status());
  return ok_status();
}

void RecoveryCall::on_failure(uint32_t, const Status& status, rpc::Executed executed) {
  if (status == StatusCode::kMalformed) return end({StatusCode::kUnavailable, std::string(status.message())});
  RecoveryNode* const node = executed == rpc::Executed::kRefused ? nullptr : engine_.node(node_);
  if (node != nullptr && !node->paused()) node->note_failure(status);
  end(status);
}

// ---- the store -----------------------------------------------------------------------------------------------------

std::vector<Result<StoredNode>> RecoveryTreeStore::get(std::span<const TreeNodeId> ids) {
  std::map<NodeId, std::vector<size_t>> by_node;
  for (size_t i = 0; i < ids.size(); ++i) by_node[engine_.owner(nodes_, Key(ids[i].value))].push_back(i);
  std::vector<std::pair<const std::vector<size_t>*, std::unique_ptr<RecoveryCall>>> calls;
  for (const auto& [node, wanted] : by_node) {
    wire::PlainRead read;
    for (const size_t index : wanted) read.records.push_back({nodes_, Key(ids[index].value)});
    calls.emplace_back(&wanted, std::make_unique<RecoveryCall>(engine_));
    calls.back().second->send(node, read);
  }
  std::vector<Result<StoredNode>> nodes(ids.size(), Status(StatusCode::kUnavailable, "an answer was too short"));
  for (auto& [wanted, call] : calls) {
    const Status answered = call->wait();
    for (size_t i = 0; i < wanted->size(); ++i) {
      Result<StoredNode>& node = nodes[(*wanted)[i]];
      if (!answered.ok()) {
        node = answered;
      } else if (i < call->codes.size() && call->codes[i] == StatusCode::kOk) {
        node = std::move(call->rows[i]);
      } else if (i < call->codes.size()) {
        node = Status(call->codes[i], "a node of an index cannot be read");
      }
    }
  }
  return nodes;
}

Result<Version> RecoveryTreeStore::write(wire::WriteKind kind, TreeNodeId id, Version expected, Bytes row,
                                         Reserve reserve, FieldNumbers fields) {
  wire::PlainWrite message;
  message.operations.push_back({kind, reserve, {nodes_, Key(id.value)}, expected, row, fields});
  RecoveryCall call(engine_);
  call.send(engine_.owner(nodes_, Key(id.value)), message);
  LOAM_RETURN_IF_ERROR(call.wait());
  if (call.results.size() != 1) return Status(StatusCode::kUnavailable, "an answer of another length");
  StatusCode code = call.results[0].code;
  if (code == StatusCode::kOk) return call.results[0].version;
  if (kind == wire::WriteKind::kInsert && code == StatusCode::kConflict) code = StatusCode::kAlreadyExists;
  if (kind != wire::WriteKind::kInsert && code == StatusCode::kNotFound) code = StatusCode::kConflict;
  return Status(code, "a node of an index cannot be changed");
}

Result<Version> RecoveryTreeStore::insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) {
  LOAM_ASSIGN_OR_RETURN(const Buffer row, row_of(wire::index_node_schema(), std::array{base, delta}));
  return write(wire::WriteKind::kInsert, id, Version(), row, reserve);
}

Result<Version> RecoveryTreeStore::replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve) {
  LOAM_ASSIGN_OR_RETURN(const Buffer row, row_of(wire::index_node_schema(), std::array{base, delta}));
  return write(wire::WriteKind::kUpdate, id, expected, row, reserve);
}

Result<Version> RecoveryTreeStore::replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve) {
  static const Schema schema = Schema::make({wire::index_node_schema().field(Fields::kDelta)}).value();
  static constexpr std::array<uint16_t, 1> kNumbers = {Fields::kDelta};
  LOAM_ASSIGN_OR_RETURN(const Buffer row, row_of(schema, std::array{delta}));
  return write(wire::WriteKind::kUpdateFields, id, expected, row, reserve, FieldNumbers(kNumbers));
}

Status RecoveryTreeStore::remove(TreeNodeId id, Version expected) {
  return write(wire::WriteKind::kRemove, id, expected, {}, Reserve::kRemove).status();
}

Result<TreeNodeId> RecoveryTreeStore::new_id() { return engine_.new_tree_node(); }

uint64_t RecoveryTreeStore::owner() { return engine_.options().session.value; }

void RecoveryTreeStore::defer(std::function<void()>) {}

void RecoveryTreeStore::back_off(uint32_t attempt) { engine_.sleep_for(kBackOffNs * attempt); }

// ---- the undo ------------------------------------------------------------------------------------------------------

namespace {

/// The trees of the indexes that one transaction has changed.
class UndoneTrees {
 public:
  explicit UndoneTrees(RecoveryEngine& engine) : engine_(engine) {}

  bdtree::Tree& of(TableId index) {
    const auto [at, fresh] = trees_.try_emplace(index);
    if (fresh) {
      at->second.store = std::make_unique<RecoveryTreeStore>(engine_, index);
      at->second.tree = bdtree::Tree::open(*at->second.store, kRecoveryTree);
    }
    return *at->second.tree;
  }

 private:
  struct Opened {
    std::unique_ptr<RecoveryTreeStore> store;
    std::unique_ptr<bdtree::Tree> tree;
  };

  RecoveryEngine& engine_;
  std::map<TableId, Opened> trees_;
};

/// Undoes the changes under one key of one tree.
Status undo_group(bdtree::Tree& tree, TransactionId transaction, std::span<const wire::IndexChange* const> group) {
  using bdtree::Edit;
  const wire::IndexChange& first = *group.front();
  const std::optional<Key> record = first.shared ? std::nullopt : std::optional(first.record);
  const Status undone = tree.update(
      first.key,
      [&](std::optional<std::string_view> payload) -> Result<Edit> {
        LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, record));
        const std::vector<bdtree::IndexEntry> before = entries.entries();
        for (const wire::IndexChange* change : group) entries.undo(change->record, transaction);
        if (entries.entries() == before) return Edit::keep();
        return entries.empty() ? Edit::erase() : Edit::put(entries.encode());
      },
      Reserve::kUndo);
  // R30. And a tree that was never made, or that a lost node has taken along, needs no undo: kMalformed.
  const bool nothing = undone == StatusCode::kNoSuchTable || undone == StatusCode::kMalformed;
  return nothing ? ok_status() : undone;
}

}  // namespace

Status undo_index_changes(RecoveryEngine& engine, TransactionId transaction,
                          std::span<const wire::IndexChange> changes) {
  UndoneTrees trees(engine);
  std::map<std::pair<TableId, std::string_view>, std::vector<const wire::IndexChange*>> groups;
  for (const wire::IndexChange& change : changes) groups[{change.index, change.key}].push_back(&change);
  auto next = groups.begin();
  Status failed;
  const auto work = [&] {
    while (next != groups.end() && failed.ok()) {
      const auto& [place, group] = *next++;
      Status undone = undo_group(trees.of(place.first), transaction, group);
      if (!undone.ok() && failed.ok()) failed = std::move(undone);
      engine.count_index_changes(group.size());
    }
  };
  fiber::FiberGroup others(engine.scheduler());
  for (size_t i = 1; i < std::min(groups.size(), kUndoFibers) && others.spawn(work); ++i) {
  }
  work();
  others.wait();
  return failed;
}

}  // namespace loam::commit
