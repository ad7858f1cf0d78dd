// Sessions of the OLTP workload of the retail benchmark (thesis 5.2).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "benchmarks/retail/retail_data.h"
#include "common/testing/random.h"

namespace loam::bench {

/// The transactions of a session, in the order of their execution.
enum class RetailStep : uint8_t { kCategoryLookup, kItemLookup, kCustomerLookup, kNewOrder, kProcessOrder };
/// Number of transactions of a session.
inline constexpr size_t kRetailSteps = 5;
/// The name of a transaction, as the thesis has it.
std::string_view to_string(RetailStep step);

/// An order as its session knows it by acknowledgements.
struct RetailOrder {
  int64_t customer = 0;
  std::vector<Key> lines;
  bool paid = false;  ///< the cluster acknowledged its Process-Order
};

/// The record of all sessions of one client. Only the client's worker thread uses it while they run.
struct RetailLog {
  std::array<std::vector<uint64_t>, kRetailSteps> latencies_ns;  ///< of transactions that ended in the measured period
  std::map<int64_t, RetailOrder> orders;                         ///< acknowledged orders, by number
  uint64_t late = 0;                                             ///< transactions above RetailSession::kInTimeNs
  uint64_t attempts = 0;  ///< attempts of measured transactions, retries included
};

/// Runs one session after another in a fiber of its client, until stopped.
class RetailSession {
 public:
  /// A transaction with a higher latency does not count.
  static constexpr uint64_t kInTimeNs = 500'000'000;

  RetailSession(client::Client& client, const RetailTables& tables, const RetailSizes& sizes, client::Counter& orders,
                client::Counter& keys, RetailLog& log, uint64_t seed)
      : client_(client), tables_(tables), sizes_(sizes), orders_(orders), keys_(keys), log_(log), random_(seed) {}

  /// Runs sessions until `stop` returns true. A transaction counts if `measured` returns true at its end.
  void run(const std::function<bool()>& stop, const std::function<bool()>& measured);

 private:
  struct Item {
    int64_t key = 0;
    int32_t price = 0;
  };
  using Body = std::function<Status(client::Transaction&)>;

  void timed(RetailStep step, bool read_only, const Body& body, const std::function<bool()>& measured);
  Status look_up_category(client::Transaction& tx);
  Status look_up_items(client::Transaction& tx);
  Status look_up_customer(client::Transaction& tx);
  Status order(client::Transaction& tx, int64_t number, const std::vector<Item>& chosen);
  Status process(client::Transaction& tx, int64_t number);

  client::Client& client_;
  const RetailTables& tables_;
  const RetailSizes& sizes_;
  client::Counter& orders_;
  client::Counter& keys_;
  RetailLog& log_;
  testing::Random random_;
  std::vector<Item> found_;  // the items that the session looked up
  std::vector<Key> lines_;   // lines of its order, written by the last attempt
  int64_t customer_ = 0;
};

}  // namespace loam::bench
