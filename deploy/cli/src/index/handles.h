// Opens tables and indexes by the names that the user types.
#pragma once

#include <string>

#include <loam/client/client.h>

#include "common/base/status.h"

namespace loam::cli {

/// Opens a table by name. kWrongTableKind: the name belongs to an index; the message says how to read by that index.
/// Other errors are those of Client::open_table.
Result<client::Table> open_table(client::Client& client, const std::string& name);

/// Opens an index of `table` by name, whether it is built or not. kNoSuchTable: there is no such index; the message
/// lists the indexes of the table. kInvalidArgument: the index belongs to another table.
Result<client::Index> open_index(client::Client& client, const client::Table& table, const std::string& name);

/// Checks that an index can be read. kConflict: it is still being built; the message says how to see when it is ready,
/// and how to continue the build if its client is gone. kMalformed: it is damaged; the message says how to rebuild it.
Status check_ready(const client::Index& index);

}  // namespace loam::cli
