// Money moves between accounts, while the sum of all balances is watched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"

namespace loam::bench {

struct TransferOptions {
  std::string table = "accounts";
  uint64_t accounts = 10'000;
  unsigned fibers = 64;
  uint64_t duration_ns = 10'000'000'000;
  uint64_t seed = 1;
};

/// What each account has at the beginning.
inline constexpr int64_t kOpeningBalance = 1'000;

/// Quantiles of the time from the first begin of a transfer to the acknowledgement of its commit, retries included.
struct Latencies {
  uint64_t p50_ns = 0, p99_ns = 0, p999_ns = 0, max_ns = 0;

  /// Of any samples, which it sorts; all zero without samples.
  static Latencies of(std::vector<uint64_t>& samples_ns);
};

struct TransferReport {
  uint64_t transfers = 0;  ///< acknowledged
  uint64_t given_up = 0;   ///< lost every attempt; nothing happened
  double seconds = 0;
  Latencies latencies;
  client::ClientStatistics statistics;  ///< of the transfers alone
  uint64_t scans = 0;                   ///< sums taken while the money moved
  double scan_seconds = 0;
  std::vector<std::string> wrong;  ///< what did not hold: a sum, a balance, an error; the first few
  uint64_t wrong_count = 0;
  bool ok() const { return wrong_count == 0; }
};

/// Makes the table and fills it. kAlreadyExists if it has records.
Result<client::Table> open_accounts(client::Client& client, const TransferOptions& options);

/// Fibers of `mover` move money between random accounts (2 reads and 2 updates a transaction) while the calling thread
/// sums all balances through shared scans of `watcher`, one after another: each sum, and each number of accounts, must
/// be exact. At the end every single balance is compared with what the acknowledged transfers make it.
TransferReport run_transfers(client::Client& mover, client::Client& watcher, const client::Table& table,
                             const TransferOptions& options);

}  // namespace loam::bench
