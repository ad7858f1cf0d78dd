// What a client of a tested cluster has done and seen, told line by line so that its death loses nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::integration {

/// A record as a transaction read it; version 0: there was none.
struct SeenRecord {
  Key key;
  Version version;
  int64_t balance = 0;
};

/// A record as a transaction wrote it.
struct WrittenRecord {
  enum class Kind : uint8_t { kInsert, kUpdate, kRemove };
  Kind kind{};
  Key key;
  int64_t balance = 0;  // 0 for kRemove
};

/// One transaction as its application knows it. Times are CLOCK_MONOTONIC: one clock for all processes of a host.
struct Attempt {
  uint64_t number = 0;        // of this client's attempts; History gives it
  TransactionId id;           // 0: read-only, or begin failed
  uint64_t requested_ns = 0;  // before begin was called
  uint64_t begun_ns = 0;      // after it returned
  uint64_t ended_ns = 0;      // after commit or abort returned
  std::vector<SeenRecord> reads;
  std::vector<WrittenRecord> writes;
  Status status;  // of whichever step ended it
};

/// "text" in JSON.
std::string json_text(std::string_view text);
/// {"ok":…,"code":…,"message":…} without the braces.
std::string json_status(const Status& status);
/// The attempt's members without the braces, its status among them.
std::string json_attempt(const Attempt& attempt);

/// Appends JSON lines to a file, each in one write(2): what was told stays told when this process is killed.
/// tests/integration/history.py reads them.
///
///     {"event":"attempt", …}  before commit is called (or instead): from here on it may have happened
///     {"event":"end", …}      the outcome, as the application saw it
///     {"event":"sum", …}      the total balance in one snapshot, by a scan
///
/// Any thread.
class History {
 public:
  /// An empty path: nothing is written. Aborts the process if the file cannot be opened.
  History(const std::string& path, std::string client);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  const std::string& client() const { return client_; }
  uint64_t next_number() { return 1 + numbers_.fetch_add(1, std::memory_order_relaxed); }  // only unique
  void attempting(const Attempt& attempt);
  void ended(const Attempt& attempt);
  void summed(uint64_t requested_ns, int64_t sum);

 private:
  void append(std::string_view event, const std::string& members);

  const std::string client_;
  int file_ = -1;
  std::atomic<uint64_t> numbers_{0};
};

}  // namespace loam::integration
