#include "commit-manager/src/store/state_writer.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/eventually.h"

namespace loam::commit {
namespace {

/// A storage that blocks every store until the test releases it.
class BlockedStore final : public StableStorage {
 public:
  Bytes stored_state() const override { return {}; }
  Status store(Bytes state) override {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return allowed_ > 0; });
    --allowed_;
    stored_.emplace_back(as_text(state));
    return stored_.size() == 3 ? Status(StatusCode::kNoSpace, "full") : ok_status();
  }
  Result<std::unique_ptr<LogDevice>> log_device() override { return Status(StatusCode::kInternal, "has no log"); }
  void allow() {
    const std::lock_guard lock(mutex_);
    ++allowed_;
    changed_.notify_all();
  }
  bool wait_entered(int times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kTestTimeout, [&] { return entered_ >= times; });
  }
  std::vector<std::string> stored() {
    const std::lock_guard lock(mutex_);
    return stored_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int entered_ = 0;
  int allowed_ = 0;
  std::vector<std::string> stored_;
};

/// Collects outcomes in the order in which the writer reports them.
class StoreOutcomes {
 public:
  void add(const Status& status) {
    const std::lock_guard lock(mutex_);
    codes_.push_back(status.code());
    changed_.notify_all();
  }
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kTestTimeout, [&] { return codes_.size() >= count; });
  }
  std::vector<StatusCode> codes() {
    const std::lock_guard lock(mutex_);
    return codes_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StatusCode> codes_;
};

TEST(StateWriter, AnswersAtOnceUntilItIsStarted) {
  BlockedStore store;
  StateWriter writer(store);
  store.allow();
  const std::optional<Status> outcome = writer.store(as_bytes("first"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(outcome->ok());
  EXPECT_EQ(store.stored(), std::vector<std::string>{"first"});
}

TEST(StateWriter, ReportsEachOutcomeWithoutWaiting) {
  BlockedStore store;
  StoreOutcomes outcomes;
  StateWriter writer(store);
  writer.start([&](const Status& status) { outcomes.add(status); });
  const std::vector<std::string> states = {"one", "two", "three"};
  for (size_t i = 0; i < states.size(); ++i) {
    std::string bytes = states[i];
    EXPECT_FALSE(writer.store(as_bytes(bytes)).has_value()) << "the disk is blocked";
    bytes.assign(bytes.size(), 'x');  // the writer has its own copy
    ASSERT_TRUE(store.wait_entered(static_cast<int>(i) + 1));
    EXPECT_EQ(outcomes.codes().size(), i) << "the writer reports nothing before the disk has answered";
    store.allow();
    ASSERT_TRUE(outcomes.wait_for(i + 1));
  }
  EXPECT_EQ(store.stored(), states);
  EXPECT_EQ(outcomes.codes(), (std::vector{StatusCode::kOk, StatusCode::kOk, StatusCode::kNoSpace}));
}

TEST(StateWriter, StopWaitsForTheStoreUnderWay) {
  BlockedStore store;
  StoreOutcomes outcomes;
  {
    StateWriter writer(store);
    writer.start([&](const Status& status) { outcomes.add(status); });
    EXPECT_FALSE(writer.store(as_bytes("one")).has_value());
    ASSERT_TRUE(store.wait_entered(1));
    store.allow();
  }
  EXPECT_EQ(outcomes.codes(), std::vector{StatusCode::kOk});
  StateWriter never_used(store);
  never_used.start([](const Status&) {});
}

}  // namespace
}  // namespace loam::commit
