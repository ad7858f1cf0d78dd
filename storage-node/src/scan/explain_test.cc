#include "storage-node/src/scan/explain.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

enum FieldNumber : uint16_t { kAt, kInfo, kNote };
constexpr int64_t kRows = 20'000;

/// Numbers and texts in ascending order, and notes that are NULL in the first half.
class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest()
      : log_(
            Schema::make(
                {{"at", FieldType::kInt64, false}, {"info", FieldType::kText, false}, {"note", FieldType::kText, true}})
                .value()) {
    for (int64_t i = 0; i < kRows; ++i) {
      log_.put(static_cast<uint64_t>(i), 1, kOpen,
               {Value::int64(i), Value::text("a" + std::to_string(1'000'000 + i)),
                i < kRows / 2 ? Value() : Value::text("x")});
    }
    testing::Random random(testing::test_seed(std::random_device()()));
    log_.to_columns(random, 1);
  }

  /// Checks the text about the first clause, and whether a scan skips pages.
  std::string explain_clause(const Clause& clause, bool& skips) {
    Query query;
    query.with_key = true;
    query.where.all = {clause};
    EXPECT_TRUE(query.check(*log_.schema).ok());
    QueryResult result(*log_.schema, query);
    ScanScheduler scans({});
    EXPECT_TRUE(scans.join(1, log_.spec(query, Snapshot(Version(1))), result, 0).ok());
    while (scans.step(1, any_publication(), 1 << 20)) {
    }
    EXPECT_TRUE(result.ended() && result.status.ok());
    skips = result.statistics.pages_skipped != 0;
    const std::string text = explain(*log_.schema, query, log_.pages());
    const std::string prefix = "where 1: skips ";
    const size_t from = text.find(prefix) + prefix.size();
    return text.substr(from, text.find('\n', from) - from);
  }

  LogFixture log_;
};

TEST_F(ExplainTest, SaysWhichPagesAreSkipped) {
  const Value middle = Value::int64(kRows / 2), info = Value::text("a1010000");
  const std::string no_pages = "no column pages";
  const std::string by_at = "column pages where the least and the greatest at exclude it";
  const std::string by_info = "column pages where the least and the greatest info exclude it";
  const Predicate early{kAt, PredicateOp::kLess, {Value::int64(5)}};
  const Predicate text_within{kInfo, PredicateOp::kContains, {Value::text("zz")}};
  struct Case {
    Clause clause;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{{early}}, by_at},
      {{{{kAt, PredicateOp::kEqual, {middle}}}}, by_at},
      {{{{kAt, PredicateOp::kIn, {middle, Value::int64(kRows / 2 + 1)}}}}, by_at},
      {{{{kInfo, PredicateOp::kEqual, {info}}}}, by_info},
      {{{{kInfo, PredicateOp::kGreater, {Value::text("a1019")}}}}, by_info},
      {{{{kInfo, PredicateOp::kPrefix, {info}}}}, by_info},
      {{{{kInfo, PredicateOp::kPrefix, {Value::text("a10190")}}}}, by_info},
      {{{{kInfo, PredicateOp::kSuffix, {Value::text("zz")}}}}, no_pages},
      {{{{kInfo, PredicateOp::kNotEqual, {info}}}}, no_pages},
      {{{text_within}}, no_pages},
      {{{early, text_within}}, no_pages},
      {{{early, {kInfo, PredicateOp::kEqual, {info}}}}, by_at + ", and the least and the greatest info exclude it"},
      {{{{kNote, PredicateOp::kIsNull, {}}}}, "column pages where no note is NULL"},
      {{{{kNote, PredicateOp::kContains, {Value::text("x")}}}}, "column pages where every note is NULL"},
      {{{{kNote, PredicateOp::kIsNotNull, {}}}}, "column pages where every note is NULL"},
      {{{{kInfo, PredicateOp::kIsNotNull, {}}}}, no_pages},
  };
  for (const Case& c : cases) {
    bool skips = false;
    EXPECT_EQ(explain_clause(c.clause, skips), c.says);
    EXPECT_EQ(skips, c.says != no_pages) << c.says;
  }
}

}  // namespace
}  // namespace loam::storage
