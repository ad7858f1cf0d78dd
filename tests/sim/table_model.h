// The oracle's model of the catalog: judges tables that clients create and drop (R30, table creation and drop).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The model of the catalog.
///
/// A drop removes the table from the catalog at once, and from the nodes one after another. Until the drop is
/// acknowledged, one node may serve the table while another refuses it.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock.
class TableModel {
 public:
  explicit TableModel(Verdict& verdict) : verdict_(verdict) {}

  /// Client::create_table or open_table returned a table. `schema`: the schema of the returned table, as text.
  /// `wanted`: the schema in the call. `requested_at`: a moment before the call.
  void created(std::string_view table, TableId id, std::string_view schema, std::string_view wanted,
               LogicalTime requested_at);
  void opened(std::string_view table, TableId id, std::string_view schema, LogicalTime requested_at);
  /// create_table returned kAlreadyExists: some client must have created the table with another schema.
  void create_refused(std::string_view table, std::string_view wanted, LogicalTime requested_at);
  /// open_table returned kNoSuchTable.
  void absent(std::string_view table, LogicalTime requested_at);

  /// list_tables() was called at `requested_at`. The caller has told opened() every table that it returned.
  void listed(LogicalTime requested_at);

  /// Called before a drop. Returns the number of the drop.
  size_t drop_called(std::string_view table);
  void drop_returned(size_t drop, StatusCode code);

  /// A request for the table that was sent after `requested_at` was answered. served(): with data, including "not
  /// found". refused(): with kNoSuchTable.
  void served(TableId id, LogicalTime requested_at);
  void refused(TableId id, LogicalTime requested_at);

  uint64_t tables_created() const { return tables_.size(); }

 private:
  struct KnownTable {
    std::string name;
    std::string schema;
    LogicalTime requested_at = 0;      // moment before the call that first returned the table
    LogicalTime returned_at = 0;       // moment after that call
    LogicalTime last_returned_at = 0;  // last moment at which created() or opened() named the table
    LogicalTime unlisted_by = kNever;  // a request after this moment does not find the table in the catalog
    LogicalTime dropped_by = kNever;   // no node serves the table either, because a drop was acknowledged
  };
  struct Drop {
    std::string name;
    LogicalTime requested_at = 0;
    LogicalTime ended = kNever;  // kNever: the drop has not ended, or its outcome is unknown
  };
  void note_returned(std::string_view table, TableId id, std::string_view schema, LogicalTime requested_at);
  /// Some drop may have removed the table by now.
  bool may_be_dropped(const KnownTable& table) const;
  static void unlisted(KnownTable& table, LogicalTime by) { table.unlisted_by = std::min(table.unlisted_by, by); }
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  std::map<TableId, KnownTable> tables_;
  std::map<std::string, std::vector<TableId>, std::less<>> by_name_;
  std::deque<Drop> drops_;
};

}  // namespace loam::sim
