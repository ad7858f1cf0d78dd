#include "common/admin/history.h"

#include <atomic>
#include <optional>

#include <gtest/gtest.h>

#include "common/testing/eventually.h"

namespace loam {
namespace {

struct Numbers {
  uint64_t level = 0, unused = 0, total = 0;
  static constexpr auto fields() {
    using statistics::counter;
    using statistics::gauge;
    return std::tuple(gauge("level", &Numbers::level, "a level"), gauge("unused", &Numbers::unused, "not sampled"),
                      counter("total", &Numbers::total, "a count"));
  }
};

admin::HistoryReply all_of(History& history, uint64_t after_ms = 0) {
  admin::HistoryReply reply;
  history.fill(after_ms, reply);
  return reply;
}

TEST(History, KeepsTheNewestSamplesInTheOrderOfTheirTimes) {
  uint64_t calls = 0;  // only the thread of the history uses it
  const auto read = [&]() -> std::optional<Numbers> {
    ++calls;
    if (calls % 3 == 0) return std::nullopt;
    return Numbers{.level = 7, .total = calls};
  };
  History history(std::chrono::milliseconds(0));
  history.add<Numbers>({"total", "level"}, read);
  history.start();
  const auto last = [&] {
    const admin::HistoryReply reply = all_of(history);
    return reply.samples().empty() ? 0 : reply.samples().rbegin()->numbers(1);
  };
  ASSERT_TRUE(testing::eventually([&] { return last() > 3 * History::kMaxSamples; }));
  history.stop();
  history.stop();
  const admin::HistoryReply reply = all_of(history);
  ASSERT_EQ(reply.columns_size(), 2);
  EXPECT_EQ(reply.columns(0).name(), "level") << "in the order of the field list";
  EXPECT_EQ(reply.columns(1).kind(), admin::COUNTER);
  ASSERT_EQ(reply.samples_size(), static_cast<int>(History::kMaxSamples)) << "older ones are dropped";
  for (int i = 0; i < reply.samples_size(); ++i) {
    EXPECT_EQ(reply.samples(i).numbers(0), 7u);
    EXPECT_NE(reply.samples(i).numbers(1) % 3, 0u) << "a sample that could not be read";
    if (i == 0) continue;
    EXPECT_GE(reply.samples(i).at_ms(), reply.samples(i - 1).at_ms());
    EXPECT_GT(reply.samples(i).numbers(1), reply.samples(i - 1).numbers(1));
  }
  const uint64_t newest = reply.samples().rbegin()->at_ms();
  EXPECT_EQ(all_of(history, newest).samples_size(), 0) << "only later samples";
  EXPECT_GE(all_of(history, newest - 1).samples_size(), 1);
}

TEST(History, ASampleHasTheNumbersOfAllSourcesInTheirOrder) {
  uint64_t first = 0, second = 0, third = 0;  // calls; only the thread of the history uses them
  History::Column column;
  column.set_name("other");
  column.set_kind(admin::GAUGE);
  History history(std::chrono::milliseconds(0));
  history.add<Numbers>({"total"}, [&] { return Numbers{.total = ++first}; });
  history.add({column}, [&]() -> std::optional<History::Numbers> {
    if (++second % 2 == 0) return std::nullopt;
    return History::Numbers{second};
  });
  history.add<Numbers>({"level"}, [&] { return Numbers{.level = ++third}; });
  history.start();
  ASSERT_TRUE(testing::eventually([&] { return all_of(history).samples_size() >= 10; }));
  history.stop();
  const admin::HistoryReply reply = all_of(history);
  ASSERT_EQ(reply.columns_size(), 3);
  EXPECT_EQ(reply.columns(0).name(), "total");
  EXPECT_EQ(reply.columns(1).name(), "other");
  EXPECT_EQ(reply.columns(1).kind(), admin::GAUGE);
  EXPECT_EQ(reply.columns(2).name(), "level");
  for (const admin::HistoryReply::Sample& sample : reply.samples()) {
    ASSERT_EQ(sample.numbers_size(), 3);
    EXPECT_EQ(sample.numbers(0), sample.numbers(1)) << "of the same round";
    EXPECT_EQ(sample.numbers(1) % 2, 1u) << "without a source there is no sample";
    EXPECT_EQ(sample.numbers(2), sample.numbers(1) / 2 + 1) << "later sources are not read in vain";
  }
}

}  // namespace
}  // namespace loam
