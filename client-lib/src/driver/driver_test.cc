// The driver against servers that lose, delay, refuse and garble their answers.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <loam/client/client.h>

#include "client-lib/src/driver/scripted_test_cluster.h"

namespace loam::client {
namespace {

using wire::Opcode;
using wire::WriteKind;

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

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
    const auto cleared = [&] { return !cluster_.seen().cleared.empty() && cluster_.seen().undo_records == 0; };
    ASSERT_TRUE(eventually(cleared));
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

TEST_F(DriverTest, CommitsAndCleansUp) {
  prepare();
  const uint64_t trips = client_->statistics().round_trips;
  EXPECT_TRUE(update().ok());
  EXPECT_EQ(client_->statistics().round_trips - trips, 5u) << "begin, undo record, write, mark, completion";
  EXPECT_GT(newest(), first_version_);
  EXPECT_TRUE(eventually([&] { return cluster_.seen().undo_records == 0 && cluster_.seen().cleared.size() == 2; }));
  EXPECT_EQ(cluster_.seen().out_of_sequence, 0u);
}

TEST_F(DriverTest, LostUndoRecordAborts) {
  connect(hasty());
  for (Fate fate : {Fate::kClose, Fate::kApplyAndClose, Fate::kDrop}) {
    if (first_version_ == 0) prepare();
    at(Opcode::kPlainWrite, WriteKind::kInsert, fate);
    const Status status = update();
    EXPECT_EQ(status.code(), fate == Fate::kDrop ? StatusCode::kTimeout : StatusCode::kUnavailable);
    EXPECT_EQ(newest(), first_version_);
    EXPECT_TRUE(eventually([&] { return cluster_.seen().completed.size() == cluster_.seen().begun; }));
    cluster_.set_script({});
    EXPECT_TRUE(eventually([&] { return update().ok(); })) << "the session goes on, over a new connection";
    first_version_ = newest();
  }
}

TEST_F(DriverTest, LostWriteEndsTheSession) {
  for (Fate fate : {Fate::kClose, Fate::kApplyAndClose, Fate::kDrop, Fate::kGarbage}) {
    ScriptedCluster cluster;
    const auto client = Client::connect(cluster.address(), hasty()).value();
    const Table table = client->open_table("t").value();
    cluster.set_script([fate](Opcode opcode, WriteKind) { return opcode == Opcode::kWrite ? fate : Fate::kAnswer; });
    auto other = client->begin().value();
    const Status status =
        client->run_transaction([&](Transaction& tx) { return tx.insert(table, Key(1), {Value::int64(5)}); });
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code(), StatusCode::kUnknownOutcome) << "it cannot have been committed: " << status.to_string();
    EXPECT_FALSE(cluster.seen().completed.contains(other.id().value - 1));
    EXPECT_EQ(cluster.count(Opcode::kRevert), 0u) << "undone while a write may still come (R2)";
    EXPECT_EQ(cluster.seen().undo_records, 1u) << "recovery finds it";
    const Status after = client->run_transaction([](Transaction&) { return ok_status(); });
    EXPECT_FALSE(after.ok());
    EXPECT_NE(after.message().find("the session has ended"), std::string::npos) << after.to_string();
    EXPECT_FALSE(other.get(table, Key(1)).ok());
  }
}

TEST_F(DriverTest, LostMarkIsResolved) {
  connect(hasty());
  for (Fate fate : {Fate::kApplyAndClose, Fate::kApplyAndDrop, Fate::kClose, Fate::kDrop}) {
    if (first_version_ == 0) prepare();
    const bool made = fate == Fate::kApplyAndClose || fate == Fate::kApplyAndDrop;
    const uint64_t resolved = client_->statistics().resolved;
    at(Opcode::kPlainWrite, WriteKind::kUpdate, fate);
    const Status status = update();
    EXPECT_EQ(status.code(), made ? StatusCode::kOk : StatusCode::kUnavailable) << status.to_string();
    EXPECT_EQ(newest() > first_version_, made);
    EXPECT_EQ(client_->statistics().resolved, resolved + 1);
    EXPECT_TRUE(eventually([&] { return cluster_.seen().undo_records == 0; }));
    EXPECT_TRUE(eventually([&] { return cluster_.seen().cleared.size() == cluster_.seen().completed.size(); }));
    first_version_ = newest();
    EXPECT_EQ(cluster_.seen().out_of_sequence, 0u) << "sequences rise over all connections (R3)";
  }
}

TEST_F(DriverTest, LostAcknowledgementIsAnUnknownOutcome) {
  prepare();
  at(Opcode::kComplete, Fate::kApplyAndClose);
  const Status status = update();
  EXPECT_EQ(status.code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(client_->statistics().unknown_outcomes, 1u);
  EXPECT_EQ(client_->begin().code(), StatusCode::kUnavailable);
}

TEST_F(DriverTest, LostClearingIsNoFailure) {
  connect(hasty());
  prepare();
  at(Opcode::kPlainWrite, WriteKind::kRemove, Fate::kDrop);
  EXPECT_TRUE(update().ok());
  client_.reset();
  const auto seen = cluster_.seen();
  EXPECT_EQ(seen.undo_records, 1u);
  EXPECT_EQ(seen.cleared.size(), 1u) << "what may still be there is not reported cleared (R5)";
}

TEST_F(DriverTest, RefusedStepsAreUndoneOrRepeated) {
  prepare();
  at(Opcode::kPlainWrite, WriteKind::kInsert, Fate::kError);
  EXPECT_EQ(update().code(), StatusCode::kOverloaded);
  at(Opcode::kWrite, Fate::kError);
  EXPECT_EQ(update().code(), StatusCode::kOverloaded);
  EXPECT_EQ(newest(), first_version_);
  at(Opcode::kPlainWrite, WriteKind::kUpdate,
     Fate::kError);  // the mark: every write is applied, so it is worth trying again
  EXPECT_TRUE(update().ok());
  at(Opcode::kComplete, Fate::kError);
  EXPECT_TRUE(update().ok());
  EXPECT_TRUE(eventually([&] { return cluster_.seen().undo_records == 0; }));
}

TEST_F(DriverTest, ReadsTimeOutAndGoOn) {
  connect(hasty());
  prepare();
  auto tx = client_->begin().value();
  at(Opcode::kRead, Fate::kDrop);
  const auto lost = tx.get(*table_, Key(1));
  EXPECT_EQ(lost.code(), StatusCode::kTimeout);
  EXPECT_NE(lost.status().message().find("record 1 of table t"), std::string::npos) << lost.status().to_string();
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5);
  at(Opcode::kRead, Fate::kHold);
  EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kTimeout);
  cluster_.release_held();  // too late: must not be taken for another answer
  EXPECT_EQ(tx.get(*table_, Key(2)).code(), StatusCode::kNotFound);
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5);
}

