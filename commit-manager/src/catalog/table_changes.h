// Changes of the catalog on their way to all storage nodes.
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

/// How storage nodes are told. Implemented by Core. The sequence comes back with the node's answer. A node that is not
/// connected at the moment is not told: it has the change from its next registration.
class NodeChannel {
 public:
  virtual ~NodeChannel() = default;
  /// Numbers all requests of the commit manager to storage nodes, rising.
  virtual uint64_t next_sequence() = 0;
  virtual void install(NodeId node, uint64_t sequence, const wire::InstallTable& message) = 0;
  virtual void remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) = 0;
  /// The number of the first state of the disk that has everything that has changed by now; 0: nothing is stored.
  virtual uint64_t state_number() = 0;
  /// Whether the disk has that state: nodes hear of no change that a crash could take back (R11).
  virtual bool is_stored(uint64_t state) const = 0;
};

/// Makes creates and drops atomic across the cluster (R30): whoever asked is answered when every node whose lease ran
/// at the start has acknowledged or has lost its lease. A node that registers anew goes on serving by what it knew
/// until it has read the answer, which brings it the whole catalog; it is told again behind that, and awaited as
/// before.
///
/// A create that a node refuses (for want of memory, say) is taken back everywhere and answered with the node's error.
/// Creates of one name and definition that arrive meanwhile wait for the same change, and so do repeated drops of one
/// table.
///
/// Owner: Core. One thread. Answers are given by settle() alone, so that no callback runs in the middle of a change;
/// call it at the end of everything that may have finished one.
class TableChanges {
 public:
  using CreateDone = std::function<void(Result<wire::TableCreated>)>;
  using DropDone = std::function<void(Result<wire::TableDropped>)>;

  TableChanges(CatalogStore& catalog, NodeChannel& nodes) : catalog_(catalog), nodes_(nodes) {}

  void create(const wire::CreateTable& request, CreateDone done);
  void drop(const wire::DropTable& request, DropDone done);
  /// Records are gone for good, or what a transaction wrote stays half undone: what is built of the indexes may lack
  /// some of it from now on. Those that are still being built go, so that their builders begin anew; finished ones are
  /// damaged for every transaction that begins from now on. Before any id that this leaves half undone is completed.
  void damage_indexes();
  /// The shard map was dealt out; `informed` knows it already.
  void shards_dealt(NodeId informed);

  /// A node's answer; `outcome` is ok, or its error. Passed over if nothing is awaited of it.
  void acknowledge(NodeId node, uint64_t sequence, const Status& outcome);
  /// It has lost its lease: nothing is awaited of it. The catalog that it gets with the next one brings it everything.
  void stop_awaiting(NodeId node);
  /// Tells the nodes of the changes that are stored by now.
  void tell_stored();
  /// It has registered over another connection, and what was sent over the one before may be lost.
  void tell_again(NodeId node);
  bool awaits(uint64_t sequence) const { return changes_.contains(sequence); }
  /// Finishes what waits for nobody any longer, and answers.
  void settle();

  size_t pending() const { return changes_.size(); }
  /// Not every node has the shard map yet.
  bool spreading_shards() const { return spreading_shards_ > 0; }

 private:
  enum class Kind : uint8_t { kCreate, kDrop, kShards };
  struct Change {
    Kind kind{};
    wire::TableInfo table;
    std::vector<NodeId> awaited;
    std::vector<CreateDone> creators;  ///< the first one created it, the others met it
    std::vector<DropDone> droppers;
    Status failure;
    uint64_t state = 0;  ///< nodes are told when the disk has it
    bool told = false;
  };

  /// Its table is gone, or goes: waits for the same change, if it is still under way.
  void repeat_drop(const wire::DropTable& request, DropDone done);
  void drop_indexes(TableId table);
  void drop_index(const std::string& name);
  uint64_t start(Change change, NodeId informed = NodeId(0));
  void tell(NodeId node, uint64_t sequence, const Change& change);
  void tell_if_stored(uint64_t sequence, Change& change);
  void finish(Change change);
  Status has_room(const std::string& name) const;

  CatalogStore& catalog_;
  NodeChannel& nodes_;
  std::map<uint64_t, Change> changes_;  // by sequence
  size_t spreading_shards_ = 0;
  std::vector<std::function<void()>> answers_;  // decided at once, given by settle()
};

}  // namespace loam::commit
