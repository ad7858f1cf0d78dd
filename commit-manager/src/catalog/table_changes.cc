// Creations, alterations, drops and shard maps as changes that storage nodes acknowledge (R30, table creation and
// drop). A change passes start(), send_if_stored(), acknowledge() and finish(). catalog_store.cc keeps the tables, and
// the core sends the messages (NodeChannel).
#include "commit-manager/src/catalog/table_changes.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/wire/system_tables.h"

namespace loam::commit {

Status TableChanges::check_pending_limit(const std::string& name) const {
  if (changes_.size() < kMaxPendingChanges) return ok_status();
  return {StatusCode::kOverloaded, "table " + name + ": " + std::to_string(kMaxPendingChanges) +
                                       " changes of the catalog are waiting for storage nodes; try again later"};
}

void TableChanges::create(const wire::CreateTable& request, CreateDone done) {
  const auto answer = [&](Result<wire::CreateTableReply> result) {
    answers_.emplace_back([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  };
  if (Status status = catalog_.check(request); !status.ok()) return answer(std::move(status));
  // The name exists: this is a repetition, or another client creates the same table. Both succeed if the definitions
  // agree. A pending table may still fail at a storage node, so this request then waits for the outcome of the first.
  if (const CatalogStore::TableEntry* found = catalog_.find(request.name); found != nullptr) {
    wire::TableInfo shown = found->table;
    if (found->adding) shown.schema = shown.schema.with_added(static_cast<uint8_t>(shown.schema.added() - 1));
    if (Status status = CatalogStore::check_same_definition(shown, request); !status.ok())
      return answer(std::move(status));
    // The requester gets the fields that it has asked for, so the reply is no larger than the request.
    const size_t further = shown.schema.size() - request.schema.size();
    shown.schema = shown.schema.with_added(static_cast<uint8_t>(shown.schema.added() - further));
    if (!found->pending) return answer(wire::CreateTableReply{std::move(shown), true, catalog_.version()});
    for (auto& [sequence, change] : changes_) {
      if (change.kind != Kind::kCreate || change.table.id != found->table.id) continue;
      Env::probe("manager.table.created_together");
      change.creators.push_back(std::move(done));
      return;
    }
    LOAM_CHECK(false, "a pending table has a change under way");
  }
  if (Status status = check_pending_limit(request.name); !status.ok()) return answer(std::move(status));
  Result<wire::TableInfo> table = catalog_.add(request);
  if (!table.ok()) return answer(table.status());
  Change change;
  change.kind = Kind::kCreate;
  change.table = std::move(table).value();
  change.creators.push_back(std::move(done));
  start(std::move(change));
}

void TableChanges::drop(const wire::DropTable& request, DropDone done) {
  const auto refuse = [&](StatusCode code, const std::string& why) {
    answers_.emplace_back(
        [done = std::move(done), status = Status(code, "table " + request.name + why)] { done(status); });
  };
  if (request.name.size() > wire::kMaxTableNameBytes) {
    answers_.emplace_back([done = std::move(done)] {
      done(Status(StatusCode::kNoSuchTable,
                  "no table has a name that is longer than " + std::to_string(wire::kMaxTableNameBytes) + " bytes"));
    });
    return;
  }
  if (wire::is_system_name(request.name)) {
    return refuse(StatusCode::kInvalidArgument, " is one of Loam's own tables and cannot be dropped");
  }
  // A request with the id of a table that the name no longer has is a repetition: the first drop is under way or has
  // ended. It must not drop a later table of the same name.
  const CatalogStore::TableEntry* found = catalog_.find(request.name);
  const bool gone = found == nullptr || found->pending;
  if (request.table != TableId() && (gone || found->table.id != request.table)) {
    // The requester means a table that somebody has renamed meanwhile. It may not know that, so nothing is dropped.
    if (const CatalogStore::TableEntry* renamed = catalog_.find(request.table); renamed != nullptr) {
      Env::probe("manager.table.drop_of_renamed");
      return refuse(StatusCode::kNoSuchTable,
                    " was renamed to " + renamed->table.name + " meanwhile; it was not dropped");
    }
    return repeat_drop(request, std::move(done));
  }
  if (gone) return refuse(StatusCode::kNoSuchTable, " does not exist");
  // A builder that fails drops its index with `unfinished`. If the index was finished meanwhile, transactions may read
  // it already, so it stays.
  const bool building = found->table.index && found->table.index.state() == wire::IndexState::kBuilding;
  if (request.unfinished && !building) {
    return refuse(StatusCode::kConflict, " is not an index that is being built; it is not dropped");
  }
  if (const Status status = check_pending_limit(request.name); !status.ok()) {
    return refuse(status.code(), ": too many changes are waiting for storage nodes; try again later");
  }
  // The table leaves the catalog before a storage node hears of the drop, so no later catalog leads a transaction to a
  // table that is being removed. Its indexes go first: without the table no transaction maintains them.
  Change change;
  change.kind = Kind::kDrop;
  change.table = found->table;
  change.droppers.push_back(std::move(done));
  drop_indexes(change.table.id);
  end_alterations(change.table.id);
  catalog_.remove(request.name);
  start(std::move(change));
}

void TableChanges::end_alterations(TableId table) {
  for (auto& [sequence, change] : changes_) {
    if ((change.kind != Kind::kRename && change.kind != Kind::kAddField) || change.table.id != table) continue;
    Env::probe("manager.table.alteration_ended_by_drop");
    change.awaited.clear();
  }
}

void TableChanges::rename(const wire::RenameTable& request, RenameDone done) {
  const CatalogStore::TableEntry* found = catalog_.find(request.name);
  if (request.table != TableId() && (found == nullptr || found->pending || found->table.id != request.table)) {
    return repeat_rename(request, std::move(done));
  }
  Status status = catalog_.check(request);
  if (status.ok()) status = check_pending_limit(request.name);
  if (!status.ok()) {
    answers_.emplace_back([done = std::move(done), status = std::move(status)] { done(status); });
    return;
  }
  Change change;
  change.kind = Kind::kRename;
  change.table = catalog_.rename(request.name, request.new_name);
  change.renamers.push_back(std::move(done));
  start(std::move(change));
}

void TableChanges::add_field(const wire::AddField& request, AddFieldDone done) {
  const auto answer = [&](Result<wire::AddFieldReply> result) {
    answers_.emplace_back([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  };
  const CatalogStore::TableEntry* found = catalog_.find(request.table);
  if (found == nullptr || found->pending) {
    return answer(Status(StatusCode::kNoSuchTable, "there is no table " + std::to_string(request.table.value)));
  }
  const std::string where = "table " + found->table.name + ": ";
  if (found->table.index) return answer(Status(StatusCode::kWrongTableKind, where + "it is an index"));
  if (wire::is_system_name(found->table.name) || request.field.size() != 1) {
    return answer(Status(StatusCode::kInvalidArgument,
                         where + (request.field.size() != 1 ? "one field is added at a time"
                                                            : "it is one of Loam's own tables, which do not change")));
  }
  // The field exists: this is a repetition, or another client adds the same field. Both succeed.
  const Field& field = request.field.field(0);
  if (const auto number = found->table.schema.find(field.name); number.has_value()) {
    const Field& present = found->table.schema.field(*number);
    if (!present.added || !(present == field)) {
      return answer(Status(StatusCode::kAlreadyExists,
                           where + "it has a field '" + field.name + "' of type " + to_string(present.type) +
                               "; fields are neither changed nor removed: create another table, and copy the records"));
    }
    for (auto& [sequence, change] : changes_) {
      if (change.kind != Kind::kAddField || change.table.id != request.table) continue;
      if (*number + 1u != change.table.schema.size()) break;  // an earlier field, which is complete
      Env::probe("manager.table.field_added_together");
      change.adders.push_back(std::move(done));
      return;
    }
    return answer(wire::AddFieldReply{true, catalog_.version()});
  }
  Result<Schema> schema = catalog_.check(*found, field);
  if (!schema.ok()) return answer(schema.status());
  if (Status status = check_pending_limit(found->table.name); !status.ok()) return answer(std::move(status));
  Change change;
  change.kind = Kind::kAddField;
  change.table = catalog_.add_field(request.table, std::move(schema).value());
  change.adders.push_back(std::move(done));
  start(std::move(change));
}

void TableChanges::repeat_rename(const wire::RenameTable& request, RenameDone done) {
  const CatalogStore::TableEntry* found = catalog_.find(request.table);
  if (found == nullptr || found->table.name != request.new_name) {
    const std::string name = request.name.substr(0, wire::kMaxTableNameBytes);
    const std::string why = found == nullptr
                                ? " was dropped meanwhile"
                                : " was renamed to " + found->table.name + " meanwhile; it keeps that name";
    answers_.emplace_back(
        [done = std::move(done), status = Status(StatusCode::kNoSuchTable, "table " + name + why)] { done(status); });
    return;
  }
  Env::probe("manager.table.rename_repeated");
  for (auto& [sequence, change] : changes_) {
    if (change.kind != Kind::kRename || change.table.id != request.table || change.table.name != request.new_name) {
      continue;
    }
    change.renamers.push_back(std::move(done));
    return;
  }
  answers_.emplace_back([this, done = std::move(done)] { done(wire::RenameTableReply{catalog_.version()}); });
}

void TableChanges::repeat_drop(const wire::DropTable& request, DropDone done) {
  Env::probe("manager.table.drop_repeated");
  for (auto& [sequence, change] : changes_) {
    if (change.kind != Kind::kDrop || change.table.id != request.table) continue;
    change.droppers.push_back(std::move(done));
    return;
  }
  // No drop of this id is under way, so it has ended, and the requester did not get the reply.
  answers_.emplace_back([this, done = std::move(done)] { done(wire::DropTableReply{catalog_.version()}); });
}

/// Drops the indexes of a table that is being dropped. An index whose creation is under way is dropped by finish().
void TableChanges::drop_indexes(TableId table) {
  for (const std::string& name : catalog_.indexes_of(table)) {
    if (catalog_.find(name)->pending) continue;
    Env::probe("manager.index.dropped_with_table");
    drop_index(name);
  }
}

/// An index that is being built is dropped, not marked. finish_index() then fails with kNoSuchTable, so its builder
/// does not declare an index ready that may lack entries.
void TableChanges::mark_indexes_damaged() {
  if (catalog_.mark_indexes_damaged() != 0) Env::probe("manager.index.damaged");
  for (const std::string& name : catalog_.unfinished_indexes()) {
    Env::probe("manager.index.dropped_with_loss");
    drop_index(name);
  }
}

void TableChanges::drop_index(const std::string& name) {
  Change change;
  change.kind = Kind::kDrop;
  change.table = catalog_.find(name)->table;
  catalog_.remove(name);
  start(std::move(change));
}

void TableChanges::distribute_shard_map(NodeId informed) {
  Change change;
  change.kind = Kind::kShards;
  change.table =
      wire::system_tables().front();  // a table that every node has, so the message changes the shard map alone
  ++pending_shard_maps_;
  start(std::move(change), informed);
}

/// Starts a change that waits for all reachable nodes except `informed`. The nodes are told when the change is
/// stored. The change is in changes_ before the first message, because a reply may come within the send.
uint64_t TableChanges::start(Change change, NodeId informed) {
  const uint64_t sequence = nodes_.next_sequence();
  for (const NodeStatus& node : catalog_.nodes()) {
    if (catalog_.reachable(node.info.id) && node.info.id != informed) change.awaited.push_back(node.info.id);
  }
  change.state = nodes_.state_number();
  send_if_stored(sequence, changes_.emplace(sequence, std::move(change)).first->second);
  return sequence;
}

void TableChanges::send_if_stored(uint64_t sequence, Change& change) {
  if (change.sent || !nodes_.is_stored(change.state)) return;
  change.sent = true;
  for (const NodeId node : change.awaited) send(node, sequence, change);
}

void TableChanges::send_stored() {
  for (auto& [sequence, change] : changes_) send_if_stored(sequence, change);
}

void TableChanges::send(NodeId node, uint64_t sequence, const Change& change) {
  if (change.kind == Kind::kDrop) {
    nodes_.remove(node, sequence, wire::RemoveTable{change.table.id});
  } else {
    nodes_.install(node, sequence, wire::InstallTable{change.table, catalog_.shards()});
  }
}

void TableChanges::acknowledge(NodeId node, uint64_t sequence, const Status& outcome) {
  const auto at = changes_.find(sequence);
  if (at == changes_.end()) return;  // a repeated reply
  // The first failure counts. The change still waits for the other nodes, because finish() undoes it at all of them.
  if (std::erase(at->second.awaited, node) > 0 && !outcome.ok() && at->second.failure.ok()) {
    at->second.failure = {outcome.code(), "a storage node refused it: " + std::string(outcome.message())};
  }
}

void TableChanges::stop_awaiting(NodeId node) {
  for (auto& [sequence, change] : changes_) std::erase(change.awaited, node);
}

void TableChanges::resend(NodeId node) {
  for (const auto& [sequence, change] : changes_) {
    // A change whose state is not stored yet is sent when it is stored (send_stored()).
    if (!change.sent || std::ranges::find(change.awaited, node) == change.awaited.end()) continue;
    Env::probe("manager.table.told_again");
    send(node, sequence, change);
  }
}

void TableChanges::complete_acknowledged() {
  const auto idle = [](const auto& entry) { return entry.second.awaited.empty(); };
  // finish() may add a change that waits for no node, so each search starts at the front again.
  while (true) {
    const auto at = std::find_if(changes_.begin(), changes_.end(), idle);
    if (at == changes_.end()) break;
    Change done = std::move(at->second);
    changes_.erase(at);
    finish(std::move(done));  // may start another change
  }
  // A callback may make the next request, which adds to answers_. That answer follows with the next call.
  std::vector<std::function<void()>> answers;
  answers.swap(answers_);
  for (auto& answer : answers) answer();
}

void TableChanges::finish(Change change) {
  switch (change.kind) {
    case Kind::kShards:
      --pending_shard_maps_;
      return;
    case Kind::kDrop:
      for (const DropDone& done : change.droppers) done(wire::DropTableReply{catalog_.version()});
      return;
    case Kind::kRename:
      // A failure does not count: a storage node serves the table under any name, and gets the name again with its next
      // registration.
      for (const RenameDone& done : change.renamers) done(wire::RenameTableReply{catalog_.version()});
      return;
    case Kind::kAddField: {
      // A failure does not count, as for a rename: a node without memory for the table has its new definition.
      const bool dropped = !catalog_.known_table(change.table.id);
      if (!dropped) catalog_.finish_field(change.table.id);
      for (size_t i = 0; i < change.adders.size(); ++i) {
        if (dropped) {
          change.adders[i](Status(StatusCode::kNoSuchTable, "table " + change.table.name + " was dropped meanwhile"));
        } else {
          change.adders[i](wire::AddFieldReply{i > 0, catalog_.version()});
        }
      }
      return;
    }
    case Kind::kCreate:
      break;
  }
  // A creation of an index whose table was dropped meanwhile: drop_indexes() has left this index out, because it was
  // pending.
  if (change.table.index && !catalog_.known_table(change.table.index.table)) {
    change.failure = {StatusCode::kNoSuchTable, "its table was dropped meanwhile"};
  }
  // A failed creation: the nodes that have accepted the table drop it again. The requesters need not wait for that,
  // because clients have never seen the table.
  if (!change.failure.ok()) {
    Env::probe("manager.table.create_undone");
    catalog_.remove(change.table.name);
    Change undo;
    undo.kind = Kind::kDrop;
    undo.table = change.table;
    start(std::move(undo));
    const Status status(change.failure.code(), "table " + change.table.name +
                                                   " could not be created: " + std::string(change.failure.message()));
    for (const CreateDone& done : change.creators) done(status);
    return;
  }
  // A successful creation: every node that serves has the table, so clients may see it. The first requester has
  // created it, and the others are told that it existed.
  catalog_.activate(change.table.name);
  for (size_t i = 0; i < change.creators.size(); ++i) {
    change.creators[i](wire::CreateTableReply{change.table, i > 0, catalog_.version()});
  }
}

}  // namespace loam::commit