TEST_F(DriverTest, GarbageClosesTheConnectionOnly) {
  prepare();
  auto tx = client_->begin().value();
  const size_t before = cluster_.seen().connections;
  at(Opcode::kRead, Fate::kGarbage);
  EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kMalformed);
  EXPECT_TRUE(eventually([&] { return tx.get(*table_, Key(1)).ok(); }));
  EXPECT_EQ(cluster_.seen().connections, before + 1);
}

TEST_F(DriverTest, WhatDoesNotFitIsAskedForAgain) {
  ASSERT_TRUE(client_
                  ->run_transaction([&](Transaction& tx) -> Status {
                    for (uint64_t key = 0; key < 7; ++key) {
                      LOAM_RETURN_IF_ERROR(tx.insert(*table_, Key(key), {Value::int64(static_cast<int64_t>(key))}));
                    }
                    return ok_status();
                  })
                  .ok());
  auto tx = client_->begin().value();
  const std::array keys = {Key(0), Key(1), Key(2), Key(3), Key(4), Key(5), Key(6)};
  const auto records = tx.get_many(*table_, keys);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(records[i].value().int64(0), static_cast<int64_t>(i));
  EXPECT_EQ(cluster_.count(Opcode::kRead), 4u) << "two rows an answer";
}

TEST_F(DriverTest, LateBeginsAreGivenBack) {
  connect(hasty());
  at(Opcode::kBegin, Fate::kHold);
  EXPECT_EQ(client_->begin().code(), StatusCode::kTimeout);
  at(Opcode::kBegin, Fate::kHold);
  EXPECT_EQ(client_->begin({.read_only = true, .retry = {}}).code(), StatusCode::kTimeout);
  cluster_.release_held();
  EXPECT_TRUE(eventually([&] { return cluster_.seen().completed.size() == 1; })) << "an id stays open for ever";
  EXPECT_TRUE(eventually([&] { return cluster_.seen().released.size() == 1; }));
  EXPECT_TRUE(client_->begin().ok());
}

