// Sums all balances, over and over.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <loam/client/client.h>

#include "deploy/cli/src/demo/accounts.h"

namespace loam::cli {

/// A thread that calls check_total() until stop(). A scan that cannot be done because a server is away is counted and
/// done again; one with a wrong total is a complaint. The client and the tables outlive it. Threads: any.
class Scanner {
 public:
  Scanner(client::Client& client, const AccountTables& tables);
  ~Scanner() { stop(); }
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  /// Idempotent.
  void stop();
  uint64_t right() const;
  uint64_t refused() const;
  /// The first few.
  std::vector<std::string> wrong() const;

 private:
  void run();

  client::Client& client_;
  const AccountTables& tables_;
  std::atomic<bool> stopped_{false};  // written by stop(), read by the thread; guards no other data

  mutable std::mutex mutex_;
  uint64_t right_ = 0;              // guarded by mutex_
  uint64_t refused_ = 0;            // guarded by mutex_
  std::vector<std::string> wrong_;  // guarded by mutex_

  std::thread thread_;
};

}  // namespace loam::cli
