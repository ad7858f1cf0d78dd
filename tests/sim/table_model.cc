// The model of the catalog. A client cannot know which table of a name a drop has removed. A table may therefore be
// gone if some drop of its name had not ended before the call that first returned the table.
#include "tests/sim/table_model.h"

#include <mutex>

namespace loam::sim {

void TableModel::created(std::string_view table, TableId id, std::string_view schema, std::string_view wanted,
                         LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (schema != wanted) {
    violate("create-schema", "create_table of " + std::string(table) + " " + std::string(wanted) + " returned table " +
                                 std::to_string(id.value) + " " + std::string(schema));
  }
  note_returned(table, id, schema, requested_at);
}

void TableModel::opened(std::string_view table, TableId id, std::string_view schema, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  note_returned(table, id, schema, requested_at);
}

void TableModel::note_returned(std::string_view table, TableId id, std::string_view schema, LogicalTime requested_at) {
  // The catalog gives an id once. Under it, name and schema never change.
  const auto [entry, fresh] = tables_.try_emplace(id);
  KnownTable& known = entry->second;
  if (fresh) known = {std::string(table), std::string(schema), requested_at, verdict_.last(), 0, kNever, kNever};
  known.last_returned_at = verdict_.last();
  const std::string text = "table " + std::to_string(id.value) + " " + std::string(table);
  if (known.name != table || known.schema != schema) {
    violate("table-id-twice", text + " " + std::string(schema) + ", which was " + known.name + " " + known.schema);
  }
  if (known.unlisted_by < requested_at) violate("dropped-table-read", text + " was opened after its drop");
  if (!fresh) return;
  std::vector<TableId>& ids = by_name_[known.name];
  for (const TableId other_id : ids) {
    KnownTable& other = tables_.at(other_id);
    if (!may_be_dropped(other) && !may_be_dropped(known)) {
      violate("create-twice", text + " and table " + std::to_string(other_id.value) + ", which no client dropped");
    }
    // Ids rise: the catalog lacked the table with the lower id when a client was told of the other.
    KnownTable& older = other_id < id ? other : known;
    unlisted(older, other_id < id ? known.returned_at : other.returned_at);
    if (known.unlisted_by < requested_at) violate("create-twice", text + " was returned after its successor");
  }
  ids.push_back(id);
}

bool TableModel::may_be_dropped(const KnownTable& table) const {
  return std::any_of(drops_.begin(), drops_.end(),
                     [&](const Drop& drop) { return drop.name == table.name && drop.ended > table.requested_at; });
}

void TableModel::create_refused(std::string_view table, std::string_view wanted, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const auto ids = by_name_.find(table);
  if (ids == by_name_.end()) return;
  for (const TableId id : ids->second) {
    const KnownTable& known = tables_.at(id);
    if (known.returned_at < requested_at && known.schema == wanted && !may_be_dropped(known)) {
      violate("create-refused",
              "table " + known.name + " " + known.schema + " exists, and an equal create_table was refused");
    }
  }
}

void TableModel::absent(std::string_view table, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const auto ids = by_name_.find(table);
  if (ids == by_name_.end()) return;
  for (const TableId id : ids->second) {
    const KnownTable& known = tables_.at(id);
    if (known.returned_at < requested_at && !may_be_dropped(known)) {
      violate("table-lost", "table " + known.name + " could not be opened, and no client dropped it");
    }
  }
}

void TableModel::listed(LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  for (const auto& [id, known] : tables_) {
    // The list must name every table that existed before the call and that no client has dropped.
    if (known.last_returned_at > requested_at || known.returned_at > requested_at || may_be_dropped(known)) continue;
    violate("table-lost", "table " + known.name + " is not in the list, and no client dropped it");
  }
}

size_t TableModel::drop_called(std::string_view table) {
  const std::lock_guard lock(verdict_.mutex());
  drops_.push_back({std::string(table), verdict_.next(), kNever});
  return drops_.size() - 1;
}

void TableModel::drop_returned(size_t number, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  Drop& drop = drops_[number];
  if (code != StatusCode::kOk && code != StatusCode::kNoSuchTable) return;  // the drop may still take effect
  drop.ended = verdict_.last();
  const auto ids = by_name_.find(drop.name);
  if (ids == by_name_.end()) return;
  // Every older table of the name is gone from all nodes, whichever of them this drop removed: nodes execute drops in
  // the order of the catalog.
  for (const TableId id : ids->second) {
    KnownTable& known = tables_.at(id);
    if (known.returned_at >= drop.requested_at) continue;
    unlisted(known, drop.ended);
    if (code == StatusCode::kOk) known.dropped_by = std::min(known.dropped_by, drop.ended);
  }
}

void TableModel::served(TableId id, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  const auto known = tables_.find(id);
  if (known == tables_.end() || known->second.dropped_by >= requested_at) return;
  violate("dropped-table-read", "table " + std::to_string(id.value) + " " + known->second.name + " was read at event " +
                                    std::to_string(requested_at) + ", although it was dropped by event " +
                                    std::to_string(known->second.dropped_by));
}

void TableModel::refused(TableId id, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const auto known = tables_.find(id);
  if (known == tables_.end()) return;
  if (!may_be_dropped(known->second)) {
    violate("table-lost", "table " + std::to_string(id.value) + " " + known->second.name +
                              " was answered kNoSuchTable to a request of event " + std::to_string(requested_at) +
                              ", and no client dropped it");
  }
  unlisted(known->second, verdict_.last());
}

}  // namespace loam::sim
