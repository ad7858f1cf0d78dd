// Texts for errors of single records.
#pragma once

#include <string>
#include <string_view>

#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::client {

/// "record 7 of table accounts".
std::string describe(const Table& table, Key key);
/// A storage node's code in words: "exists already".
std::string_view explain(StatusCode code);
/// Both together as a status: "kAlreadyExists: record 7 of table accounts exists already". `detail` is the storage
/// node's own explanation; empty: there is none.
Status record_error(const Table& table, Key key, StatusCode code, std::string_view detail = {});

}  // namespace loam::client
