// What ended sessions have left half made in indexes.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"

namespace loam::commit {

class RecoveryEngine;

/// In a fiber: removes from the tree of every index of the catalog the nodes that it does not reach and whose maker is
/// fenced by `ended` at every storage node [R31, bdtree::Tree::collect_orphans]. Adds their number to `removed`.
///
/// Costs a scan of the keys of each index's nodes and a read of its inner nodes, about one in a hundred; only nodes
/// that no parent leads to are looked at one by one. Indexes that are dropped meanwhile, have no tree yet, or have lost
/// a part of theirs are left out. Errors are a node's that does not answer, after all indexes were tried.
Status sweep_indexes(RecoveryEngine& engine, const std::shared_ptr<const wire::Catalog>& catalog,
                     const wire::FenceSet& ended, uint64_t& removed);

}  // namespace loam::commit
