// The tables of the retail benchmark (thesis 5.2): items, customers and order lines, with their indexes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <loam/client/client.h>

namespace loam::bench {

/// Sizes of one run.
struct RetailSizes {
  uint64_t items = 2'500'000;
  uint64_t categories = 2'500;
  uint64_t customers = 2'500;
};

struct RetailTables {
  client::Table items;
  client::Table customers;
  client::Table lines;
  client::Index items_by_category;  ///< (category, price)
  client::Index customers_by_name;  ///< unique
  client::Index lines_by_order;     ///< (customerId, orderId)
};

/// Status of an order line.
enum class Payment : int32_t { kUnpaid = 1, kPaid = 2 };

/// 8 → ATION, 18 → ATIONOUGH.
std::string category_name(uint64_t number);
/// 12 → ABLEOUGHBAR0, 5012 → ABLEOUGHBAR5.
std::string customer_name(uint64_t number);

/// Makes and fills the tables; the items' index is built of what is there, the customers' is maintained by the inserts.
/// `progress` is told of each, from a fiber. Ends the program where it fails.
RetailTables populate_retail(
    client::Client& client, const RetailSizes& sizes, uint64_t seed,
    const std::function<void(const std::string& what, uint64_t done, uint64_t total)>& progress);

}  // namespace loam::bench
