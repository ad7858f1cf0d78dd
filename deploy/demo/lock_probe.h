// Measures how long keys stay locked after the death of the client that wrote them.
#pragma once

#include <cstdint>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"
#include "deploy/demo/accounts.h"

namespace loam::cli {

/// Measures when accounts become writable again. Writes each account, with its present value, in a transaction of its
/// own and repeats the transaction until it commits; all accounts run at once. Returns for each account the time from
/// `since_ns` to the acknowledgement of its commit. kTimeout: an account was not written within `timeout_ns`; the
/// message names it. Blocks.
Result<std::vector<uint64_t>> measure_unlock_times(client::Client& client, const AccountTables& tables,
                                                   const std::vector<uint64_t>& accounts, uint64_t since_ns,
                                                   uint64_t timeout_ns);

/// Measures the time from `since_ns` to the first acknowledged begin of a read-write transaction. kTimeout. Blocks.
Result<uint64_t> time_until_begin(client::Client& client, uint64_t since_ns, uint64_t timeout_ns);

}  // namespace loam::cli