TEST_F(DriverTest, BeginsShareMessagesButNeverJoinOneThatWasSent) {
  std::atomic<int> ok{0};
  std::vector<Task> tasks;
  // Held: the first message is under way while the others begin.
  at(Opcode::kBegin, Fate::kHold);
  Task first = client_->spawn([&] { ok += client_->begin().ok() ? 1 : 0; });
  ASSERT_TRUE(eventually([&] { return cluster_.count(Opcode::kBegin) == 1; }));
  client_->run([&] {
    for (int i = 0; i < 32; ++i) tasks.push_back(client_->spawn([&] { ok += client_->begin().ok() ? 1 : 0; }));
  });
  for (Task& task : tasks) task.join();
  EXPECT_EQ(ok, 32) << "they do not wait for the first answer";
  EXPECT_EQ(cluster_.count(Opcode::kBegin), 2u) << "one message for the 32 fibers of a round";
  cluster_.release_held();
  first.join();
  EXPECT_EQ(ok, 33);
}

TEST_F(DriverTest, SharedSnapshotsAreReleasedByTheLast) {
  auto transactions = client_->run([&] {
    std::vector<Transaction> all;
    std::vector<Task> tasks;
    for (int i = 0; i < 3; ++i) {
      tasks.push_back(client_->spawn([&] { all.push_back(client_->begin({.read_only = true, .retry = {}}).value()); }));
    }
    for (Task& task : tasks) task.join();
    return all;
  });
  EXPECT_EQ(cluster_.count(Opcode::kBegin), 1u);
  EXPECT_TRUE(transactions[0].commit().ok());
  EXPECT_TRUE(transactions[1].abort().ok());
  EXPECT_EQ(transactions[2].get(*table_, Key(1)).code(), StatusCode::kNotFound);
  EXPECT_EQ(cluster_.count(Opcode::kReleaseSnapshots), 0u);
  transactions.clear();
  EXPECT_TRUE(eventually([&] { return cluster_.seen().released.size() == 1; }));
}

TEST_F(DriverTest, PlainWritesThatMayHaveHappenedAreUnknown) {
  connect(hasty());
  PlainTable plain = client_->plain(client_->open_table("plain").value()).value();
  at(Opcode::kPlainWrite, WriteKind::kInsert, Fate::kApplyAndDrop);
  EXPECT_EQ(plain.insert(Key(1), {Value::int64(1)}).code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(plain.get(Key(1))->int64(0), 1) << "the record tells";
}

TEST(DriverConnectTest, OtherProtocolVersionsAreRefused) {
  net::TransportOptions old;
  old.protocol_version = net::kProtocolVersion + 1;
  const ScriptedCluster cluster(old);
  const auto client = Client::connect(cluster.address());
  EXPECT_EQ(client.code(), StatusCode::kUnsupportedVersion) << client.status().to_string();
}

TEST(DriverConnectTest, SilentServersTimeOut) {
  // Listens and never shakes hands.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ClientOptions options;
  options.connect_timeout_ns = 50'000'000;
  const auto client = Client::connect("tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), options);
  EXPECT_EQ(client.code(), StatusCode::kTimeout) << client.status().to_string();
  close(listener);
}

}  // namespace
}  // namespace loam::client
