#include "commit-manager/src/recovery/recovery_tree.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <loam/bdtree/index_entries.h>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "common/fiber/fiber_group.h"
#include "common/rpc/channel.h"
#include "common/wire/storage.h"

namespace loam::commit {
namespace {

using bdtree::StoredNode;
using bdtree::TreeNodeId;

/// Others' swaps take a round trip.
constexpr uint64_t kBackOffNs = 100'000;

}  // namespace

// ---- the store -----------------------------------------------------------------------------------------------------

void RecoveryTreeStore::note_failure(NodeId id, const Status& status, rpc::Executed executed) {
  RecoveryNode* const node = executed == rpc::Executed::kRefused ? nullptr : engine_.node(id);
  if (node != nullptr) node->note_failure(status);
}

std::vector<Result<StoredNode>> RecoveryTreeStore::read(std::span<const Key> keys) {
  struct Request {
    NodeId node;
    std::vector<size_t> wanted;
    rpc::Call<wire::PlainReadReply> call;
  };
  std::map<NodeId, Request> requests;
  for (size_t i = 0; i < keys.size(); ++i) requests[engine_.owner(table(), keys[i])].wanted.push_back(i);
  for (auto& [node, request] : requests) {
    wire::PlainRead message;
    for (const size_t index : request.wanted) message.records.push_back({table(), keys[index]});
    request.call.send(engine_.channel(node), message, engine_.request_deadline_ns());
  }
  std::vector<Result<StoredNode>> nodes(keys.size(), Status(StatusCode::kUnavailable, "an answer was too short"));
  for (auto& [node, request] : requests) {
    const Status answered = node_failure(request.call.wait());
    if (!answered.ok()) note_failure(node, answered, request.call.executed());
    const auto& results = request.call.reply().results;
    for (size_t i = 0; i < request.wanted.size(); ++i) {
      Result<StoredNode>& read = nodes[request.wanted[i]];
      if (!answered.ok()) {
        read = answered;
      } else if (i < results.size()) {
        read = results[i].code == StatusCode::kOk ? decode(results[i].version, results[i].row)
                                                  : Status(results[i].code, "a node of an index cannot be read");
      }
    }
  }
  return nodes;
}

Result<Version> RecoveryTreeStore::write(const wire::PlainWrite::Operation& operation) {
  wire::PlainWrite message;
  message.operations.push_back(operation);
  const NodeId node = engine_.owner(table(), operation.record.key);
  rpc::Call<wire::PlainWriteReply> call;
  call.send(engine_.channel(node), message, engine_.request_deadline_ns());
  const Status answered = node_failure(call.wait());
  if (!answered.ok()) note_failure(node, answered, call.executed());
  LOAM_RETURN_IF_ERROR(answered);
  if (call.reply().results.size() != 1) return Status(StatusCode::kUnavailable, "an answer of another length");
  const wire::WriteResult& result = call.reply().results[0];
  if (result.code == StatusCode::kOk) return result.version;
  return Status(wire::plain_write_code(operation.kind, result.code), "a node of an index cannot be changed");
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
  struct Helper {
    explicit Helper(size_t& helpers) : count(&helpers) { ++*count; }
    Helper(Helper&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
    Helper& operator=(Helper&&) = delete;
    ~Helper() {
      if (count != nullptr) --*count;
    }
    size_t* count;
  };
  size_t& helpers = engine.undo_helpers();
  for (size_t i = 1; i < std::min(groups.size(), kUndoFibers) && helpers < kMaxUndoHelpers; ++i) {
    if (!others.spawn([&work, helper = Helper(helpers)] { work(); })) break;
  }
  work();
  others.wait();
  return failed;
}

}  // namespace loam::commit
