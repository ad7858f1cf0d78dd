// Sessions of the retail benchmark's OLTP workload (thesis 5.2).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "benchmarks/retail_data.h"
#include "common/testing/random.h"

namespace loam::bench {

/// The transactions of a session, in their order.
enum class RetailStep : uint8_t { kCategoryLookup, kItemLookup, kCustomerLookup, kNewOrder, kProcessOrder };
inline constexpr size_t kRetailSteps = 5;
std::string_view to_string(RetailStep step);

/// What a session has been told of one order.
struct RetailOrder {
  int64_t customer = 0;
  std::vector<Key> lines;
  bool paid = false;  ///< its Process-Order was acknowledged
};

/// What the sessions of one client have done. Of its worker's thread while they run.
struct RetailLog {
  std::array<std::vector<uint64_t>, kRetailSteps> latencies_ns;  ///< of transactions that ended while it was measured
  std::map<int64_t, RetailOrder> orders;                         ///< acknowledged, by number
  uint64_t late = 0;                                             ///< above RetailSession::kInTimeNs
  uint64_t attempts = 0;                                         ///< of measured transactions, repetitions included
};

/// One session after another, until it is told to end. In a fiber of its client.
class RetailSession {
 public:
  /// A transaction that takes longer does not count.
  static constexpr uint64_t kInTimeNs = 500'000'000;

  RetailSession(client::Client& client, const RetailTables& tables, const RetailSizes& sizes, client::Counter& orders,
                client::Counter& keys, RetailLog& log, uint64_t seed)
      : client_(client), tables_(tables), sizes_(sizes), orders_(orders), keys_(keys), log_(log), random_(seed) {}

  /// `measured`: what ends now counts.
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
  std::vector<Item> found_;  // by the session's look-ups
  std::vector<Key> lines_;   // of its order, by the last attempt
  int64_t customer_ = 0;
};

}  // namespace loam::bench
