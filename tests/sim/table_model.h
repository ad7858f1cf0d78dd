// Tables that are created and dropped while clients work, judged from what clients did and saw (R30).
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
/// A drop takes a table from the catalog at once, and from the nodes one after the other: until it is acknowledged one
/// may serve what another one refuses already.
///
/// Owner: the Oracle. Threads: every entry takes the verdict's lock.
class TableModel {
 public:
  explicit TableModel(Verdict& verdict) : verdict_(verdict) {}

  /// Client::create_table or open_table returned a table. `wanted`: the schema given, as text; for open_table the
  /// schema's text that came. `asked`: before the call.
  void created(std::string_view table, TableId id, std::string_view schema, std::string_view wanted, Moment asked);
  void opened(std::string_view table, TableId id, std::string_view schema, Moment asked);
  /// create_table was answered kAlreadyExists: somebody must have made it with another schema.
  void create_refused(std::string_view table, std::string_view wanted, Moment asked);
  /// open_table was answered kNoSuchTable.
  void absent(std::string_view table, Moment asked);

  /// list_tables() was asked for then, and all that it returned was told by opened() since.
  void listed(Moment asked);

  /// Before the call. Returns its number.
  size_t drop_called(std::string_view table);
  void drop_returned(size_t drop, StatusCode code);

  /// A read, scan or write of that table that was asked for at `asked` was answered: with data (also "not found"), or
  /// kNoSuchTable.
  void served(TableId id, Moment asked);
  void refused(TableId id, Moment asked);

  uint64_t tables_created() const { return tables_.size(); }

 private:
  struct Known {
    std::string name;
    std::string schema;
    Moment asked = 0;             // by the call that first told of it
    Moment told = 0;              // then
    Moment told_last = 0;         // by created() or opened()
    Moment unlisted_by = kNever;  // the catalog does not have it for whoever asks after this
    Moment dropped_by = kNever;   // no node serves it either: a drop was acknowledged
  };
  struct Drop {
    std::string name;
    Moment asked = 0;
    Moment ended = kNever;  // kNever: under way, or nobody knows
  };
  void told(std::string_view table, TableId id, std::string_view schema, Moment asked);
  /// Some drop may have taken it away by now.
  bool may_be_dropped(const Known& table) const;
  static void unlisted(Known& table, Moment by) { table.unlisted_by = std::min(table.unlisted_by, by); }
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  std::map<TableId, Known> tables_;
  std::map<std::string, std::vector<TableId>, std::less<>> by_name_;
  std::deque<Drop> drops_;
};

}  // namespace loam::sim
