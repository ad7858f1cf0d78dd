// The workload of transfers between accounts, with concurrent checks of the sum of all balances.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"

namespace loam::bench {

/// Options of the workload.
struct TransferOptions {
  std::string table = "accounts";
  uint64_t accounts = 10'000;
  unsigned fibers = 64;
  uint64_t duration_ns = 10'000'000'000;
  uint64_t seed = 1;
};

/// The balance of each account at the beginning.
inline constexpr int64_t kOpeningBalance = 1'000;

/// Quantiles of the latency of transfers: from the first begin to the acknowledgement of the commit, retries included.
struct Latencies {
  uint64_t p50_ns = 0, p99_ns = 0, p999_ns = 0, max_ns = 0;

  /// Computes the quantiles of samples, which it sorts. All zero without samples.
  static Latencies of(std::vector<uint64_t>& samples_ns);
};

/// The result of one run.
struct TransferReport {
  uint64_t transfers = 0;  ///< acknowledged
  uint64_t given_up = 0;   ///< every attempt met a conflict; nothing was written
  double seconds = 0;
  Latencies latencies;
  client::ClientStatistics statistics;  ///< of the transfers, without the scans
  uint64_t scans = 0;                   ///< sums that were computed while transfers ran
  double scan_seconds = 0;
  std::vector<std::string> wrong;  ///< the first violations: a sum, a balance, an error
  uint64_t wrong_count = 0;        ///< number of all violations
  bool ok() const { return wrong_count == 0; }
};

/// Creates and fills the table. kAlreadyExists: the table has records.
Result<client::Table> open_accounts(client::Client& client, const TransferOptions& options);

/// Runs the workload. Fibers of `mover` move money between random accounts (2 reads and 2 updates in each transaction),
/// while the calling thread sums all balances by shared scans of `watcher`, one after another. Each sum and each number
/// of accounts must be exact. At the end every balance is compared with the acknowledged transfers.
TransferReport run_transfers(client::Client& mover, client::Client& watcher, const client::Table& table,
                             const TransferOptions& options);

}  // namespace loam::bench
