// Access to the tree nodes of an index, and the undo of index changes through it. The Bd-tree finds the leaf, and
// bdtree::IndexEntries removes the marks of a transaction.
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
#include "common/rpc/channel.h"
#include "common/wire/storage.h"

namespace loam::commit {
namespace {

using bdtree::StoredNode;
using bdtree::TreeNodeId;

/// First pause after a conflict: about a round trip, within which the other writer finishes its swap.
constexpr uint64_t kBackOffNs = 100'000;

}  // namespace

// ---- RecoveryTreeStore ---------------------------------------------------------------------------------------------

Status RecoveryTreeStore::failed(NodeId node, Status status) {
  if (is_unavailable(status)) blocked_by_ = node;
  engine_.note_failure(node, status);
  return status;
}

std::vector<Result<StoredNode>> RecoveryTreeStore::read(std::span<const Key> keys) {
  struct Request {
    NodeId node;
    std::vector<size_t> wanted;
    rpc::Call<wire::PlainReadReply> call;
  };
  // One message for each storage node. All of them are sent before the fiber waits for the first reply, so the read
  // costs one round trip.
  std::map<NodeId, Request> requests;
  for (size_t i = 0; i < keys.size(); ++i) requests[engine_.owner(table(), keys[i])].wanted.push_back(i);
  for (auto& [node, request] : requests) {
    wire::PlainRead message;
    for (const size_t index : request.wanted) message.records.push_back({table(), keys[index]});
    request.call.send(engine_.channel(node), message, engine_.request_deadline_ns());
  }
  // A key without a result keeps this error: a reply with too few results is treated like a missing one.
  std::vector<Result<StoredNode>> nodes(
      keys.size(), Status(StatusCode::kUnavailable, "a storage node answered with too few results"));
  for (auto& [node, request] : requests) {
    Status answered = node_failure(request.call.wait());
    if (!answered.ok()) answered = failed(node, std::move(answered));
    const auto& results = request.call.reply().results;
    for (size_t i = 0; i < request.wanted.size(); ++i) {
      Result<StoredNode>& read = nodes[request.wanted[i]];
      if (!answered.ok()) {
        read = answered;
      } else if (i < results.size()) {
        read = results[i].code == StatusCode::kOk
                   ? decode(results[i].version, results[i].row)
                   : failed(node, Status(results[i].code, "a tree node of an index cannot be read"));
      }
    }
  }
  return nodes;
}

Result<Version> RecoveryTreeStore::write(const wire::PlainWrite::Operation& operation,
                                         std::span<const wire::IndexIntent> intents) {
  // The write is sent once. If its reply is lost, it may have been executed. The next attempt reads the tree node again
  // and finds the marks gone, or removes them then.
  wire::PlainWrite message;
  message.operations.push_back(operation);
  message.intents.assign(intents.begin(), intents.end());
  const NodeId node = engine_.owner(table(), operation.record.key);
  rpc::Call<wire::PlainWriteReply> call;
  call.send(engine_.channel(node), message, engine_.request_deadline_ns());
  if (Status answered = node_failure(call.wait()); !answered.ok()) return failed(node, std::move(answered));
  if (call.reply().results.size() != 1)
    return Status(StatusCode::kUnavailable, "a storage node answered with a wrong number of results");
  const wire::WriteResult& result = call.reply().results[0];
  if (result.code == StatusCode::kOk) return result.version;
  const StatusCode code = wire::plain_write_code(operation.kind, result.code);
  return failed(node, Status(code, "a tree node of an index cannot be changed"));
}

Result<TreeNodeId> RecoveryTreeStore::new_id() { return engine_.new_tree_node(); }

uint64_t RecoveryTreeStore::owner() { return engine_.options().session.value; }

void RecoveryTreeStore::defer(std::function<void()>) {}

void RecoveryTreeStore::back_off(uint32_t attempt) { engine_.sleep_for(kBackOffNs * attempt); }

// ---- IndexUndo -----------------------------------------------------------------------------------------------------

namespace {

/// Undoes the changes under one key of one tree, by one update of the tree. A repetition finds no mark and writes
/// nothing.
Status undo_group(const RecoveryEngine& engine, bdtree::Tree& tree, std::span<const wire::Intent* const> group) {
  using bdtree::Edit;
  const wire::Intent& first = *group.front();
  const std::optional<Key> record = first.shared ? std::nullopt : std::optional(first.record);
  const Status undone = tree.update(
      first.key,
      [&](std::optional<std::string_view> payload) -> Result<Edit> {
        LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, record));
        const std::vector<bdtree::IndexEntry> before = entries.entries();
        for (const wire::Intent* change : group) entries.undo(change->record, change->transaction);
        if (entries.entries() == before) return Edit::keep();
        return entries.empty() ? Edit::erase() : Edit::put(entries.encode());
      },
      Reserve::kUndo);  // has room even if removes have used up theirs (R6, room before the claim)
  // A dropped index needs no undo (R30, table creation and drop). Neither does a tree that was never made or has lost
  // nodes: the update then fails with kMalformed, and no client reads the index. In an index that clients read,
  // kMalformed is a fault, and the transaction stays open.
  const bool no_tree = undone == StatusCode::kMalformed && !engine.index_ready(first.table);
  return undone == StatusCode::kNoSuchTable || no_tree ? ok_status() : undone;
}

}  // namespace

IndexUndo::Outcome IndexUndo::undo(std::span<const wire::Intent* const> changes) {
  using Place = std::pair<TableId, std::string_view>;
  std::map<Place, std::vector<const wire::Intent*>> groups;
  for (const wire::Intent* change : changes) groups[{change->table, change->key}].push_back(change);
  // Each call of the work below takes the next group, not the one of its number: a map has no access by position.
  auto next = groups.begin();
  Outcome outcome;
  engine_.parallel_for(groups.size(), [&](size_t) {
    const auto& [place, group] = *next++;
    Index& index = indexes_.try_emplace(place.first, engine_, place.first).first->second;
    const Status undone = undo_group(engine_, *index.tree, group);
    if (undone.ok()) {
      engine_.count_index_changes(group.size());
    } else if (outcome.status.ok()) {  // the first failure counts; the other groups are undone all the same
      outcome = {undone, is_unavailable(undone) ? index.store.blocked_by() : NodeId()};
    }
  });
  return outcome;
}

}  // namespace loam::commit
