#include "deploy/demo/flights.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

class FlightsTest : public ::testing::Test {
 protected:
  FlightsTest() {
    std::string pattern = ::testing::TempDir() + "loam_flights_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~FlightsTest() override { std::filesystem::remove_all(directory_); }
  std::string write(const std::string& text) {
    std::ofstream(directory_ + "/flights.csv") << text;
    return directory_ + "/flights.csv";
  }

  std::string directory_;
};

TEST_F(FlightsTest, ComputesResultsFromFile) {
  const std::string path = write(
      "carrier,origin,dest,dep_delay,arr_delay,distance\n"
      "UA,JFK,LAX,70,60,2475\n"
      "UA,EWR,LAX,-2,NA,2454\n"
      "B6,JFK,MCO,NA,NA,944\n"
      "B6,JFK,MCO,61,NA,944\n");
  const std::vector<ResultRows> answers = expected_results(path).value();
  ASSERT_EQ(answers.size(), flight_queries().size());
  EXPECT_EQ(answers[0], (ResultRows{{Value::text("B6"), Value::int64(2), Value::float64(61), Value::float64(61)},
                                    {Value::text("UA"), Value::int64(2), Value::float64(34), Value::float64(70)}}));
  EXPECT_EQ(answers[1], (ResultRows{{Value::text("EWR"), Value::int64(1), Value::int64(0), Value::null()},
                                    {Value::text("JFK"), Value::int64(3), Value::int64(1), Value::float64(60)}}));
  EXPECT_EQ(answers[2], (ResultRows{{Value::text("LAX"), Value::int64(2), Value::float64(4929)},
                                    {Value::text("MCO"), Value::int64(2), Value::float64(1888)}}));
  EXPECT_EQ(answers[3], (ResultRows{{Value::int64(2), Value::float64(65.5), Value::float64(70)}}));
  EXPECT_EQ(answers[4], (ResultRows{{Value::text("B6"), Value::text("JFK"), Value::int64(1)}}));
}

TEST_F(FlightsTest, ReportsMissingColumn) {
  const std::string path = write("carrier,origin,dest,dep_delay,arr_delay\n");
  EXPECT_EQ(expected_results(path).status().to_string(),
            "kMalformed: " + path + " has no column distance; the demo asks about flights as in deploy/cli/data");
}

TEST(CompareAnswers, FindsEveryDifference) {
  const ResultRows expected = {{Value::text("a"), Value::int64(1), Value::float64(0.1)},
                               {Value::text("b"), Value::int64(2), Value::null()}};
  EXPECT_TRUE(compare_results(expected, expected).ok());
  EXPECT_TRUE(
      compare_results({expected[1], {Value::text("a"), Value::int32(1), Value::float64(0.1 + 1e-15)}}, expected).ok())
      << "order, width and the last bit of a mean do not matter";
  const auto message = [&](const ResultRows& got) { return std::string(compare_results(got, expected).message()); };
  EXPECT_EQ(message({expected[0]}), "the scan gave 1 rows, the file says 2");
  EXPECT_EQ(message({expected[0], expected[0]}), "the scan gave the row a | 1 | 0.1, the file has none");
  EXPECT_EQ(message({expected[0], {Value::text("b"), Value::int64(3), Value::null()}}),
            "the scan gave b | 3 | NULL, the file says b | 2 | NULL");
  EXPECT_EQ(message({expected[0], {Value::text("b"), Value::int64(2), Value::float64(0)}}),
            "the scan gave b | 2 | 0, the file says b | 2 | NULL");
  EXPECT_EQ(message({expected[0], {Value::text("c"), Value::int64(2), Value::null()}}),
            "the scan gave the row c | 2 | NULL, the file has none");
}

}  // namespace
}  // namespace loam::cli
