#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "client-lib/testing/open_tree_store.h"
#include "common/testing/random.h"

namespace loam::client {
namespace {

using bdtree::Edit;
using bdtree::Entry;
using bdtree::Tree;
using bdtree::TreeOptions;

class TreeStoreTest : public ClusterTest {
 protected:
  static std::string tree_name() {
    return std::string("tree.") + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::string key(uint64_t n) {
    std::string text = std::to_string(n);
    return text.insert(0, 8 - text.size(), '0');
  }

  /// A client process's tree; its calls are made in a fiber.
  struct Process {
    explicit Process(const TreeOptions& options = {}) : client(cluster_->client()) {
      auto opened = open_tree_store(*client, tree_name());
      LOAM_CHECK(opened.ok(), opened.status().to_string().c_str());
      store = std::move(opened).value();
      tree = Tree::open(*store, options);
    }
    ~Process() {
      client->run([&] { tree.reset(); });
      store.reset();
    }
    std::unique_ptr<Client> client;
    std::shared_ptr<TreeStore> store;
    std::unique_ptr<Tree> tree;
  };
};

TEST_F(TreeStoreTest, AllOpenersShareOneTree) {
  Process first, second;
  ASSERT_TRUE(first.client->run([&] { return first.tree->insert("k", "v"); }).ok());
  EXPECT_EQ(second.client->run([&] { return second.tree->find("k"); }).value(), "v");
  EXPECT_EQ(second.client->run([&] { return second.tree->insert("k", "w"); }).code(), StatusCode::kAlreadyExists);
}

TEST_F(TreeStoreTest, RejectsTableOfAnotherKind) {
  ASSERT_TRUE(client_
                  ->create_table(tree_name(), TableKind::kNonTransactional,
                                 Schema::make({{"a", FieldType::kInt32, false}}).value())
                  .ok());
  EXPECT_EQ(open_tree_store(*client_, tree_name()).code(), StatusCode::kAlreadyExists);
}

TEST_F(TreeStoreTest, DeferredWorkKeepsTheStore) {
  auto store = open_tree_store(*client_, tree_name()).value();
  const std::weak_ptr<TreeStore> gone = store;
  int begun = 0;
  int ended = 0;
  client_->run([&] {
    for (int i = 0; i < 8; ++i) {
      store->defer([&, raw = store.get()] {
        ++begun;
        client_->sleep_for(5'000'000);
        // As posts and merges do, the work defers more work after the owner of the tree is gone.
        for (int more = 0; more < 10; ++more) raw->defer([&] { ++begun, ++ended; });
        ++ended;
      });
    }
    client_->yield();
    store.reset();
    EXPECT_FALSE(gone.expired());
  });
  EXPECT_TRUE(testing::eventually([&] { return client_->run([&] { return gone.expired(); }); }));
  client_->run([&] {
    EXPECT_EQ(begun, 88);
    EXPECT_EQ(ended, 88);
  });
}

TEST_F(TreeStoreTest, FourClientsOnOneTreeLoseNothing) {
  constexpr size_t kClients = 4;
  constexpr size_t kFibers = 8;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr uint64_t kInserts = 40;
#else
  constexpr uint64_t kInserts = 150;
#endif
  const TreeOptions small{.node_bytes = 1'024, .delta_bytes = 128};
  std::vector<std::unique_ptr<Process>> processes;
  for (size_t c = 0; c < kClients; ++c) processes.push_back(std::make_unique<Process>(small));
  std::vector<std::thread> threads;
  for (size_t c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      Process& process = *processes[c];
      std::vector<Task> tasks;
      for (size_t f = 0; f < kFibers; ++f) {
        tasks.push_back(process.client->spawn([&, c, f] {
          for (uint64_t i = 0; i < kInserts; ++i) {
            // All clients insert into the same leaves, and erase every fourth key again.
            const std::string mine = key(i * kClients * kFibers + c * kFibers + f);
            ASSERT_TRUE(process.tree->insert(mine, std::to_string(c)).ok());
            if (i % 4 == 0) {
              ASSERT_TRUE(process.tree->erase(mine).ok());
            }
            ASSERT_TRUE(process.tree
                            ->update("sum",
                                     [](std::optional<std::string_view> now) {
                                       const int sum = std::stoi(std::string(now.value_or("0")));
                                       return Result<Edit>(Edit::put(std::to_string(sum + 1)));
                                     })
                            .ok());
          }
        }));
      }
      for (Task& task : tasks) task.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  processes.resize(1);  // the others' deferred work is done
  Process& last = *processes[0];
  last.client->run([&] {
    EXPECT_EQ(last.tree->find("sum").value(), std::to_string(kClients * kFibers * kInserts));
    const std::vector<Entry> all = last.tree->range("", "a", SIZE_MAX).value();
    EXPECT_EQ(all.size(), kClients * kFibers * (kInserts - (kInserts + 3) / 4));
    for (const Entry& entry : all) {
      const uint64_t n = std::stoull(entry.key);
      EXPECT_EQ(entry.payload, std::to_string(n / kFibers % kClients)) << entry.key;
      EXPECT_NE(n / (kClients * kFibers) % 4, 0u) << entry.key << " was erased";
    }
  });
  // Deferred work runs in fibers of the client. Wait for its end.
  EXPECT_TRUE(testing::eventually(
      [&] { return last.client->run([&] { return last.tree->check_invariants(); }).value().empty(); }));
}

}  // namespace
}  // namespace loam::client
