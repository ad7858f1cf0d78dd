// Opens tables and indexes, and replaces errors of the client library by messages that name a command to continue.
#include "deploy/cli/src/index/handles.h"

#include <fmt/format.h>

#include "deploy/cli/src/index/index_text.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

Status no_such_index(client::Client& client, const client::Table& table, const std::string& name) {
  LOAM_ASSIGN_OR_RETURN(const std::vector<client::Index> indexes, client.list_indexes());
  std::string there;
  for (const client::Index& index : indexes) {
    if (index.table().id() == table.id()) there += (there.empty() ? "" : ", ") + index.name();
  }
  return Status(StatusCode::kNoSuchTable,
                there.empty() ? fmt::format("there is no index {}; table {} has none: `{}` says how to create one",
                                            name, table.name(), hint(Hint::kIndexCreateHelp))
                              : fmt::format("there is no index {}; table {} has {}", name, table.name(), there));
}

}  // namespace

Result<client::Table> open_table(client::Client& client, const std::string& name) {
  auto table = client.open_table(name);
  if (table.code() == StatusCode::kNoSuchTable) {
    return Status(StatusCode::kNoSuchTable,
                  fmt::format("there is no table {}; it may have been dropped or renamed: `{}` "
                              "lists the tables",
                              name, hint(Hint::kTableList)));
  }
  if (table.code() != StatusCode::kWrongTableKind) return table;
  // Tables and indexes share one name space. This name belongs to an index.
  LOAM_ASSIGN_OR_RETURN(const client::Index index, client.open_index(name));
  return Status(StatusCode::kWrongTableKind,
                fmt::format("{} is an index of table {}: `{}` reads by it", name, index.table().name(),
                            hint(Hint::kScanByIndex, {index.table().name(), name})));
}

Result<client::Index> open_index(client::Client& client, const client::Table& table, const std::string& name) {
  auto index = client.open_index(name);
  if (index.code() == StatusCode::kNoSuchTable) return no_such_index(client, table, name);
  if (index.ok() && index->table().id() != table.id()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("index {} is of table {}, not of {}", name, index->table().name(), table.name()));
  }
  return index;
}

Status check_ready(const client::Index& index) {
  if (index.ready()) return ok_status();
  if (index.damaged()) {
    return Status(
        StatusCode::kMalformed,
        fmt::format("index {0} is damaged: records were accepted as lost after it was built. Create it again:\n"
                    "  {1} && {2}",
                    index.name(), hint(Hint::kIndexDrop, {index.name()}), create_command(index)));
  }
  return Status(
      StatusCode::kConflict,
      fmt::format("index {} is still being built; `{}` shows when it is ready. If the program that built it is "
                  "gone, this continues the build:\n  {}",
                  index.name(), hint(Hint::kIndexList), create_command(index)));
}

}  // namespace loam::cli
