// The driver with servers that lose, delay, refuse and garble their replies.
#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <loam/client/client.h>

#include "client-lib/testing/driver_test_fixture.h"

namespace loam::client {
namespace {

using wire::Opcode;
using wire::WriteKind;

TEST_F(DriverTest, TransferTakesFourRoundTrips) {
  prepare();
  ASSERT_TRUE(
      client_->run_transaction([&](Transaction& tx) { return tx.insert(*table_, Key(2), {Value::int64(5)}); }).ok());
  const ClientStatistics before = client_->statistics();
  const size_t requests = cluster_.observations().requests.size();
  const Status transfer = client_->run_transaction([&](Transaction& tx) -> Status {
    const std::array keys = {Key(1), Key(2)};
    const auto accounts = tx.get_many(*table_, keys);
    LOAM_RETURN_IF_ERROR(tx.update(*table_, keys[0], {Value::int64(accounts[0]->int64(0) - 1)}));
    return tx.update(*table_, keys[1], {Value::int64(accounts[1]->int64(0) + 1)});
  });
  ASSERT_TRUE(transfer.ok()) << transfer.to_string();
  const ClientStatistics after = client_->statistics();
  EXPECT_EQ(after.round_trips - before.round_trips, 4u) << "begin, reads, writes, completion";
  EXPECT_EQ(after.messages_out - before.messages_out, 4u);
  EXPECT_EQ(after.messages_in - before.messages_in, 4u);
  const ScriptedCluster::Observations seen = cluster_.observations();
  EXPECT_EQ(std::vector(seen.requests.begin() + static_cast<ptrdiff_t>(requests), seen.requests.end()),
            (std::vector<Opcode>{Opcode::kBegin, Opcode::kRead, Opcode::kWrite, Opcode::kComplete}));
  EXPECT_TRUE(seen.intents.empty());
  EXPECT_EQ(seen.out_of_sequence, 0u);
}

TEST_F(DriverTest, TransactionWithoutWritesIsNotInTheCommitLog) {
  auto tx = client_->begin().value();
  const uint64_t id = tx.id().value;
  EXPECT_TRUE(tx.commit().ok());
  EXPECT_TRUE(eventually([&] { return cluster_.observations().completed.contains(id); }));
  EXPECT_FALSE(cluster_.observations().completed.at(id)) << "it wrote nothing, so its id is given back";
}

TEST_F(DriverTest, UnansweredWriteGivesTheSessionUp) {
  for (MutantResult action : {MutantResult::kDrop, MutantResult::kApplyAndDrop}) {
    ScriptedCluster cluster;
    const auto client = Client::connect(cluster.address(), short_timeouts()).value();
    const Table table = client->open_table("t").value();
    auto other = client->begin().value();
    bool lost = false;
    cluster.set_script([&](Opcode opcode, WriteKind) {
      return opcode == Opcode::kWrite && !std::exchange(lost, true) ? action : MutantResult::kAnswer;
    });
    const auto insert = [&](Transaction& tx) { return tx.insert(table, Key(1), {Value::int64(5)}); };
    const Status status = client->run_transaction(insert, {.read_only = false, .retry = {.max_attempts = 1}});
    EXPECT_EQ(status.code(), StatusCode::kFenced) << "it cannot have been committed: " << status.to_string();
    EXPECT_NE(status.message().find("was rolled back, run it again"), std::string::npos) << status.to_string();
    EXPECT_EQ(cluster.count(Opcode::kRevert), 0u) << "it was undone while a write may still arrive (R2)";
    const bool applied = action == MutantResult::kApplyAndDrop;
    EXPECT_EQ(cluster.observations().intents.size(), applied ? 1u : 0u) << "recovery finds the applied write";
    EXPECT_EQ(other.get(table, Key(1)).code(), StatusCode::kFenced);
    EXPECT_TRUE(client->begin().ok());
    EXPECT_EQ(client->statistics().sessions_opened, 2u);
    EXPECT_EQ(cluster.count(Opcode::kCloseSession), 1u) << "recovery need not wait for the lease";
  }
}

// The session is given up, and the client learns the outcome from the commit log through the next one (R4).
TEST_F(DriverTest, OutcomeOfUnansweredCompletionIsRequested) {
  connect(short_timeouts());
  prepare();
  for (MutantResult action : {MutantResult::kApplyAndDrop, MutantResult::kDrop}) {
    const bool accepted = action == MutantResult::kApplyAndDrop;
    const ClientStatistics before = client_->statistics();
    at(Opcode::kComplete, action);
    const Status status = update();
    EXPECT_EQ(status.code(), accepted ? StatusCode::kOk : StatusCode::kFenced) << status.to_string();
    EXPECT_EQ(client_->statistics().resolved, before.resolved + 1);
    EXPECT_EQ(client_->statistics().unknown_outcomes, 0u);
    EXPECT_EQ(cluster_.count(Opcode::kRevert), 0u) << "a transaction that may be committed is not undone";
    const ScriptedCluster::Observations seen = cluster_.observations();
    EXPECT_EQ(seen.completed.contains(newest()), accepted);
    EXPECT_EQ(seen.intents.contains(newest()), !accepted) << "recovery has the intent of the write";
  }
}

// Records of the transaction may be lost, and an operator has accepted the loss (R9, leases of storage nodes).
TEST_F(DriverTest, CommitRefusedForALossIsUndone) {
  prepare();
  auto tx = client_->begin().value();
  auto untouched = client_->begin().value();
  ASSERT_TRUE(tx.update(*table_, Key(1), {Value::int64(6)}).ok());
  cluster_.accept_loss();
  const Status status = tx.commit();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("run it again"), std::string::npos) << status.to_string();
  EXPECT_EQ(cluster_.observations().refused, 1u);
  EXPECT_TRUE(untouched.commit().ok()) << "it has written nothing";
  EXPECT_EQ(newest(), first_version_);
  EXPECT_TRUE(eventually([&] { return cluster_.observations().completed.size() == cluster_.observations().begun; }));
  EXPECT_FALSE(cluster_.observations().completed.at(tx.id().value));
  EXPECT_TRUE(cluster_.observations().intents.empty());
  EXPECT_TRUE(update().ok()) << "transactions that begin now can commit";
  EXPECT_EQ(client_->statistics().sessions_opened, 1u);
}

TEST_F(DriverTest, RunTransactionRetriesCommitRefusedForALoss) {
  prepare();
  int attempts = 0;
  const Status status = client_->run_transaction([&](Transaction& tx) {
    if (++attempts == 1) cluster_.accept_loss();
    return tx.update(*table_, Key(1), {Value::int64(6)});
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(attempts, 2);
}

// Some commits of one message are refused. Each commit gets its own reply.
TEST_F(DriverTest, EachCommitOfAMessageHasItsOwnReply) {
  constexpr uint64_t kOld = 8, kAll = 16;
  std::vector<Transaction> transactions;
  for (uint64_t i = 0; i < kAll; ++i) {
    if (i == kOld) cluster_.accept_loss();
    transactions.push_back(client_->begin().value());
    ASSERT_TRUE(transactions.back().insert(*table_, Key(10 + i), {Value::int64(1)}).ok());
  }
  std::vector<Status> statuses(kAll);
  client_->run([&] {
    std::vector<Task> tasks;
    for (uint64_t i = 0; i < kAll; ++i) {
      tasks.push_back(client_->spawn([&, i] { statuses[i] = transactions[i].commit(); }));
    }
    for (Task& task : tasks) task.join();
  });
  for (uint64_t i = 0; i < kAll; ++i) {
    EXPECT_EQ(statuses[i].code(), i < kOld ? StatusCode::kUnavailable : StatusCode::kOk) << i;
  }
  EXPECT_LT(cluster_.count(Opcode::kComplete), kAll) << "they travel together";
  EXPECT_EQ(cluster_.observations().refused, kOld);
}

TEST_F(DriverTest, RefusedStepsAreUndoneOrRepeated) {
  prepare();
  at(Opcode::kWrite, MutantResult::kError);
  EXPECT_EQ(update().code(), StatusCode::kOverloaded);
  EXPECT_EQ(newest(), first_version_);
  EXPECT_EQ(cluster_.count(Opcode::kRevert), 0u) << "a Write that was refused as a whole needs no revert";
  at(Opcode::kComplete, MutantResult::kError);
  EXPECT_TRUE(update().ok()) << "every write is applied, so it is worth trying again";
  EXPECT_TRUE(eventually([&] { return cluster_.observations().completed.size() == cluster_.observations().begun; }));
  EXPECT_EQ(client_->statistics().sessions_opened, 1u);
}

// An unreachable node takes no write. The client undoes the writes that other nodes took, and its session goes on.
TEST_F(DriverTest, UnreachableNodeFailsOnlyTheTransaction) {
  connect(short_timeouts());
  prepare();
  uint64_t away = 2;
  while (!ScriptedCluster::at_second_node(Key(away))) ++away;
  for (const auto state : {wire::NodeState::kLost, wire::NodeState::kUnreachable}) {
    SCOPED_TRACE(wire::to_string(state));
    cluster_.set_second_node(state);
    ASSERT_TRUE(client_->open_table("t").ok()) << "the client has the new catalog";
    const Status status = client_->run_transaction(
        [&](Transaction& tx) -> Status {
          LOAM_RETURN_IF_ERROR(tx.update(*table_, Key(1), {Value::int64(7)}));
          return tx.insert(*table_, Key(away), {Value::int64(7)});
        },
        {.read_only = false, .retry = {.max_attempts = 1}});
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
    EXPECT_EQ(newest(), first_version_);
    EXPECT_TRUE(update().ok());
    first_version_ = newest();
  }
  EXPECT_TRUE(eventually([&] { return cluster_.observations().completed.size() == cluster_.observations().begun; }));
  EXPECT_TRUE(cluster_.observations().intents.empty());
  EXPECT_EQ(client_->statistics().sessions_opened, 1u);
}

// Until the commit manager has decided, the node knows all changes of the transaction (R5, intents before answers).
TEST_F(DriverTest, IntentsNameRecordsAndIndexChanges) {
  connect(short_timeouts());
  cluster_.add_index();
  ASSERT_TRUE(client_->open_table("t").ok()) << "the client has the new catalog";
  prepare();
  EXPECT_TRUE(cluster_.observations().in_index.contains(first_version_));
  at(Opcode::kComplete, MutantResult::kDrop);
  EXPECT_EQ(update().code(), StatusCode::kFenced);
  const ScriptedCluster::Observations seen = cluster_.observations();
  const uint64_t id = seen.rows.at({ScriptedCluster::kTable, Key(1)});
  ASSERT_EQ(seen.intents.size(), 1u);
  const ScriptedCluster::Intents& intents = seen.intents.at(id);
  EXPECT_EQ(intents.records, (std::set<wire::RecordId>{{ScriptedCluster::kTable, Key(1)}}));
  ASSERT_EQ(intents.index_changes.size(), 2u) << "the record loses one value and gets another";
  int takes = 0;
  for (const wire::IndexChange& change : intents.index_changes) {
    EXPECT_EQ(change.index, ScriptedCluster::kIndex);
    EXPECT_EQ(change.record, Key(1));
    EXPECT_FALSE(change.shared);
    takes += change.remove ? 1 : 0;
  }
  EXPECT_EQ(takes, 1);
  EXPECT_NE(intents.index_changes[0].key, intents.index_changes[1].key);
  EXPECT_TRUE(seen.in_index.contains(id));
}

TEST_F(DriverTest, IndexEntriesCountTowardsTheSizeOfATransaction) {
  cluster_.add_index();
  const size_t row_bytes = Record::make(*table_, {Value::int64(1)})->bytes().size();
  ClientOptions options;
  options.max_transaction_bytes = row_bytes + 2 * kTransactionBytesPerRecord;  // no room for the entry's key
  connect(options);
  auto tx = client_->begin().value();
  ASSERT_TRUE(tx.insert(*table_, Key(1), {Value::int64(1)}).ok());
  const Status status = tx.commit();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("index t_x: with its entries"), std::string::npos) << status.to_string();
  EXPECT_TRUE(eventually([&] { return cluster_.observations().completed.size() == cluster_.observations().begun; }));
  EXPECT_EQ(cluster_.count(Opcode::kWrite), 0u);
  options.max_transaction_bytes += 64;
  connect(options);
  EXPECT_TRUE(
      client_->run_transaction([&](Transaction& next) { return next.insert(*table_, Key(1), {Value::int64(1)}); })
          .ok());
}

TEST_F(DriverTest, LargeTransactionIsBoundedInBytes) {
  constexpr uint64_t kRecords = 200'000;
  const size_t bytes_of_one = Record::make(*table_, {Value::int64(1)})->bytes().size() + kTransactionBytesPerRecord;
  ClientOptions options;
  options.max_transaction_bytes = kRecords * bytes_of_one;
  options.max_fibers = 16;
  connect(options);
  auto tx = client_->begin().value();
  for (uint64_t key = 0; key < kRecords; ++key) {
    ASSERT_TRUE(tx.insert(*table_, Key(key), {Value::int64(1)}).ok()) << key;
  }
  const Status beyond = tx.insert(*table_, Key(kRecords), {Value::int64(1)});
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(beyond.message().find("max_transaction_bytes"), std::string::npos) << beyond.to_string();
  const Status committed = tx.commit();
  ASSERT_TRUE(committed.ok()) << committed.to_string();
  const ScriptedCluster::Observations seen = cluster_.observations();
  EXPECT_EQ(seen.rows.size(), kRecords);
  EXPECT_TRUE(seen.completed.at(tx.id().value));
  EXPECT_EQ(cluster_.count(Opcode::kWrite), (kRecords + 1'023) / 1'024);
  EXPECT_EQ(seen.executed_twice, 0u);
}

TEST_F(DriverTest, ReadsTimeOutAndCanBeRepeated) {
  connect(short_timeouts());
  prepare();
  auto tx = client_->begin().value();
  at(Opcode::kRead, MutantResult::kDrop);
  const auto lost = tx.get(*table_, Key(1));
  EXPECT_EQ(lost.code(), StatusCode::kTimeout);
  EXPECT_NE(lost.status().message().find("record 1 of table t"), std::string::npos) << lost.status().to_string();
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5);
  at(Opcode::kRead, MutantResult::kHold);
  EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kTimeout);
  cluster_.release_held();  // late: must not be mistaken for another reply
  EXPECT_EQ(tx.get(*table_, Key(2)).code(), StatusCode::kNotFound);
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5);
}

