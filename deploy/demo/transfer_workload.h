// The workload of a client process of the demo: fibers that move money, and counts of the outcomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "deploy/demo/accounts.h"
#include "deploy/demo/histogram.h"
#include "deploy/demo/in_flight_keys.h"

namespace loam::cli {

/// Options of the workload.
struct TransferWorkloadOptions {
  unsigned client_number = 0;  ///< selects the rows of the ledger
  unsigned fibers = 32;        ///< at most kMaxFibers
  uint64_t seed = 1;
};

/// Outcomes of all transfers so far.
struct TransferCounts {
  std::vector<uint64_t> acknowledged;  ///< by fiber
  std::vector<uint64_t> unknown;       ///< by fiber: kUnknownOutcome, committed or not
  uint64_t retries_exhausted = 0;      ///< every attempt met a conflict; nothing was written
  uint64_t refused = 0;                ///< session ended, server away, or time over; nothing was written
  uint64_t fenced = 0;                 ///< sessions that ended before the client did
  std::string fatal;                   ///< the first error that a correct cluster never returns; it ends its fiber

  /// Sum of `acknowledged`.
  uint64_t transfers() const;
};

/// A period in which no transfer began that was acknowledged later.
struct Stall {
  uint64_t length_ns = 0;
  uint64_t end_ns = 0;  ///< when the first transfer that began after the stall was acknowledged
};

/// Moves random amounts between random accounts until stop(); each fiber runs one transfer after another. After an
/// error that is_retryable() the fiber continues with another transfer.
///
/// Owner: calls start(), later stop() and join(), before it destroys the client and the tables. Threads: one ordinary
/// thread calls the functions; everything else happens on the client's worker thread, on which all fibers run.
class TransferWorkload {
 public:
  /// `in_flight_keys` receives the keys of the transfers in flight; it may be null.
  TransferWorkload(client::Client& client, const AccountTables& tables, const TransferWorkloadOptions& options,
                   InFlightKeys* in_flight_keys);

  /// Starts the fibers.
  void start();
  /// Makes each fiber end after its present transfer.
  void stop();
  /// Waits for the end of all fibers.
  void join();

  /// The outcomes so far.
  TransferCounts counts();
  /// Latencies of the transfers that were acknowledged since the last call: from the first begin to the
  /// acknowledgement, retries included.
  Histogram fetch_and_reset_latencies();
  /// The longest stall that ended since the last call.
  Stall fetch_and_reset_longest_stall();

 private:
  void move_until_stopped(unsigned fiber);
  void record_success(unsigned fiber, uint64_t begin_ns);
  void record_failure(unsigned fiber, const Status& status);

  client::Client& client_;
  const AccountTables& tables_;
  const TransferWorkloadOptions options_;
  InFlightKeys* const in_flight_keys_;
  std::vector<client::Task> tasks_;

  // The client's worker thread only.
  bool stopped_ = false;
  TransferCounts counts_;
  Histogram latencies_;
  Stall longest_stall_;
  uint64_t newest_begin_ns_ = 0;  // begin of the newest acknowledged transfer; 0: there is none
};

}  // namespace loam::cli
