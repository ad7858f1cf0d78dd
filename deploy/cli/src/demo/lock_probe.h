// How long keys stay locked after the process that held them is gone.
#pragma once

#include <cstdint>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"
#include "deploy/cli/src/demo/accounts.h"

namespace loam::cli {

/// Writes every one of these accounts (the value that it has) in a transaction of its own, each tried again and again
/// until it commits, all at once. Returns, for each, the time from `since_ns` to the acknowledgement of its commit.
/// kTimeout: one could not be written within `timeout_ns`, and the message names it. Blocks.
Result<std::vector<uint64_t>> time_until_writable(client::Client& client, const AccountTables& tables,
                                                  const std::vector<uint64_t>& accounts, uint64_t since_ns,
                                                  uint64_t timeout_ns);

/// The time from `since_ns` to the first begin of a read-write transaction that is answered. kTimeout. Blocks.
Result<uint64_t> time_until_begin(client::Client& client, uint64_t since_ns, uint64_t timeout_ns);

}  // namespace loam::cli
