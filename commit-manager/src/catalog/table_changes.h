// Creations, renames, added fields and drops of tables, and how all storage nodes hear of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "commit-manager/src/catalog/catalog_store.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// Sends messages about catalog changes to storage nodes. Core implements it. The sequence comes back with the node's
/// reply. Nothing is sent to a node that is not connected: it gets the change with its next registration.
class NodeChannel {
 public:
  virtual ~NodeChannel() = default;
  /// Returns the next sequence, which rises over all requests of the commit manager to storage nodes.
  virtual uint64_t next_sequence() = 0;
  /// Sends a table or the shard map to the node.
  virtual void install(NodeId node, uint64_t sequence, const wire::InstallTable& message) = 0;
  /// Tells the node that a table was dropped.
  virtual void remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) = 0;
  /// Returns the number of the first state that contains all changes up to now; 0 if states are not stored at all.
  virtual uint64_t state_number() = 0;
  /// True if the state is stored. Nodes hear of stored changes only, because a crash could undo any other (R11,
  /// commit log and restart of the commit manager).
  virtual bool is_stored(uint64_t state) const = 0;
};

/// Makes creations and drops of tables atomic across the cluster (R30, table creation and drop). The requester is
/// answered when every node whose lease ran at the start has acknowledged the change or has lost its lease. A node
/// that registers again serves by its old catalog until it has read the reply, which has the whole catalog. It gets
/// the change again behind the reply, and the change waits for it as before.
///
/// A creation that a node refuses, for lack of memory for example, is undone everywhere and answered with the node's
/// error. Creations of the same name and definition that arrive meanwhile wait for the same change, and so do
/// repeated drops of one table.
///
/// A rename is in the catalog at once, because nothing but names depends on it: storage nodes and open transactions use
/// the id. No storage node can refuse it. The drop of a table ends its pending renames: a storage node that registers
/// again must not get a dropped table back by a repeated message about its name.
///
/// An added field (decision 0027) is hidden from clients until every node knows it. No node can refuse it, because it
/// needs no memory. It is never undone: a commit manager that restarts shows it at once.
///
/// Owner: Core. One thread. complete_acknowledged() alone gives answers, so no callback runs in the middle of a
/// change. The owner calls it at the end of everything that may have finished a change.
class TableChanges {
 public:
  using CreateDone = std::function<void(Result<wire::CreateTableReply>)>;
  using DropDone = std::function<void(Result<wire::DropTableReply>)>;
  using AddFieldDone = std::function<void(Result<wire::AddFieldReply>)>;
  using RenameDone = std::function<void(Result<wire::RenameTableReply>)>;

  TableChanges(CatalogStore& catalog, NodeChannel& nodes) : catalog_(catalog), nodes_(nodes) {}

  void create(const wire::CreateTable& request, CreateDone done);
  void drop(const wire::DropTable& request, DropDone done);
  void rename(const wire::RenameTable& request, RenameDone done);
  void add_field(const wire::AddField& request, AddFieldDone done);
  /// Called when the loss of records is accepted, so that indexes may lack entries from now on. Drops the indexes
  /// that are being built, so that their builders start again. Marks ready indexes as damaged for every transaction
  /// that begins from now on. The caller makes this call before it completes an id whose writes are in part lost.
  void mark_indexes_damaged();
  /// Sends the shard map, which was just dealt out, to all reachable nodes except `informed`.
  void distribute_shard_map(NodeId informed);

  /// Takes a node's reply; `outcome` is ok or the node's error. Ignored if no change waits for the node.
  void acknowledge(NodeId node, uint64_t sequence, const Status& outcome);
  /// Stops waiting for a node that has lost its lease. It gets the whole catalog with its next registration.
  void stop_awaiting(NodeId node);
  /// Sends the changes that are stored by now to the nodes.
  void send_stored();
  /// Sends pending changes again to a node that has registered over another connection.
  void resend(NodeId node);
  bool awaits(uint64_t sequence) const { return changes_.contains(sequence); }
  /// Finishes the changes that wait for no node any more, and answers their requesters.
  void complete_acknowledged();

  size_t pending() const { return changes_.size(); }
  /// True if some node has not acknowledged the shard map yet.
  bool distributing_shard_map() const { return pending_shard_maps_ > 0; }

 private:
  enum class Kind : uint8_t { kCreate, kRename, kAddField, kDrop, kShards };
  struct Change {
    Kind kind{};
    wire::TableInfo table;
    std::vector<NodeId> awaited;
    std::vector<CreateDone> creators;  ///< requesters; the first one started the change
    std::vector<DropDone> droppers;
    std::vector<RenameDone> renamers;
    std::vector<AddFieldDone> adders;  ///< requesters of a field; the first one started the change
    Status failure;
    uint64_t state = 0;  ///< number of the state that has to be stored before nodes are told
    bool sent = false;
  };

  /// Answers a repeated drop as the first one: when the drop that is under way has ended, or at once if it has ended.
  void repeat_drop(const wire::DropTable& request, DropDone done);
  /// Answers a request to rename a table that has another name than the request says: a repetition, or a mistake.
  void repeat_rename(const wire::RenameTable& request, RenameDone done);
  /// Ends the pending renames and added fields of a table that is being dropped.
  void end_alterations(TableId table);
  void drop_indexes(TableId table);
  void drop_index(const std::string& name);
  uint64_t start(Change change, NodeId informed = NodeId(0));
  void send(NodeId node, uint64_t sequence, const Change& change);
  void send_if_stored(uint64_t sequence, Change& change);
  void finish(Change change);
  Status check_pending_limit(const std::string& name) const;

  CatalogStore& catalog_;
  NodeChannel& nodes_;
  std::map<uint64_t, Change> changes_;  // by sequence
  size_t pending_shard_maps_ = 0;
  std::vector<std::function<void()>> answers_;  // answers decided at once; complete_acknowledged() gives them
};

}  // namespace loam::commit
