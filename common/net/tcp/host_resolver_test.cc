#include "common/net/tcp/host_resolver.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/eventually.h"

namespace loam::net {
namespace {

using loam::testing::eventually;

/// A resolver that answers when the test permits it.
class SlowResolver {
 public:
  HostResolver::ResolveResult look_up(const Address& address) {
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

class HostResolverTest : public ::testing::Test {
 protected:
  static Address host(const std::string& name) { return Address::parse("tcp://" + name + ":7400").value(); }
  std::unique_ptr<HostResolver> lookups() {
    return std::make_unique<HostResolver>(
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

TEST_F(HostResolverTest, ResultsArriveInALaterPollOnTheOwnersThread) {
  const auto looking = lookups();
  std::optional<HostResolver::ResolveResult> found, failed;
  looking->submit(host("somewhere"), [&](HostResolver::ResolveResult result) { found.emplace(std::move(result)); });
  looking->submit(host("nowhere"), [&](HostResolver::ResolveResult result) { failed.emplace(std::move(result)); });
  EXPECT_EQ(looking->poll(), 0u) << "the resolver has not answered, and submit() has returned";
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return wakes() == 2; }));
  EXPECT_FALSE(found.has_value()) << "only poll() calls back";
  EXPECT_EQ(looking->poll(), 2u);
  EXPECT_EQ((*found)->size(), 1u);
  EXPECT_EQ(failed->code(), StatusCode::kUnavailable);
  EXPECT_EQ(looking->poll(), 0u);
}

TEST_F(HostResolverTest, ACancelledLookupDoesNotCallBack) {
  const auto looking = lookups();
  const uint64_t number = looking->submit(host("somewhere"), [](const HostResolver::ResolveResult&) { FAIL(); });
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == 1; }));
  looking->cancel(number);
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return wakes() == 1; }));
  EXPECT_EQ(looking->poll(), 0u);
}

TEST_F(HostResolverTest, ACancelledLookupInTheQueueIsNotMade) {
  auto looking = lookups();
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < 10 * kMaxLookups; ++i) {
    numbers.push_back(looking->submit(host("somewhere"), [](const HostResolver::ResolveResult&) { FAIL(); }));
  }
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == kMaxLookups; }));
  for (const uint64_t number : numbers) looking->cancel(number);
  resolver_->answer_all();
  looking.reset();
  ASSERT_TRUE(eventually([&] { return resolver_.use_count() == 1; })) << "a lookup thread has not ended";
  EXPECT_EQ(resolver_->asked(), kMaxLookups);
}

TEST_F(HostResolverTest, NumberOfLookupThreadsIsBounded) {
  const auto looking = lookups();
  constexpr size_t kNames = 10 * kMaxLookups;
  size_t found = 0;
  for (size_t i = 0; i < kNames; ++i) {
    looking->submit(host("somewhere"),
                    [&](const HostResolver::ResolveResult& result) { found += result.ok() ? 1 : 0; });
  }
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == kMaxLookups; }));
  EXPECT_EQ(resolver_->asked(), kMaxLookups) << "more lookups run than permitted";
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] {
    looking->poll();
    return found == kNames;
  }));
}

TEST_F(HostResolverTest, DestructorDoesNotWaitForALookup) {
  auto looking = lookups();
  looking->submit(host("somewhere"), [](const HostResolver::ResolveResult&) { FAIL(); });
  ASSERT_TRUE(eventually([&] { return resolver_->asked() == 1; }));
  looking.reset();  // returns while a lookup is running
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return resolver_.use_count() == 1; })) << "the lookup thread has not ended";
  EXPECT_EQ(wakes(), 0u) << "a lookup has woken an owner that no longer exists";
}

}  // namespace
}  // namespace loam::net
