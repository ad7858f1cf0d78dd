// The driver against servers that lose, delay, refuse and garble their answers.
#include <array>
#include <atomic>
#include <memory>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <loam/client/client.h>

#include "client-lib/src/driver/driver_test_fixture.h"

namespace loam::client {
namespace {

using wire::Opcode;
using wire::WriteKind;

TEST_F(DriverTest, CommitsAndCleansUp) {
  prepare();
  const uint64_t trips = client_->statistics().round_trips;
  EXPECT_TRUE(update().ok());
  EXPECT_EQ(client_->statistics().round_trips - trips, 5u) << "begin, undo record, write, mark, completion";
  EXPECT_GT(newest(), first_version_);
  EXPECT_TRUE(eventually([&] { return cluster_.seen().undo_records == 0 && cluster_.seen().cleared.size() == 2; }));
  EXPECT_EQ(cluster_.seen().out_of_sequence, 0u);
}

TEST_F(DriverTest, UnansweredUndoRecordAborts) {
  connect(hasty());
  prepare();
  at(Opcode::kPlainWrite, WriteKind::kInsert, Fate::kDrop);
  EXPECT_EQ(update().code(), StatusCode::kTimeout);
  EXPECT_EQ(newest(), first_version_);
  EXPECT_TRUE(eventually([&] { return cluster_.seen().completed.size() == cluster_.seen().begun; }));
  EXPECT_TRUE(update().ok()) << "the session goes on";
  EXPECT_EQ(client_->statistics().sessions_opened, 1u);
}

TEST_F(DriverTest, UnansweredWriteGivesTheSessionUp) {
  for (Fate fate : {Fate::kDrop, Fate::kApplyAndDrop}) {
    ScriptedCluster cluster;
    const auto client = Client::connect(cluster.address(), hasty()).value();
    const Table table = client->open_table("t").value();
    auto other = client->begin().value();
    bool lost = false;
    cluster.set_script([&](Opcode opcode, WriteKind) {
      return opcode == Opcode::kWrite && !std::exchange(lost, true) ? fate : Fate::kAnswer;
    });
    const auto insert = [&](Transaction& tx) { return tx.insert(table, Key(1), {Value::int64(5)}); };
    const Status status = client->run_transaction(insert, {.read_only = false, .retry = {.max_attempts = 1}});
    EXPECT_EQ(status.code(), StatusCode::kFenced) << "it cannot have been committed: " << status.to_string();
    EXPECT_NE(status.message().find("was rolled back, run it again"), std::string::npos) << status.to_string();
    EXPECT_EQ(cluster.count(Opcode::kRevert), 0u) << "undone while a write may still come (R2)";
    EXPECT_EQ(cluster.seen().undo_records, 1u) << "recovery finds it";
    EXPECT_EQ(cluster.count(Opcode::kCloseSession), 1u) << "recovery need not wait for the lease";
    EXPECT_EQ(other.get(table, Key(1)).code(), StatusCode::kFenced);
    EXPECT_EQ(client->statistics().sessions_opened, 2u);
    EXPECT_TRUE(client->begin().ok());
  }
}

TEST_F(DriverTest, UnansweredMarkIsResolved) {
  connect(hasty());
  for (Fate fate : {Fate::kApplyAndDrop, Fate::kDrop}) {
    if (first_version_ == 0) prepare();
    const bool made = fate == Fate::kApplyAndDrop;
    const uint64_t resolved = client_->statistics().resolved;
    at(Opcode::kPlainWrite, WriteKind::kMark, fate);
    const Status status = update();
    EXPECT_EQ(status.code(), made ? StatusCode::kOk : StatusCode::kUnavailable) << status.to_string();
    EXPECT_EQ(newest() > first_version_, made);
    EXPECT_EQ(client_->statistics().resolved, resolved + 1);
    EXPECT_TRUE(eventually([&] { return cluster_.seen().undo_records == 0; }));
    EXPECT_TRUE(eventually([&] { return cluster_.seen().cleared.size() == cluster_.seen().completed.size(); }));
    first_version_ = newest();
    EXPECT_EQ(cluster_.seen().out_of_sequence, 0u);
  }
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
  at(Opcode::kPlainWrite, WriteKind::kMark,
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
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5) << "asked again";
  EXPECT_EQ(cluster_.seen().connections, before + 1);
}

// A request has one answer. A stream that was not asked for ends the request, and its later messages find no response
// handler.
TEST_F(DriverTest, AStreamThatNobodyAskedForEndsTheRequest) {
  prepare();
  auto tx = client_->begin().value();
  at(Opcode::kRead, Fate::kWrongStream);
  EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kMalformed);
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5) << "on a new connection";
  EXPECT_EQ(cluster_.count(Opcode::kRead), 2u) << "the first one is not asked again";
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
