// Runs random transactions on the accounts, from many fibers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <loam/client/client.h>

#include "common/testing/random.h"
#include "tests/integration/accounts.h"

namespace loam::integration {

/// Options of one run.
struct TransferOptions {
  uint64_t seed = 1;
  uint64_t keys = 50;  ///< accounts 1 to keys exist
  unsigned fibers = 8;
  double seconds = 5;
  uint64_t count = 0;         ///< total number of attempts; 0: as many as the time permits
  uint64_t first_insert = 0;  ///< this client may insert accounts with this key and higher ones; 0: it inserts none
};

/// Runs the transactions in fibers of `client` until the time is over. After a result other than a lost race, a fiber
/// waits a few milliseconds, because the cluster may be recovering. One object for each run. Threads: run() is called
/// from an ordinary thread.
class Transfers {
 public:
  Transfers(client::Client& client, Accounts& accounts, const TransferOptions& options);

  void run();
  /// {"attempts":…,"longest_ms":…,"resumed":…,"resent":…,"codes":{"kOk":…}}: the number of results by code, the
  /// longest attempt, and the client's statistics of lost connections.
  std::string summary() const;

 private:
  struct Fiber {
    testing::Random random;
    uint64_t next_insert = 0;  // key of the next insert; rises by the number of fibers
    uint64_t inserted = 0;     // key of an account that the fiber has inserted and not removed; 0: none
  };

  bool due();
  void loop(Fiber& fiber);
  std::vector<Change> draw(Fiber& fiber);
  std::vector<Change> draw_on_existing(testing::Random& random);
  void apply_outcome(Fiber& fiber, const std::vector<Change>& changes, const Attempt& attempt);

  client::Client& client_;
  Accounts& accounts_;
  const TransferOptions options_;
  uint64_t end_ns_ = 0;
  // Used by the client's worker thread only, during run():
  uint64_t attempts_ = 0;
  uint64_t longest_ns_ = 0;
  std::map<std::string, uint64_t> codes_;
};

}  // namespace loam::integration
