// Tables and indexes by the names that a person types.
#pragma once

#include <string>

#include <loam/client/client.h>

#include "common/base/status.h"

namespace loam::cli {

/// The table of that name. kWrongTableKind, and what to do instead, if it is an index's; else as Client::open_table.
Result<client::Table> open_table(client::Client& client, const std::string& name);

/// The index of that name, built or not, of this table. kNoSuchTable says which there are; kInvalidArgument: it is one
/// of another table.
Result<client::Index> open_index(client::Client& client, const client::Table& table, const std::string& name);

/// kConflict if the index is still being built: it says how to see when it can be read, and how to go on if whoever
/// built it is gone.
Status check_ready(const client::Index& index);

}  // namespace loam::cli
