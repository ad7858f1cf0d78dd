// Creates the tables and fills them. The index of the items is built over existing records, and the other indexes are
// maintained by the inserts, so that the load covers both ways.
#include "benchmarks/retail/retail_data.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "benchmarks/bdtree/tree_process.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

using client::Client;
using client::Table;
using client::Transaction;
using testing::Random;

constexpr std::array<std::string_view, 10> kSyllables = {"BAR", "OUGH", "ABLE",  "PRI",   "PRES",
                                                         "ESE", "ANTI", "CALLY", "ATION", "EING"};
constexpr uint64_t kAtOnce = 100;  // inserts of one transaction
constexpr size_t kFibers = 16;
constexpr uint64_t kProgressRows = 10'000;

std::string letters(Random& random, size_t count) {
  std::string text(count, ' ');
  for (char& c : text) c = static_cast<char>('a' + random.below(26));
  return text;
}

using MakeRow = std::function<std::vector<Value>(uint64_t key, Random& random)>;
using Progress = std::function<void(uint64_t done)>;

/// Inserts the records 1 … count, with many concurrent transactions.
void fill(Client& client, const Table& table, uint64_t count, uint64_t seed, const MakeRow& make,
          const Progress& progress) {
  uint64_t next = 1, done = 0;
  std::vector<client::Task> tasks;
  tasks.reserve(kFibers);
  for (size_t fiber = 0; fiber < kFibers; ++fiber) {
    tasks.push_back(client.spawn([&] {
      while (next <= count) {
        const uint64_t first = next, end = std::min(count + 1, first + kAtOnce);
        next = end;
        check_ok(client.run_transaction([&](Transaction& tx) -> Status {
          for (uint64_t key = first; key < end; ++key) {
            // The row depends on the key and the seed alone, so the order of the fibers does not matter.
            Random random(seed + key);
            LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), make(key, random)));
          }
          return ok_status();
        }));
        done += end - first;
        if (done % kProgressRows < kAtOnce || done == count) progress(done);
      }
    }));
  }
  for (client::Task& task : tasks) task.join();
}

Table make_table(Client& client, const std::string& name, std::vector<Field> fields) {
  return value_or_die(
      client.create_table(name, TableKind::kTransactional, value_or_die(Schema::make(std::move(fields)))));
}

}  // namespace

std::string category_name(uint64_t number) {
  std::string name;
  do {
    name += kSyllables[number % 10];
    number /= 10;
  } while (number > 0);
  return name;
}

std::string customer_name(uint64_t number) {
  std::string name;
  for (uint64_t digits = number % 1'000, left = 3; left > 0; --left, digits /= 10) name += kSyllables[digits % 10];
  return name + std::to_string(number / 1'000);
}

RetailTables populate_retail(
    Client& client, const RetailSizes& sizes, uint64_t seed,
    const std::function<void(const std::string& what, uint64_t done, uint64_t total)>& progress) {
  const auto progress_of = [&](const char* what, uint64_t total) {
    return [&progress, what, total](uint64_t done) { progress(what, done, total); };
  };
  const Table items = make_table(client, "item",
                                 {{"name", FieldType::kText, false},
                                  {"description", FieldType::kText, false},
                                  {"category", FieldType::kText, false},
                                  {"price", FieldType::kInt32, false}});
  fill(
      client, items, sizes.items, seed,
      [&](uint64_t, Random& random) -> std::vector<Value> {
        return {Value::text(letters(random, 12)), Value::text(letters(random, 20)),
                Value::text(category_name(random.below(sizes.categories))),
                Value::int32(static_cast<int32_t>(random.between(10, 10'000)))};
      },
      progress_of("items", sizes.items));
  client::IndexOptions options;
  options.on_progress = [&](uint64_t done, uint64_t total) { progress("index of items", done, total); };
  const auto by_category = client.create_index("item.by_category", items, {{"category"}, {"price"}}, options);

  const Table customers = make_table(client, "customer",
                                     {{"name", FieldType::kText, false},
                                      {"street", FieldType::kText, false},
                                      {"city", FieldType::kText, false},
                                      {"country", FieldType::kText, false}});
  const auto by_name =
      client.create_index("customer.by_name", customers, {{"name"}}, {.unique = true, .on_progress = {}});
  fill(
      client, customers, sizes.customers, seed,
      [](uint64_t key, Random& random) -> std::vector<Value> {
        return {Value::text(customer_name(key)), Value::text(letters(random, 10)), Value::text(letters(random, 10)),
                Value::text(letters(random, 10))};
      },
      progress_of("customers", sizes.customers));
  const Table lines = make_table(client, "orderline",
                                 {{"orderId", FieldType::kInt64, false},
                                  {"customerId", FieldType::kInt64, false},
                                  {"itemId", FieldType::kInt64, false},
                                  {"time", FieldType::kInt64, false},
                                  {"quantity", FieldType::kInt32, false},
                                  {"price", FieldType::kInt32, false},
                                  {"status", FieldType::kInt32, false}});
  const auto by_order = client.create_index("orderline.by_order", lines, {{"customerId"}, {"orderId"}});
  return {items, customers, lines, value_or_die(by_category), value_or_die(by_name), value_or_die(by_order)};
}

}  // namespace loam::bench
