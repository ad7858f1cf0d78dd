// The five transactions of a session, in their order: three lookups, a new order and its payment. A body may run
// several times, so it sets its results anew in each attempt.
#include "benchmarks/retail/retail_session.h"

#include <string>

#include "benchmarks/bdtree/tree_process.h"
#include "common/base/env.h"

namespace loam::bench {

using client::IndexRange;
using client::Record;
using client::Transaction;

std::string_view to_string(RetailStep step) {
  switch (step) {
    case RetailStep::kCategoryLookup:
      return "category_lookup";
    case RetailStep::kItemLookup:
      return "item_lookup";
    case RetailStep::kCustomerLookup:
      return "customer_lookup";
    case RetailStep::kNewOrder:
      return "new_order";
    case RetailStep::kProcessOrder:
      return "process_order";
  }
  return "?";
}

void RetailSession::timed(RetailStep step, bool read_only, const Body& body, const std::function<bool()>& measured) {
  const uint64_t begun_ns = Env::now_ns();
  uint64_t attempts = 0;
  check_ok(client_.run_transaction(
      [&](Transaction& tx) {
        ++attempts;
        return body(tx);
      },
      {.read_only = read_only, .retry = {}}));
  // Transactions outside of the measured period are executed, but do not count.
  if (!measured()) return;
  const uint64_t took_ns = Env::now_ns() - begun_ns;
  log_.latencies_ns[static_cast<size_t>(step)].push_back(took_ns);
  log_.attempts += attempts;
  if (took_ns > kInTimeNs) ++log_.late;
}

Status RetailSession::look_up_category(Transaction& tx) {
  const std::string category = category_name(random_.below(sizes_.categories));
  IndexRange cheapest = IndexRange::equal({Value::text(category)});
  cheapest.limit = random_.between(10, 20);
  LOAM_ASSIGN_OR_RETURN(const std::vector<Record> items, tx.range(tables_.items_by_category, cheapest));
  int32_t last = 0;
  for (const Record& item : items) {
    LOAM_CHECK(item.text("category") == category && item.int32("price") >= last, "a category's items rise in price");
    last = item.int32("price");
    found_.push_back({static_cast<int64_t>(item.key().value), last});
  }
  return ok_status();
}

Status RetailSession::look_up_items(Transaction& tx) {
  std::vector<Key> keys;
  for (uint64_t left = random_.between(10, 20); left > 0; --left) keys.emplace_back(random_.between(1, sizes_.items));
  for (const Result<Record>& item : tx.get_many(tables_.items, keys)) {
    LOAM_RETURN_IF_ERROR(item.status());
    found_.push_back({static_cast<int64_t>(item->key().value), item->int32("price")});
  }
  return ok_status();
}

Status RetailSession::look_up_customer(Transaction& tx) {
  const uint64_t number = random_.between(1, sizes_.customers);
  LOAM_ASSIGN_OR_RETURN(const Record customer, tx.get(tables_.customers_by_name, {Value::text(customer_name(number))}));
  LOAM_CHECK(customer.key() == Key(number), "a name leads to its customer");
  customer_ = static_cast<int64_t>(number);
  return ok_status();
}

Status RetailSession::order(Transaction& tx, int64_t number, const std::vector<Item>& chosen) {
  const auto time_us = static_cast<int64_t>(Env::now_ns() / 1'000);
  lines_.clear();
  for (const Item& item : chosen) {
    LOAM_ASSIGN_OR_RETURN(const uint64_t key, keys_.next());
    lines_.emplace_back(key);
    const auto quantity = static_cast<int32_t>(random_.between(1, 10));
    LOAM_RETURN_IF_ERROR(tx.insert(tables_.lines, Key(key),
                                   {Value::int64(number), Value::int64(customer_), Value::int64(item.key),
                                    Value::int64(time_us), Value::int32(quantity), Value::int32(quantity * item.price),
                                    Value::int32(static_cast<int32_t>(Payment::kUnpaid))}));
  }
  return ok_status();
}

Status RetailSession::process(Transaction& tx, int64_t number) {
  LOAM_ASSIGN_OR_RETURN(
      const size_t lines,
      tx.update(tables_.lines_by_order, IndexRange::equal({Value::int64(customer_), Value::int64(number)}),
                {{"status", Value::int32(static_cast<int32_t>(Payment::kPaid))}}));
  LOAM_CHECK(lines == log_.orders.at(number).lines.size(), "an order's lines are found by its customer and number");
  return ok_status();
}

void RetailSession::run(const std::function<bool()>& stop, const std::function<bool()>& measured) {
  while (!stop()) {
    const auto begin = [&] { found_.clear(); };
    timed(RetailStep::kCategoryLookup, true, [&](Transaction& tx) { return begin(), look_up_category(tx); }, measured);
    // A retry of the second lookup must not add its items twice. It first drops the items of the previous attempt.
    const size_t of_category = found_.size();
    const auto second = [&](Transaction& tx) {
      found_.resize(of_category);
      return look_up_items(tx);
    };
    timed(RetailStep::kItemLookup, true, second, measured);
    timed(RetailStep::kCustomerLookup, true, [&](Transaction& tx) { return look_up_customer(tx); }, measured);

    // The choice is made before the transaction, so that every attempt orders the same items.
    const auto number = static_cast<int64_t>(value_or_die(orders_.next()));
    std::vector<Item> chosen;
    for (uint64_t left = random_.between(5, 15); left > 0; --left) {
      chosen.push_back(found_[random_.below(found_.size())]);
    }
    timed(RetailStep::kNewOrder, false, [&](Transaction& tx) { return order(tx, number, chosen); }, measured);
    log_.orders[number] = {customer_, lines_, false};
    timed(RetailStep::kProcessOrder, false, [&](Transaction& tx) { return process(tx, number); }, measured);
    log_.orders[number].paid = true;
  }
}

}  // namespace loam::bench
