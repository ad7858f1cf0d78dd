// How messages name records and say what became of them.
#pragma once

#include <string>
#include <string_view>

#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::client {

/// "record 7 of table accounts".
std::string describe(const Table& table, Key key);
/// What a node's code says of a record: "exists already".
std::string_view explain(StatusCode code);
/// The two together as a status: "kAlreadyExists: record 7 of table accounts exists already".
Status refused(const Table& table, Key key, StatusCode code);

}  // namespace loam::client
