#include "common/admin/statistics.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

struct Sample {
  uint64_t taken = 0, waiting = 0;
  bool open = false;
  std::string name;

  static constexpr auto fields() {
    using S = Sample;
    return std::tuple(statistics::counter("taken", &S::taken, "since the start"),
                      statistics::text("name", &S::name, "what it is called"),
                      statistics::flag("open", &S::open, "whether it is open"),
                      statistics::gauge("waiting", &S::waiting, "now"));
  }
};

TEST(AdminStatistics, SendsEveryFieldWithItsNameKindAndMeaning) {
  Sample sample;
  sample.taken = UINT64_MAX;
  sample.open = true;
  sample.name = "left";
  google::protobuf::RepeatedPtrField<admin::Statistic> sent;
  add_statistics(sample, sent);
  ASSERT_EQ(sent.size(), 4);
  EXPECT_EQ(sent[0].name(), "taken");
  EXPECT_EQ(sent[0].kind(), admin::COUNTER);
  EXPECT_EQ(sent[0].help(), "since the start");
  EXPECT_EQ(sent[0].number(), UINT64_MAX);
  EXPECT_EQ(sent[1].kind(), admin::TEXT);
  EXPECT_EQ(sent[1].text(), "left");
  EXPECT_EQ(sent[2].kind(), admin::FLAG);
  EXPECT_TRUE(sent[2].flag());
  EXPECT_EQ(sent[3].kind(), admin::GAUGE);
  EXPECT_EQ(sent[3].value_case(), admin::Statistic::kNumber) << "zeroes are sent, too";
}

TEST(AdminStatistics, SendsTheColumnsOnceAndARowForEachObject) {
  std::vector<Sample> samples(1'000);
  samples[7].name = "seven";
  samples[7].waiting = 70;
  admin::StatisticsTable table;
  fill_table(samples, table);
  ASSERT_EQ(table.columns_size(), 4);
  EXPECT_EQ(table.columns(3).name(), "waiting");
  ASSERT_EQ(table.rows_size(), 1'000);
  EXPECT_EQ(table.rows(7).texts(0), "seven");
  ASSERT_EQ(table.rows(7).numbers_size(), 3);
  EXPECT_EQ(table.rows(7).numbers(2), 70u);
  admin::StatisticsTable none;
  fill_table(std::vector<Sample>(), none);
  EXPECT_EQ(none.columns_size(), 4);
}

}  // namespace
}  // namespace loam
