// Fibers that move money, and what they have seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "deploy/cli/src/demo/accounts.h"
#include "deploy/cli/src/demo/held_keys.h"
#include "deploy/cli/src/demo/histogram.h"

namespace loam::cli {

struct MoverOptions {
  unsigned client_number = 0;  ///< whose rows of the ledger these fibers write
  unsigned fibers = 32;        ///< up to kMostFibers
  uint64_t seed = 1;
};

/// What happened to the transfers so far.
struct MoverCounts {
  std::vector<uint64_t> acknowledged;  ///< by fiber
  std::vector<uint64_t> unknown;       ///< by fiber: kUnknownOutcome, happened or not
  uint64_t gave_up = 0;                ///< lost every attempt against others; nothing happened
  uint64_t refused = 0;                ///< the session had ended, a server was away, the time was up; nothing happened
  uint64_t fenced = 0;                 ///< sessions that ended before the client did
  std::string fatal;                   ///< the first error that no transfer may meet; its fiber has ended

  uint64_t transfers() const;
};

/// The longest time in which no transfer began, of those that were acknowledged.
struct Silence {
  uint64_t length_ns = 0;
  uint64_t end_ns = 0;  ///< when the first that began after it was acknowledged
};

/// Moves random amounts between random accounts, one transfer after another in each fiber, until stop(). After a
/// failure that may pass the fiber goes on with another transfer.
///
/// Owner and life: the owner calls start(), later stop() and join(), before the client and the tables go. Threads: the
/// functions from one ordinary thread; everything else happens on the client's worker thread, on which all fibers run.
class Movers {
 public:
  /// `held_keys` may be null.
  Movers(client::Client& client, const AccountTables& tables, const MoverOptions& options, HeldKeys* held_keys);

  void start();
  void stop();
  void join();

  /// As of now.
  MoverCounts counts();
  /// Times from the first begin of a transfer to its acknowledgement, retries included; those since the last call.
  Histogram take_latencies();
  /// Of those with an end since the last call.
  Silence take_silence();

 private:
  void move_until_stopped(unsigned fiber);
  void note_success(unsigned fiber, uint64_t begin_ns);
  void note_failure(unsigned fiber, const Status& status);

  client::Client& client_;
  const AccountTables& tables_;
  const MoverOptions options_;
  HeldKeys* const held_keys_;
  std::vector<client::Task> tasks_;

  // The client's worker thread only.
  bool stopped_ = false;
  MoverCounts counts_;
  Histogram latencies_;
  Silence silence_;
  uint64_t newest_begin_ns_ = 0;  // of an acknowledged transfer; 0 before the first
};

}  // namespace loam::cli
