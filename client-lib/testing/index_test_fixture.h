// Test fixture of indexes on a real cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client-lib/testing/cluster_test_fixture.h"

namespace loam::client {

class IndexTest : public ClusterTest {
 protected:
  static std::string index_name(const std::string& suffix = "") {
    return "by." + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + suffix;
  }
  Status commit(const std::function<Status(Transaction&)>& body) { return client_->run_transaction(body); }
  Status put(const Table& table, uint64_t key, int64_t balance, const Value& note = Value::null()) {
    return commit([&](Transaction& tx) { return tx.insert(table, Key(key), {Value::int64(balance), note}); });
  }
  static std::vector<uint64_t> keys(const Result<std::vector<Record>>& records) {
    EXPECT_TRUE(records.ok()) << records.status().to_string();
    std::vector<uint64_t> found;
    if (!records.ok()) return found;
    for (const Record& record : *records) found.push_back(record.key().value);
    return found;
  }
  std::vector<uint64_t> range(const Index& index, const IndexRange& range) {
    auto tx = client_->begin({.read_only = true});
    EXPECT_TRUE(tx.ok());
    return keys(tx->range(index, range));
  }
  static IndexRange balance(int64_t value) { return IndexRange::equal({Value::int64(value)}); }
};

using Keys = std::vector<uint64_t>;

}  // namespace loam::client
