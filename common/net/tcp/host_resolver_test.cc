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
    ++lookups_;
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
  size_t lookups() {
    const std::lock_guard lock(mutex_);
    return lookups_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  size_t lookups_ = 0;
};

class HostResolverTest : public ::testing::Test {
 protected:
  static Address host(const std::string& name) { return Address::parse("tcp://" + name + ":7400").value(); }
  std::unique_ptr<HostResolver> make_resolver() {
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
  const auto host_resolver = make_resolver();
  std::optional<HostResolver::ResolveResult> found, failed;
  host_resolver->submit(host("somewhere"),
                        [&](HostResolver::ResolveResult result) { found.emplace(std::move(result)); });
  host_resolver->submit(host("nowhere"),
                        [&](HostResolver::ResolveResult result) { failed.emplace(std::move(result)); });
  EXPECT_EQ(host_resolver->poll(), 0u) << "the resolver has not answered, and submit() has returned";
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return wakes() == 2; }));
  EXPECT_FALSE(found.has_value()) << "only poll() calls back";
  EXPECT_EQ(host_resolver->poll(), 2u);
  EXPECT_EQ((*found)->size(), 1u);
  EXPECT_EQ(failed->code(), StatusCode::kUnavailable);
  EXPECT_EQ(host_resolver->poll(), 0u);
}

TEST_F(HostResolverTest, ACancelledLookupDoesNotCallBack) {
  const auto host_resolver = make_resolver();
  const uint64_t number = host_resolver->submit(host("somewhere"), [](const HostResolver::ResolveResult&) { FAIL(); });
  ASSERT_TRUE(eventually([&] { return resolver_->lookups() == 1; }));
  host_resolver->cancel(number);
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return wakes() == 1; }));
  EXPECT_EQ(host_resolver->poll(), 0u);
}

TEST_F(HostResolverTest, ACancelledLookupInTheQueueIsNotMade) {
  auto host_resolver = make_resolver();
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < 10 * kMaxLookups; ++i) {
    numbers.push_back(host_resolver->submit(host("somewhere"), [](const HostResolver::ResolveResult&) { FAIL(); }));
  }
  ASSERT_TRUE(eventually([&] { return resolver_->lookups() == kMaxLookups; }));
  for (const uint64_t number : numbers) host_resolver->cancel(number);
  resolver_->answer_all();
  host_resolver.reset();
  ASSERT_TRUE(eventually([&] { return resolver_.use_count() == 1; })) << "a lookup thread has not ended";
  EXPECT_EQ(resolver_->lookups(), kMaxLookups);
}

TEST_F(HostResolverTest, NumberOfLookupThreadsIsBounded) {
  const auto host_resolver = make_resolver();
  constexpr size_t kNames = 10 * kMaxLookups;
  size_t found = 0;
  for (size_t i = 0; i < kNames; ++i) {
    host_resolver->submit(host("somewhere"),
                          [&](const HostResolver::ResolveResult& result) { found += result.ok() ? 1 : 0; });
  }
  ASSERT_TRUE(eventually([&] { return resolver_->lookups() == kMaxLookups; }));
  EXPECT_EQ(resolver_->lookups(), kMaxLookups) << "more lookups run than permitted";
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] {
    host_resolver->poll();
    return found == kNames;
  }));
}

TEST_F(HostResolverTest, DestructorDoesNotWaitForALookup) {
  auto host_resolver = make_resolver();
  host_resolver->submit(host("somewhere"), [](const HostResolver::ResolveResult&) { FAIL(); });
  ASSERT_TRUE(eventually([&] { return resolver_->lookups() == 1; }));
  host_resolver.reset();  // returns while a lookup is running
  resolver_->answer_all();
  ASSERT_TRUE(eventually([&] { return resolver_.use_count() == 1; })) << "the lookup thread has not ended";
  EXPECT_EQ(wakes(), 0u) << "a lookup has woken an owner that no longer exists";
}

}  // namespace
}  // namespace loam::net
