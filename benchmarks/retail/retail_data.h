// The data of the retail benchmark (thesis 5.2): items, customers and order lines, with their indexes.
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

/// The tables and indexes.
struct RetailTables {
  client::Table items;
  client::Table customers;
  client::Table lines;
  client::Index items_by_category;  ///< (category, price)
  client::Index customers_by_name;  ///< unique
  client::Index lines_by_order;     ///< (customerId, orderId)
};

/// Whether an order line is paid.
enum class Payment : int32_t { kUnpaid = 1, kPaid = 2 };

/// The name of a category: 8 → ATION, 18 → ATIONOUGH.
std::string category_name(uint64_t number);
/// The name of a customer: 12 → ABLEOUGHBAR0, 5012 → ABLEOUGHBAR5.
std::string customer_name(uint64_t number);

/// Creates and fills the tables. The index of the items is built after the load; the inserts maintain the index of the
/// customers. Calls `progress` for each part, from a fiber. Aborts the program on an error.
RetailTables populate_retail(
    client::Client& client, const RetailSizes& sizes, uint64_t seed,
    const std::function<void(const std::string& what, uint64_t done, uint64_t total)>& progress);

}  // namespace loam::bench
