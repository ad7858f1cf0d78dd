// The record of everything that a client of a tested cluster did and saw; it survives the client's death.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::integration {

/// A record as a transaction read it. Version 0: there was no record.
struct ObservedRecord {
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

/// One transaction, as its application saw it. Times are CLOCK_MONOTONIC, which all processes of a host share.
struct Attempt {
  uint64_t number = 0;        // number among this client's attempts; History assigns it
  TransactionId id;           // 0: a read-only transaction, or begin failed
  uint64_t requested_ns = 0;  // before begin was called
  uint64_t begun_ns = 0;      // after begin returned
  uint64_t ended_ns = 0;      // after commit or abort returned
  std::vector<ObservedRecord> reads;
  std::vector<WrittenRecord> writes;
  Status status;  // status of the step that ended the transaction
};

/// The text as a JSON string, with quotes.
std::string json_text(std::string_view text);
/// "ok":…,"code":…,"message":… (without braces).
std::string json_status(const Status& status);
/// The members of the attempt, its status included, without braces.
std::string json_attempt(const Attempt& attempt);

/// Appends JSON lines to a file, each by one write(2), so that every line survives when this process is killed.
/// tests/integration/history.py reads the file.
///
///     {"event":"attempt", …}  before commit is called (or instead): from here on it may have happened
///     {"event":"end", …}      the outcome, as the application saw it
///     {"event":"sum", …}      the total balance in one snapshot, by a scan
///
/// Threads: any.
class History {
 public:
  /// An empty path turns the history off. Aborts the process if the file cannot be opened.
  History(const std::string& path, std::string client);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  const std::string& client() const { return client_; }
  uint64_t next_number() { return 1 + numbers_.fetch_add(1, std::memory_order_relaxed); }  // only unique
  void record_attempt(const Attempt& attempt);
  void record_outcome(const Attempt& attempt);
  void record_sum(uint64_t requested_ns, int64_t sum);

 private:
  void append(std::string_view event, const std::string& members);

  const std::string client_;
  int file_ = -1;
  std::atomic<uint64_t> numbers_{0};
};

}  // namespace loam::integration