TEST_F(DriverTest, GarbageClosesTheConnectionOnly) {
  prepare();
  auto tx = client_->begin().value();
  const size_t before = cluster_.observations().connections;
  at(Opcode::kRead, MutantResult::kGarbage);
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5) << "a second read";
  EXPECT_EQ(cluster_.observations().connections, before + 1);
}

// A request has one reply. An unrequested stream ends the request, and its later messages find no response handler.
TEST_F(DriverTest, UnrequestedStreamEndsTheRequest) {
  prepare();
  auto tx = client_->begin().value();
  at(Opcode::kRead, MutantResult::kWrongStream);
  EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kMalformed);
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5) << "on a new connection";
  EXPECT_EQ(cluster_.count(Opcode::kRead), 2u) << "the first read is not repeated";
}

TEST_F(DriverTest, RecordsThatDoNotFitAreRequestedAgain) {
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
  EXPECT_EQ(cluster_.count(Opcode::kRead), 4u) << "two rows in each reply";
}

TEST_F(DriverTest, LateBeginsAreGivenBack) {
  connect(short_timeouts());
  at(Opcode::kBegin, MutantResult::kHold);
  EXPECT_EQ(client_->begin().code(), StatusCode::kTimeout);
  at(Opcode::kBegin, MutantResult::kHold);
  EXPECT_EQ(client_->begin({.read_only = true, .retry = {}}).code(), StatusCode::kTimeout);
  cluster_.release_held();
  EXPECT_TRUE(eventually([&] { return cluster_.observations().completed.size() == 1; })) << "an id stays open for ever";
  EXPECT_TRUE(eventually([&] { return cluster_.observations().released.size() == 1; }));
  EXPECT_TRUE(client_->begin().ok());
}

