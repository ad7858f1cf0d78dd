// Test fixture of the driver: a client of a scripted cluster.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/scripted_cluster.h"
#include "common/testing/eventually.h"

namespace loam::client {

using testing::eventually;
using wire::Opcode;
using wire::WriteKind;

class DriverTest : public ::testing::Test {
 protected:
  /// Options for tests that lose replies: time-outs short enough for a test and long enough for a loaded machine.
  static ClientOptions short_timeouts() {
    ClientOptions options;
    options.request_timeout_ns = 300'000'000;
    options.commit_timeout_ns = 300'000'000;
    return options;
  }
  void SetUp() override { connect({}); }
  void connect(const ClientOptions& options) {
    client_.reset();
    client_ = Client::connect(cluster_.address(), options).value();
    table_ = client_->open_table("t").value();
  }
  /// Inserts key 1 with the value 5.
  void prepare() {
    const Status status =
        client_->run_transaction([&](Transaction& tx) { return tx.insert(*table_, Key(1), {Value::int64(5)}); });
    ASSERT_TRUE(status.ok()) << status.to_string();
    first_version_ = cluster_.observations().rows[{ScriptedCluster::kTable, Key(1)}];
  }
  /// Applies `action` to the next request of that kind. All other requests are answered.
  void at(Opcode opcode, MutantResult action) { at(opcode, WriteKind{}, action); }
  void at(Opcode opcode, WriteKind kind, MutantResult action) {
    auto met = std::make_shared<bool>(false);
    cluster_.set_script([=](Opcode seen, WriteKind seen_kind) {
      return seen == opcode && seen_kind == kind && !std::exchange(*met, true) ? action : MutantResult::kAnswer;
    });
  }
  Status update() {
    return client_->run_transaction([&](Transaction& tx) { return tx.update(*table_, Key(1), {Value::int64(6)}); },
                                    {.read_only = false, .retry = {.max_attempts = 1}});
  }
  uint64_t newest() { return cluster_.observations().rows[{ScriptedCluster::kTable, Key(1)}]; }

  ScriptedCluster cluster_;
  std::unique_ptr<Client> client_;
  std::optional<Table> table_;
  uint64_t first_version_ = 0;
};

}  // namespace loam::client
