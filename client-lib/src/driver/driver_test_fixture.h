// A client of a scripted cluster, for the driver's tests.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/src/driver/scripted_test_cluster.h"
#include "common/testing/patience.h"

namespace loam::client {

using testing::eventually;
using wire::Opcode;
using wire::WriteKind;

class DriverTest : public ::testing::Test {
 protected:
  /// For tests that lose answers: soon enough for the test, late enough for a loaded machine.
  static ClientOptions hasty() {
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
  /// Key 1 has the value 5.
  void prepare() {
    const Status status =
        client_->run_transaction([&](Transaction& tx) { return tx.insert(*table_, Key(1), {Value::int64(5)}); });
    ASSERT_TRUE(status.ok()) << status.to_string();
    first_version_ = cluster_.seen().rows[{ScriptedCluster::kTable, Key(1)}];
  }
  /// The next request of that kind meets `fate`, all others are answered.
  void at(Opcode opcode, Fate fate) { at(opcode, WriteKind{}, fate); }
  void at(Opcode opcode, WriteKind kind, Fate fate) {
    auto met = std::make_shared<bool>(false);
    cluster_.set_script([=](Opcode seen, WriteKind seen_kind) {
      return seen == opcode && seen_kind == kind && !std::exchange(*met, true) ? fate : Fate::kAnswer;
    });
  }
  Status update() {
    return client_->run_transaction([&](Transaction& tx) { return tx.update(*table_, Key(1), {Value::int64(6)}); },
                                    {.read_only = false, .retry = {.max_attempts = 1}});
  }
  uint64_t newest() { return cluster_.seen().rows[{ScriptedCluster::kTable, Key(1)}]; }

  ScriptedCluster cluster_;
  std::unique_ptr<Client> client_;
  std::optional<Table> table_;
  uint64_t first_version_ = 0;
};

}  // namespace loam::client
