// The trees of a client's indexes, and what commits change in them.
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

/// Runs of index changes that one transaction has in flight. Each takes a fiber, and a commit of many thousand changes
/// must leave fibers to others.
inline constexpr size_t kMaxIndexRunsInFlight = 64;
/// Changes of a run. A longer one is divided, so that the parts go on together when its leaf is split.
inline constexpr size_t kMaxIndexRun = 64;
/// Fibers that all commits of a client together take for index changes, beside the committing ones: half of
/// kReservedFibers, so that calls of ordinary threads find the other half. A commit that gets none makes its changes
/// one after the other.
inline constexpr size_t kMaxIndexFibers = kReservedFibers / 2;

/// One index's tree, as one session reads and changes it.
struct IndexTree {
  IndexTree(std::shared_ptr<TreeStore> nodes, const bdtree::TreeOptions& options)
      : store(std::move(nodes)), tree(bdtree::Tree::open(*store, options)) {}

  std::shared_ptr<TreeStore> store;
  std::unique_ptr<bdtree::Tree> tree;
};

/// An error of a tree, with the name of the index (and more of what was wanted), and what to do.
Status of_index(const std::string& what, const Status& status);
/// That of an index which the catalog says is damaged: kMalformed.
Status damaged_index(const std::string& name);

/// Opens each index's tree once a session, so that all transactions share its cache and their changes travel together.
/// A session's end ends its trees: what one of its transactions writes late is refused at the nodes, as the undo by
/// recovery needs it (R2, R27).
///
/// Owner: the client; the worker's thread, in fibers. Destroyed after the engine was closed.
class Trees final : public IndexWriter {
 public:
  explicit Trees(Engine& engine) : engine_(engine) {}

  /// With a cache of its own, that lives as long as what is given and serves the commit of `id` too; TransactionId()
  /// for a transaction that only reads. Nothing if ClientOptions::index_cache_shared.
  std::shared_ptr<Trees> of_transaction(TransactionId id);
  /// These trees, `self`, are of a transaction that had no id when they were made.
  void belongs_to(TransactionId id, const std::shared_ptr<Trees>& self) { all_->apart_[id] = self; }

  /// kNoSuchTable: the index was dropped.
  Result<std::shared_ptr<IndexTree>> open(const std::shared_ptr<Session>& session, TableId index);
  Result<std::shared_ptr<const IndexKeys>> keys(const Index& index);

  /// kUnknownOutcome also for an exception.
  Status change(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                std::span<const wire::IndexChange> changes, bool undo) override;

  /// The most fibers that ever made index changes at once, beside the committing ones.
  size_t most_fibers() const { return most_fibers_; }

 private:
  Trees(Engine& engine, Trees* all) : engine_(engine), all_(all) {}

  /// Of an index that the catalog knows, else nothing: its entries then go when their keys are changed.
  const bdtree::Collector* collector(TableId index);
  Result<std::shared_ptr<IndexTree>> make(const std::shared_ptr<Session>& session, TableId index);
  /// Changes under one key of one tree: one swap.
  using Group = std::vector<const wire::IndexChange*>;
  /// Changes that one fiber makes: those of one leaf, as far as the tree's cache knows.
  struct Run {
    std::shared_ptr<IndexTree> tree;
    std::span<const Group> groups;
  };
  /// What the swap carries, so that recovery can undo the changes (R5). Refers to the changes' keys.
  static std::vector<wire::IndexIntent> intents_of(TransactionId transaction, const Group& group);
  /// Takes the next run out of the changes of some indexes, each in the order of its keys.
  static Run cut(std::vector<Run>& left);
  /// Refers to what it is given.
  static bdtree::Change edit_of_group(const CommitMachine::Context& transaction, const Group& group, bool undo);
  Status change(const CommitMachine::Context& transaction, const Run& run, bool undo, Reserve reserve);
  /// What the result of a tree means to the commit: an index that was dropped needs no change.
  Status result_of(const Status& made, const wire::IndexChange& change, bool undo) const;

  /// change() without its answer for exceptions.
  Status change_groups(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                       std::span<const wire::IndexChange> changes, bool undo);
  /// Runs `work`, which shares what there is to do with itself, in this fiber and in up to `fibers` - 1 others. Returns
  /// when all have ended; throws the first exception of one.
  void work_together(const std::function<void()>& work, size_t fibers);

  Engine& engine_;
  Trees* const all_ = nullptr;                           // the client's, if these are one transaction's
  std::map<TransactionId, std::weak_ptr<Trees>> apart_;  // of those that have trees of their own
  std::shared_ptr<Session> session_;                     // of the trees below
  std::map<TableId, std::shared_ptr<IndexTree>> trees_;
  std::map<TableId, std::shared_ptr<const IndexKeys>> keys_;
  /// Every open and later snapshot sees versions up to here: the newest that a transaction which changes entries was
  /// told at its begin (R13). True for ever, whoever's session has ended meanwhile.
  Version seen_by_all_;
  std::map<TableId, std::unique_ptr<const bdtree::Collector>> collectors_;  // trees and their deferred work use them
  size_t fibers_ = 0;  // that make index changes now, see kMaxIndexFibers
  size_t most_fibers_ = 0;
};

}  // namespace loam::client
