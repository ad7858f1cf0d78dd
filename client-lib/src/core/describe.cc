#include "client-lib/src/core/describe.h"

#include <utility>

namespace loam::client {

std::string describe(const Table& table, Key key) {
  return "record " + std::to_string(key.value) + " of table " + table.name();
}

std::string_view explain(StatusCode code) {
  switch (code) {
    case StatusCode::kConflict:
      return "was changed by another transaction or writer";
    case StatusCode::kAlreadyExists:
      return "exists already";
    case StatusCode::kNotFound:
      return "does not exist";
    case StatusCode::kNoSpace:
      return "does not fit into its storage node's memory";
    case StatusCode::kOverloaded:
      return "has to wait: its storage node is busy, or collects garbage to make room; try again";
    case StatusCode::kNoSuchTable:
      return "cannot be reached: the table was dropped";
    case StatusCode::kWrongTableKind:
      return "cannot be accessed: its table is of the other kind";
    case StatusCode::kSnapshotTooOld:
      return "cannot be read: the snapshot is too old, begin a new transaction";
    case StatusCode::kWrongShard:
      return "has moved to another storage node, try again";
    default:
      return "was refused by its storage node";
  }
}

Status record_error(const Table& table, Key key, StatusCode code, std::string_view detail) {
  std::string text = describe(table, key) + " " + std::string(explain(code));
  if (!detail.empty()) text.append(": ").append(detail);
  return {code, std::move(text)};
}

}  // namespace loam::client
