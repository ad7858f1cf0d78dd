// Random transactions on the accounts, from many fibers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <loam/client/client.h>

#include "common/testing/random.h"
#include "tests/integration/accounts.h"

namespace loam::integration {

struct TransferOptions {
  uint64_t seed = 1;
  uint64_t keys = 50;  ///< accounts 1 … keys are there
  unsigned fibers = 8;
  double seconds = 5;
  uint64_t count = 0;         ///< attempts in all; 0: as many as the time allows
  uint64_t first_insert = 0;  ///< keys from here on are this client's own to insert; 0: it inserts none
};

/// Runs them in fibers of `client` until the time is over. After an answer that is no lost race, a fiber waits a few
/// milliseconds and goes on: the cluster may be recovering. One object a run; called from an ordinary thread.
class Transfers {
 public:
  Transfers(client::Client& client, Accounts& accounts, const TransferOptions& options);

  void run();
  /// {"attempts":…,"longest_ms":…,"resumed":…,"resent":…,"codes":{"kOk":…}}: the answers, the longest time that an
  /// attempt took, and what the client's statistics say of lost connections.
  std::string summary() const;

 private:
  struct Fiber {
    testing::Random random;
    uint64_t next_insert = 0;  // stepping by the number of fibers
    uint64_t inserted = 0;     // an account of its own that is there; 0: none
  };

  bool due();
  void loop(Fiber& fiber);
  std::vector<Change> draw(Fiber& fiber);
  std::vector<Change> draw_on_existing(testing::Random& random);
  void settle(Fiber& fiber, const std::vector<Change>& changes, const Attempt& attempt);

  client::Client& client_;
  Accounts& accounts_;
  const TransferOptions options_;
  uint64_t end_ns_ = 0;
  // The client's worker thread only, while run() runs:
  uint64_t attempts_ = 0;
  uint64_t longest_ns_ = 0;
  std::map<std::string, uint64_t> codes_;
};

}  // namespace loam::integration
