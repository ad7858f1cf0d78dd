// IndexTrees: the trees of a client's indexes, and the changes that commits make in them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <loam/bdtree/tree.h>
#include <loam/client/index.h>

#include "client-lib/src/driver/engine.h"
#include "client-lib/src/driver/index_writer.h"
#include "client-lib/src/index/index_keys.h"
#include "client-lib/src/index/tree_store.h"

namespace loam::client {

/// Most leaf batches that one transaction has in flight. Each takes a fiber, and a commit of many thousand changes
/// must leave fibers to others.
inline constexpr size_t kMaxLeafBatchesInFlight = 64;
/// Most changes of a leaf batch. More changes of one leaf form several batches, which continue in parallel if the
/// leaf is split.
inline constexpr size_t kMaxLeafBatchChanges = 64;
/// Most fibers that all commits of a client together use for index changes, beside the committing ones. It is half of
/// kReservedFibers, so that calls of ordinary threads find the other half. A commit that gets no fiber makes its
/// changes one after the other.
inline constexpr size_t kMaxIndexFibers = kReservedFibers / 2;

/// One index's tree, as one session reads and changes it.
struct IndexTree {
  IndexTree(std::shared_ptr<TreeStore> nodes, const bdtree::TreeOptions& options)
      : store(std::move(nodes)), tree(bdtree::Tree::open(*store, options)) {}

  std::shared_ptr<TreeStore> store;
  std::unique_ptr<bdtree::Tree> tree;
};

/// Adds the name of the index (`what`, possibly with the record) and a hint to an error of its tree.
Status index_error(const std::string& what, const Status& status);
/// The error of an index that is damaged according to the catalog: kMalformed.
Status damaged_index_error(const std::string& name);

/// Holds the open trees of all indexes, and makes the index changes of commits.
///
/// Each tree is opened once in each session, so that all transactions share its cache, and their changes travel
/// together. The trees end with their session. So a late write of an old transaction carries the old session and is
/// refused by the storage nodes, as recovery needs it for the undo (R2, abort order; R27, index entries).
///
/// Owner: the client. Threads: the worker thread, in fibers. Destroyed after the engine was closed.
class IndexTrees final : public IndexWriter {
 public:
  explicit IndexTrees(Engine& engine) : engine_(engine) {}

  /// Makes trees with a private cache for one transaction. The commit of `id` uses them, too; TransactionId() for a
  /// transaction without an id. Null if ClientOptions::index_cache_shared is set.
  std::shared_ptr<IndexTrees> private_trees(TransactionId id);
  /// Gives the private trees `self`, made for a transaction without an id, to the commit of `id`.
  void bind_transaction(TransactionId id, const std::shared_ptr<IndexTrees>& self) {
    shared_trees_->private_trees_[id] = self;
  }

  /// Returns the tree of an index under a session. kNoSuchTable: the index was dropped.
  Result<std::shared_ptr<IndexTree>> open(const std::shared_ptr<Session>& session, TableId index);
  /// Returns the keys of an index.
  Result<std::shared_ptr<const IndexKeys>> keys(const Index& index);

  /// Implements IndexWriter::change(). An exception gives kUnknownOutcome.
  Status change(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                std::span<const wire::IndexChange> changes, bool undo) override;

  /// Highest number of fibers, beside the committing ones, that have made index changes at the same time.
  size_t peak_fibers() const { return peak_fibers_; }

 private:
  IndexTrees(Engine& engine, IndexTrees* all) : engine_(engine), shared_trees_(all) {}

  /// Returns the garbage filter of an index that the catalog has. Returns null for any other index: its tree then
  /// removes garbage only under keys that are changed.
  const bdtree::GarbageFilter* garbage_filter(TableId index);
  Result<std::shared_ptr<IndexTree>> make(const std::shared_ptr<Session>& session, TableId index);
  /// The changes under one key of one tree, which one swap makes.
  using KeyGroup = std::vector<const wire::IndexChange*>;
  /// The changes that one fiber makes together: according to the tree's cache they are changes of one leaf.
  struct LeafBatch {
    std::shared_ptr<IndexTree> tree;
    std::span<const KeyGroup> groups;
  };
  /// The intents that the swap carries, so that recovery can undo the changes (R5, intents before answers). They
  /// refer to the keys of the changes.
  static std::vector<wire::IndexIntent> intents_of(TransactionId transaction, const KeyGroup& group);
  /// Cuts the next leaf batch from the remaining changes. Each element of `left` has the changes of one index in the
  /// order of their keys.
  static LeafBatch next_leaf_batch(std::vector<LeafBatch>& left);
  /// The function that changes one key of the tree. It refers to the arguments.
  static bdtree::Change make_change(const CommitMachine::Context& transaction, const KeyGroup& group, bool undo);
  Status change(const CommitMachine::Context& transaction, const LeafBatch& batch, bool undo, Reserve reserve);
  /// Converts the result of a tree to a result for the commit: an index that was dropped needs no change.
  Status commit_status(const Status& made, const wire::IndexChange& change, bool undo) const;

  /// change() without the handling of exceptions.
  Status change_groups(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                       std::span<const wire::IndexChange> changes, bool undo);
  /// Runs `work` in this fiber and in up to `fibers` - 1 others, which take their tasks from a common list. Returns
  /// when all have ended, and throws the first exception.
  void run_in_fibers(const std::function<void()>& work, size_t fibers);

  Engine& engine_;
  IndexTrees* const shared_trees_ = nullptr;                          // the client's trees, if these are private ones
  std::map<TransactionId, std::weak_ptr<IndexTrees>> private_trees_;  // by transaction
  std::shared_ptr<Session> session_;                                  // the session of trees_
  std::map<TableId, std::shared_ptr<IndexTree>> trees_;
  std::map<TableId, std::shared_ptr<const IndexKeys>> keys_;
  /// Every open and later snapshot sees all versions up to here. It is the highest value that a transaction with
  /// index changes got at its begin (R13, atomic publication). It stays true for ever, also after the end of the
  /// session.
  Version seen_by_all_;
  std::map<TableId, std::unique_ptr<const bdtree::GarbageFilter>>
      garbage_filters_;  // used by trees and their deferred work
  size_t fibers_ = 0;    // fibers that make index changes now (kMaxIndexFibers)
  size_t peak_fibers_ = 0;
};

}  // namespace loam::client
