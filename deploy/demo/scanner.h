// A thread of the demo that sums all balances repeatedly.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <loam/client/client.h>

#include "deploy/demo/accounts.h"

namespace loam::cli {

/// Calls check_total() repeatedly in a thread of its own, until stop(). It counts a scan that fails because a server is
/// away and repeats it; it records a wrong total and any other error as a violation. The client and the tables outlive
/// it. Threads: any.
class Scanner {
 public:
  Scanner(client::Client& client, const AccountTables& tables);
  ~Scanner() { stop(); }
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  /// Ends the thread and waits for it. Idempotent.
  void stop();
  /// Number of scans with the correct total.
  uint64_t right() const;
  /// Number of scans that failed because a server was away.
  uint64_t refused() const;
  /// The messages of the first violations.
  std::vector<std::string> wrong() const;

 private:
  void run();

  client::Client& client_;
  const AccountTables& tables_;
  std::atomic<bool> stopped_{false};  // stop() writes, the thread reads; relaxed: guards no data

  mutable std::mutex mutex_;
  uint64_t right_ = 0;              // guarded by mutex_
  uint64_t refused_ = 0;            // guarded by mutex_
  std::vector<std::string> wrong_;  // guarded by mutex_

  std::thread thread_;
};

}  // namespace loam::cli
