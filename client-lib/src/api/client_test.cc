#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <loam/client/client.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/testing/eventually.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using ClientTest = ClusterTest;

Schema one_field(FieldType type = FieldType::kInt64) { return Schema::make({{"x", type, false}}).value(); }

// ---- connecting ----------------------------------------------------------------------------------------------------

TEST_F(ClientTest, RejectsWrongAddresses) {
  EXPECT_EQ(Client::connect("nonsense").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::connect("sim://here:1").code(), StatusCode::kInvalidArgument);
  const auto nobody = Client::connect("tcp://127.0.0.1:1");
  EXPECT_EQ(nobody.code(), StatusCode::kUnavailable);
  EXPECT_NE(nobody.status().message().find("commit manager at tcp://127.0.0.1:1"), std::string::npos)
      << nobody.status().to_string();
  // A storage node is not a commit manager.
  const auto node = Client::connect(cluster_->node(0).address());
  EXPECT_FALSE(node.ok());
  EXPECT_NE(node.status().message().find(cluster_->node(0).address()), std::string::npos) << node.status().to_string();
  EXPECT_EQ(Client::connect(cluster_->manager().address(), {.max_fibers = 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::connect(cluster_->manager().address(), {.fiber_stack_bytes = 10}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::connect(cluster_->manager().address(), {.request_timeout_ns = 0}).code(),
            StatusCode::kInvalidArgument);
}

TEST(ClientConnect, WaitsForAClusterThatIsStarting) {
  commit::ManagerOptions options;
  options.listen = "tcp://127.0.0.1:0";
  options.admin_listen = "";
  const auto manager = commit::CommitManager::start(options).value();
  std::optional<Result<std::unique_ptr<Client>>> client;
  std::thread connecting([&] { client.emplace(Client::connect(manager->address())); });
  EXPECT_TRUE(testing::eventually([&] { return manager->statistics().core.refused >= 2; }));
  const auto started = storage::StorageNode::start(small_node(manager->address())).value();
  connecting.join();
  EXPECT_TRUE(client->ok()) << client->status().to_string();
  client.reset();
  started->stop();
}

TEST_F(ClientTest, SessionsAreOpenedAndClosed) {
  const uint64_t before = cluster_->manager().statistics().core.sessions;
  {
    const auto a = cluster_->client({.name = "a"}), b = cluster_->client();
    EXPECT_LT(a->session(), b->session());
    EXPECT_EQ(cluster_->manager().statistics().core.sessions, before + 2);
    EXPECT_EQ(a->admin_address(), "");
  }
  EXPECT_EQ(cluster_->manager().statistics().core.sessions, before);
  EXPECT_EQ(cluster_->manager().statistics().core.sessions_lost, 0u) << "a closed session is not lost";
}

/// Options with short time-outs, for servers that do not return.
ClientOptions short_timeouts() {
  ClientOptions options;
  options.request_timeout_ns = 200'000'000;
  options.commit_timeout_ns = 300'000'000;
  return options;
}

TEST_F(ClientTest, UnreachableCommitManagerIsReported) {
  TestCluster cluster(1, uint64_t{32} << 20);
  const auto client = cluster.client(short_timeouts());
  const Table table = client->create_table("t", TableKind::kTransactional, one_field()).value();
  auto tx = client->begin().value();
  ASSERT_TRUE(tx.insert(table, Key(1), {Value::int64(1)}).ok());
  cluster.manager().stop();
  const Status commit = tx.commit();
  // kFenced: the client knew that the commit manager was away, and has not sent the completion.
  EXPECT_TRUE(commit == StatusCode::kUnknownOutcome || commit == StatusCode::kFenced) << commit.to_string();
  EXPECT_EQ(client->begin().code(), StatusCode::kUnavailable);
  EXPECT_EQ(client->open_table("t").code(), StatusCode::kUnavailable);
  const TransactionOptions two_attempts{.read_only = false, .retry = {.max_attempts = 2}};
  EXPECT_EQ(client->run_transaction([](Transaction&) { return ok_status(); }, two_attempts).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(client->scan(table, sum_query()).code(), StatusCode::kUnavailable);
}

TEST_F(ClientTest, LostStorageNodeIsUnavailable) {
  TestCluster cluster(1, uint64_t{32} << 20);
  const auto client = cluster.client(short_timeouts());
  const Table table = client->create_table("t", TableKind::kTransactional, one_field()).value();
  ASSERT_TRUE(
      client->run_transaction([&](Transaction& tx) { return tx.insert(table, Key(1), {Value::int64(1)}); }).ok());
  auto tx = client->begin().value();
  cluster.node(0).stop();
  const auto record = tx.get(table, Key(1));
  EXPECT_EQ(record.code(), StatusCode::kUnavailable);
  EXPECT_NE(record.status().message().find("storage node 1"), std::string::npos) << record.status().to_string();
  ASSERT_TRUE(tx.update(table, Key(1), {Value::int64(2)}).ok());
  const Status commit = tx.commit();
  EXPECT_EQ(commit.code(), StatusCode::kFenced) << "the write may still arrive, so the session was given up";
  EXPECT_NE(commit.message().find("storage node 1"), std::string::npos) << commit.to_string();
  auto stream = client->scan(table, sum_query());
  EXPECT_EQ(stream.ok() ? stream->next().code() : stream.code(), StatusCode::kUnavailable);
}

// ---- catalog -------------------------------------------------------------------------------------------------------

TEST_F(ClientTest, TablesAreCreatedFoundAndDropped) {
  const auto other = cluster_->client();
  const Table made = client_->create_table("catalog.a", TableKind::kTransactional, one_field()).value();
  const Table found = other->open_table("catalog.a").value();
  EXPECT_EQ(found.id(), made.id());
  EXPECT_EQ(found.schema(), one_field());
  EXPECT_EQ(found.kind(), TableKind::kTransactional);
  // Creating the same table again returns it; another definition is an error.
  EXPECT_EQ(other->create_table("catalog.a", TableKind::kTransactional, one_field())->id(), made.id());
  const auto schema = other->create_table("catalog.a", TableKind::kTransactional, one_field(FieldType::kText));
  EXPECT_EQ(schema.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(schema.status().message().find("catalog.a"), std::string::npos) << schema.status().to_string();
  EXPECT_EQ(other->create_table("catalog.a", TableKind::kNonTransactional, one_field()).code(),
            StatusCode::kAlreadyExists);
  const auto tables = other->list_tables().value();
  EXPECT_TRUE(std::any_of(tables.begin(), tables.end(), [&](const Table& t) { return t.id() == made.id(); }));
  EXPECT_TRUE(std::none_of(tables.begin(), tables.end(), [](const Table& t) { return t.name().starts_with("loam."); }));
  ASSERT_TRUE(client_->drop_table("catalog.a").ok());
  EXPECT_EQ(client_->drop_table("catalog.a").code(), StatusCode::kNoSuchTable);
  const auto gone = other->open_table("catalog.a");
  EXPECT_EQ(gone.code(), StatusCode::kNoSuchTable);
  EXPECT_NE(gone.status().message().find("catalog.a"), std::string::npos);
  EXPECT_NE(client_->create_table("catalog.a", TableKind::kTransactional, one_field())->id(), made.id());
}

TEST_F(ClientTest, SystemTablesAreInaccessible) {
  EXPECT_EQ(client_->open_table("loam.counters").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->drop_table("loam.counters").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->create_table("loam.mine", TableKind::kTransactional, one_field()).code(),
            StatusCode::kInvalidArgument);
  for (const wire::TableInfo& info : wire::system_tables()) {
    const Table forged(
        std::make_shared<const Table::Description>(Table::Description{info.id, info.name, info.kind, info.schema}));
    EXPECT_EQ(client_->plain(forged).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(client_->scan(forged, sum_query()).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(client_->begin()->get(forged, Key(1)).code(), StatusCode::kInvalidArgument);
  }
}

// ---- fibers --------------------------------------------------------------------------------------------------------

TEST_F(ClientTest, FibersRunAndAreJoined) {
  EXPECT_EQ(client_->run([] { return 7; }), 7);
  std::atomic<int> ran{0};
  std::vector<Task> tasks;
  for (int i = 0; i < 100; ++i) {
    tasks.push_back(client_->spawn([&] {
      client_->sleep_for(1'000'000);
      client_->yield();
      ++ran;
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(ran, 100);
  EXPECT_TRUE(tasks[0].done());
  // From within a fiber: spawn and join.
  const int sum = client_->run([&] {
    int total = 0;
    std::vector<Task> inner;
    for (int i = 1; i <= 10; ++i) inner.push_back(client_->spawn([&total, i] { total += i; }));
    for (Task& task : inner) task.join();
    return total;
  });
  EXPECT_EQ(sum, 55);
}

TEST_F(ClientTest, SpawnWaitsAtTheLimitOfFibers) {
  const auto client = cluster_->client({.max_fibers = 4});
  std::atomic<int> living{0}, most{0}, ran{0};
  std::vector<Task> tasks;
  for (int i = 0; i < 40; ++i) {
    tasks.push_back(client->spawn([&] {
      most = std::max<int>(most, ++living);
      // Wait until the limit is reached, because the spawning thread may be slow.
      for (int tries = 0; tries == 0 || (most < 4 && tries < 50'000); ++tries) client->sleep_for(200'000);
      --living;
      ++ran;
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(ran, 40);
  EXPECT_EQ(most, 4);
}

TEST_F(ClientTest, DestructorWaitsForFibers) {
  std::atomic<bool> ended{false};
  {
    const auto client = cluster_->client();
    client->spawn([&, c = client.get()] {
      c->sleep_for(20'000'000);
      ended = c->run_transaction([](Transaction&) { return ok_status(); }).ok();
    });
  }
  EXPECT_TRUE(ended);
}

TEST_F(ClientTest, OrdinaryThreadsMayCallToo) {
  const Table table = accounts();
  fill(table, 8, 0);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        auto tx = client_->begin().value();
        Record record = tx.get(table, Key(t)).value();
        EXPECT_TRUE(record.set(0, Value::int64(record.int64(0) + 1)).ok());
        EXPECT_TRUE(tx.update(table, Key(t), record).ok());
        EXPECT_TRUE(tx.commit().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t t = 0; t < 4; ++t) EXPECT_EQ(balance(table, t), 10);
}

TEST_F(ClientTest, LongHoldsAreReported) {
  std::atomic<int> warnings{0};
  ClientOptions options;
  options.on_warning = [&](std::string_view text) {
    EXPECT_NE(text.find("held the client's thread"), std::string_view::npos) << text;
    ++warnings;
  };
  const auto client = cluster_->client(options);
  client->run([] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(15);
    while (std::chrono::steady_clock::now() < until) {
    }
  });
  client->run([] {});  // the warning comes after the fiber has released the thread
  EXPECT_GE(warnings, 1);
}

// ---- counters ------------------------------------------------------------------------------------------------------

TEST_F(ClientTest, CountersAreUniqueOverClients) {
  const auto other = cluster_->client();
  Counter a = client_->counter("unique", 7).value();
  Counter b = other->counter("unique", 3).value();
  std::set<uint64_t> seen;
  std::mutex mutex;
  std::atomic<int> twice{0};
  const auto draw = [&](Counter& counter) {
    uint64_t last = 0;
    for (int i = 0; i < 200; ++i) {
      const auto number = counter.next();
      if (!number.ok()) {
        ADD_FAILURE() << number.status().to_string();
        return;
      }
      EXPECT_GT(*number, last) << "numbers of one fiber rise";
      last = *number;
      const std::lock_guard lock(mutex);
      twice += seen.insert(*number).second ? 0 : 1;
    }
  };
  std::vector<Task> tasks;
  for (int fiber = 0; fiber < 4; ++fiber) {
    tasks.push_back(client_->spawn([&] { draw(a); }));
    tasks.push_back(other->spawn([&] { draw(b); }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(seen.size(), 1'600u);
  EXPECT_GE(*seen.begin(), 1u);
  EXPECT_LE(*seen.rbegin(), 1'620u) << "only unused rests of blocks are gaps";
  EXPECT_EQ(client_->counter("fresh")->next().value(), 1u);
}

// All waiting fibers fail together. One after the other they would wait for 20 seconds, and with all retries for 64
// times as long.
TEST_F(ClientTest, WaitersFailWithTheFailedBlockAllocation) {
  TestCluster cluster(1, uint64_t{32} << 20);
  ClientOptions options = short_timeouts();
  options.request_timeout_ns = 1'000'000'000;
  const auto client = cluster.client(options);
  Counter counter = client->counter("c", 1).value();
  cluster.node(0).stop();
  const auto from = std::chrono::steady_clock::now();
  std::vector<Task> tasks;
  std::atomic<int> failed{0};
  for (int fiber = 0; fiber < 20; ++fiber) {
    tasks.push_back(client->spawn([&] { failed += counter.next().code() == StatusCode::kUnavailable ? 1 : 0; }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(failed, 20);
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(10));
}

TEST_F(ClientTest, CountersCheckTheirArguments) {
  EXPECT_EQ(client_->counter("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->counter("x", 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->counter("x", (uint64_t{1} << 32) + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->counter(std::string(1'025, 'x')).code(), StatusCode::kInvalidArgument);
}

// ---- non-transactional tables --------------------------------------------------------------------------------------

TEST_F(ClientTest, PlainTablesSwapByExactVersion) {
  PlainTable table = client_->plain(accounts(TableKind::kNonTransactional)).value();
  EXPECT_EQ(table.get(Key(1)).code(), StatusCode::kNotFound);
  const Version first = table.insert(Key(1), {Value::int64(1), Value::null()}).value();
  EXPECT_EQ(table.insert(Key(1), {Value::int64(2), Value::null()}).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(table.get(Key(1))->version(), first);
  const Version second = table.update(Key(1), first, {Value::int64(2), Value::null()}).value();
  EXPECT_GT(second, first);
  const auto stale = table.update(Key(1), first, {Value::int64(3), Value::null()});
  EXPECT_EQ(stale.code(), StatusCode::kConflict);
  EXPECT_NE(stale.status().message().find("record 1 of table"), std::string::npos);
  EXPECT_EQ(table.remove(Key(1), first).code(), StatusCode::kConflict);
  EXPECT_EQ(table.get(Key(1))->int64("balance"), 2);
  ASSERT_TRUE(table.remove(Key(1), second).ok());
  EXPECT_EQ(table.get(Key(1)).code(), StatusCode::kNotFound);
  EXPECT_EQ(table.update(Key(1), second, {Value::int64(3), Value::null()}).code(), StatusCode::kConflict);
  EXPECT_GT(table.insert(Key(1), {Value::int64(4), Value::null()}).value(), second)
      << "no version is used again (R21, exact-version writes)";
  EXPECT_EQ(table.insert(Key(2), {Value::text("x"), Value::null()}).code(), StatusCode::kInvalidArgument);

  std::vector<Key> keys;
  for (uint64_t key = 10; key < 30; ++key) {
    ASSERT_TRUE(table.insert(Key(key), {Value::int64(static_cast<int64_t>(key)), Value::null()}).ok());
    keys.push_back(Key(key));
  }
  keys.push_back(Key(99));
  const auto many = table.get_many(keys);
  for (size_t i = 0; i + 1 < keys.size(); ++i) EXPECT_EQ(many[i].value().int64(0), static_cast<int64_t>(10 + i));
  EXPECT_EQ(many.back().code(), StatusCode::kNotFound);
  auto stream = client_->scan(table.table(), sum_query()).value();
  EXPECT_EQ(sum_of(stream).count, 21);
  EXPECT_EQ(client_->plain(accounts()).code(), StatusCode::kWrongTableKind);
}

TEST_F(ClientTest, PlainIncrementsAreNotLost) {
  PlainTable table = client_->plain(accounts(TableKind::kNonTransactional)).value();
  ASSERT_TRUE(table.insert(Key(1), {Value::int64(0), Value::null()}).ok());
  std::vector<Task> tasks;
  for (int fiber = 0; fiber < 8; ++fiber) {
    tasks.push_back(client_->spawn([&] {
      for (int done = 0; done < 25;) {
        const Record record = table.get(Key(1)).value();
        done += table.update(Key(1), record.version(), {Value::int64(record.int64(0) + 1), Value::null()}).ok() ? 1 : 0;
      }
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(table.get(Key(1))->int64(0), 200);
}

}  // namespace
}  // namespace loam::client
