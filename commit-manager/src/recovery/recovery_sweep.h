// The sweep of the indexes for orphaned tree nodes of ended sessions.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"

namespace loam::commit {

class RecoveryEngine;

/// Removes orphaned tree nodes from every index of the catalog. A tree node is an orphan if the tree does not reach it
/// and its maker is a session in `ended`. These sessions are fenced at every storage node [R31, structure changes of
/// the Bd-tree; bdtree::Tree::collect_orphans()].
/// Called in a fiber. Adds the number of removed nodes to `removed`.
///
/// A sweep costs a scan of the keys of each index's nodes and a read of its inner nodes, about one in a hundred. Only
/// nodes without a parent are examined one by one. The sweep skips indexes that are dropped meanwhile, have no tree
/// yet, or have lost a part of their tree. It tries all indexes, and returns the error of a node that did not answer.
Status sweep_indexes(RecoveryEngine& engine, const std::shared_ptr<const wire::Catalog>& catalog,
                     const wire::FenceSet& ended, uint64_t& removed);

}  // namespace loam::commit