TEST_F(DriverTest, BeginsShareMessagesButNeverJoinOneThatWasSent) {
  std::atomic<int> ok{0};
  std::vector<Task> tasks;
  // The first message is held under way while the others begin.
  at(Opcode::kBegin, MutantResult::kHold);
  Task first = client_->spawn([&] { ok += client_->begin().ok() ? 1 : 0; });
  ASSERT_TRUE(eventually([&] { return cluster_.count(Opcode::kBegin) == 1; }));
  client_->run([&] {
    for (int i = 0; i < 32; ++i) tasks.push_back(client_->spawn([&] { ok += client_->begin().ok() ? 1 : 0; }));
  });
  for (Task& task : tasks) task.join();
  EXPECT_EQ(ok, 32) << "they do not wait for the first reply";
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
  EXPECT_TRUE(eventually([&] { return cluster_.observations().released.size() == 1; }));
}

TEST_F(DriverTest, PlainWritesWithoutReplyHaveUnknownOutcome) {
  connect(short_timeouts());
  PlainTable plain = client_->plain(client_->open_table("plain").value()).value();
  at(Opcode::kPlainWrite, WriteKind::kInsert, MutantResult::kApplyAndDrop);
  EXPECT_EQ(plain.insert(Key(1), {Value::int64(1)}).code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(plain.get(Key(1))->int64(0), 1) << "the record shows the outcome";
}

TEST(DriverConnectTest, OtherProtocolVersionsAreRefused) {
  net::TransportOptions old;
  old.protocol_version = net::kFramingVersion + 1;
  const ScriptedCluster cluster(old);
  const auto client = Client::connect(cluster.address());
  EXPECT_EQ(client.code(), StatusCode::kUnsupportedVersion) << client.status().to_string();
}

TEST(DriverConnectTest, SilentServersTimeOut) {
  // The server listens and never answers the handshake.
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
