#include "common/net/name_lookup.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/patience.h"

namespace loam::net {
namespace {

using testing::eventually;

/// A name server that answers when the test lets it.
class SlowResolver {
 public:
  NameLookups::Found look_up(const Address& address) {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    if (address.host == "nowhere") return Status(StatusCode::kUnavailable, "host 'nowhere' has no address");
    return std::vector<SocketAddress>(1);
  }
  void answer_all() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  size_t asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  size_t asked_ = 0;
};

class NameLookupTest : public ::testing::Test {
 protected:
  static Address host(const std::string& name) { return Address::parse("tcp://" + name + ":7400").value(); }
  std::unique_ptr<NameLookups> lookups() {
    return std::make_unique<NameLookups>(
        [this] {
          const std::lock_guard lock(mutex_);
          ++wakes_;
        },
        [resolver = resolver_](const Address& address) { return resolver->look_up(address); });
  }
  size_t wakes() {
    const std::lock_guard lock(mutex_);
    return wakes_;
  }

  std::shared_ptr<SlowResolver> resolver_ = std::make_shared<SlowResolver>();
  std::mutex mutex_;
  size_t wakes_ = 0;
};

TEST_F(NameLookupTest, AnswersComeLaterAndOnTheOwnersThread) {
  const auto looking = lookups();
  std::optional<NameLookups::Found> found, failed;
  looking->start(host("somewhere"), [&](NameLookups::Found result) { found.emplace(std::move(result)); });
  looking->start(host("nowhere"), [&](NameLookups::Found result) { failed.emplace(std::move(result)); });
  EXPECT_EQ(looking->take(), 0u) << "the resolver has not answered, and start() has returned";
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return wakes() == 2; }));
  EXPECT_FALSE(found.has_value()) << "only take() calls";
  EXPECT_EQ(looking->take(), 2u);
  EXPECT_EQ((*found)->size(), 1u);
  EXPECT_EQ(failed->code(), StatusCode::kUnavailable);
  EXPECT_EQ(looking->take(), 0u);
}

TEST_F(NameLookupTest, AForgottenLookupCallsNobody) {
  const auto looking = lookups();
  const uint64_t number = looking->start(host("somewhere"), [](const NameLookups::Found&) { FAIL(); });
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == 1; }));
  looking->forget(number);
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return wakes() == 1; }));
  EXPECT_EQ(looking->take(), 0u);
}

TEST_F(NameLookupTest, AForgottenLookupThatWaitsIsNotMade) {
  auto looking = lookups();
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < 10 * kMaxLookups; ++i) {
    numbers.push_back(looking->start(host("somewhere"), [](const NameLookups::Found&) { FAIL(); }));
  }
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == kMaxLookups; }));
  for (const uint64_t number : numbers) looking->forget(number);
  resolver_->answer_all();
  looking.reset();
  ASSERT_TRUE(eventually([&] { return resolver_.use_count() == 1; })) << "the threads have ended";
  EXPECT_EQ(resolver_->asked(), kMaxLookups);
}

TEST_F(NameLookupTest, AtMostSoManyThreadsLookUp) {
  const auto looking = lookups();
  constexpr size_t kNames = 10 * kMaxLookups;
  size_t found = 0;
  for (size_t i = 0; i < kNames; ++i) {
    looking->start(host("somewhere"), [&](const NameLookups::Found& result) { found += result.ok() ? 1 : 0; });
  }
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == kMaxLookups; }));
  EXPECT_EQ(resolver_->asked(), kMaxLookups) << "the others wait";
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] {
    looking->take();
    return found == kNames;
  }));
}

TEST_F(NameLookupTest, TheOwnerDoesNotWaitForALookup) {
  auto looking = lookups();
  looking->start(host("somewhere"), [](const NameLookups::Found&) { FAIL(); });
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == 1; }));
  looking.reset();  // returns while the resolver is asked
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return resolver_.use_count() == 1; })) << "the thread has ended";
  EXPECT_EQ(wakes(), 0u) << "an owner that is gone is not woken";
}

}  // namespace
}  // namespace loam::net
