// The search for orphans in each index of the catalog. recovery_scan.cc lists the tree nodes, and the Bd-tree decides
// which of them are orphans.
#include "commit-manager/src/recovery/recovery_sweep.h"

#include <vector>

#include <loam/bdtree/tree.h>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "commit-manager/src/recovery/recovery_scan.h"
#include "commit-manager/src/recovery/recovery_tree.h"
#include "common/base/env.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using bdtree::TreeNodeId;

Result<uint64_t> sweep(RecoveryEngine& engine, const std::shared_ptr<const wire::Catalog>& catalog,
                       const wire::TableInfo& index, const wire::FenceSet& ended) {
  // Step 1: the keys of all records of the index, which are the ids of its tree nodes. The scan does not send the
  // rows.
  std::vector<TreeNodeId> nodes;
  Query query;
  query.with_key = true;
  const auto take = [&nodes](const ChunkView& view) {
    for (size_t row = 0; row < view.rows(); ++row) nodes.emplace_back(view.get<uint64_t>(0, row));
  };
  {
    RecoveryScan scan(engine, catalog, {index.id, wire::index_node_schema(), query, "index " + index.name, take});
    scan.start();
    LOAM_RETURN_IF_ERROR(scan.wait());
  }
  // Step 2: tree nodes without a parent are suspects only, because a split or merge of a live client may be under way.
  // collect_orphans() removes a suspect only if its maker is fenced everywhere, so that no write of the maker can still
  // link it.
  RecoveryTreeStore store(engine, index.id);
  const auto tree = bdtree::Tree::open(store, kRecoveryTree);
  LOAM_ASSIGN_OR_RETURN(const std::vector<TreeNodeId> suspects, tree->without_parent(nodes));
  if (!suspects.empty()) Env::probe("recoverer.sweep.suspects");
  const auto has_ended = [&](uint64_t owner) { return ended.fenced(SessionId(owner)); };
  LOAM_ASSIGN_OR_RETURN(const size_t removed, tree->collect_orphans(suspects, has_ended));
  if (removed != 0) Env::probe("recoverer.sweep.removed");
  return removed;
}

}  // namespace

Status sweep_indexes(RecoveryEngine& engine, const std::shared_ptr<const wire::Catalog>& catalog,
                     const wire::FenceSet& ended, uint64_t& removed) {
  Status failed;
  for (const wire::TableInfo& table : catalog->tables) {
    if (!table.index || table.index.state() == wire::IndexState::kDamaged)
      continue;  // a damaged index is only dropped as a whole
    const Result<uint64_t> swept = sweep(engine, catalog, table, ended);
    if (swept.ok()) removed += *swept;
    // The index was dropped meanwhile, or has no whole tree.
    const bool none = swept.code() == StatusCode::kNoSuchTable || swept.code() == StatusCode::kMalformed;
    if (!swept.ok() && !none && failed.ok()) failed = swept.status();
  }
  return failed;
}

}  // namespace loam::commit
