#include "benchmarks/analytics/lineitem.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"

namespace loam::bench {
namespace {

TEST(LineItem, FollowsTheRulesOfTheSpecification) {
  constexpr size_t kOrders = 15'000;  // scale factor 0.01: 2,000 parts and 100 suppliers
  const int32_t current = parse_date("1995-06-17").value();
  LineItemGenerator generator(kOrders, 1);
  EXPECT_NEAR(static_cast<double>(generator.rows()), 4.0 * kOrders, 1'500);
  std::map<int64_t, int32_t> lines_of_orders;
  std::set<int64_t> quantities, discounts, taxes;
  std::set<std::string> flags, instructions, modes;
  int32_t first = current, last = current;
  for (size_t i = 0; i < generator.rows(); ++i) {
    const LineItem line = generator.next();
    EXPECT_LT(line.order_key % 32, 8);
    EXPECT_EQ(++lines_of_orders[line.order_key], line.line_number);
    EXPECT_TRUE(line.part_key >= 1 && line.part_key <= 2'000) << line.part_key;
    EXPECT_TRUE(line.supplier_key >= 1 && line.supplier_key <= 100) << line.supplier_key;
    const int64_t price = 90'000 + line.part_key / 10 % 20'001 + 100 * (line.part_key % 1'000);
    EXPECT_EQ(line.extended_price * 100, line.quantity * price);
    EXPECT_TRUE(line.receipt_date > line.ship_date && line.receipt_date <= line.ship_date + 30);
    EXPECT_TRUE(line.commit_date > line.ship_date - 121 && line.commit_date < line.ship_date + 90);
    EXPECT_EQ(line.line_status, line.ship_date > current ? "O" : "F");
    EXPECT_EQ(line.return_flag == "N", line.receipt_date > current);
    EXPECT_TRUE(line.comment.size() >= 10 && line.comment.size() <= 43) << line.comment;
    EXPECT_EQ(line.comment.find_first_of("|\n"), std::string::npos);
    quantities.insert(line.quantity);
    discounts.insert(line.discount);
    taxes.insert(line.tax);
    flags.insert(std::string(line.return_flag) + std::string(line.line_status));
    instructions.insert(std::string(line.ship_instruct));
    modes.insert(std::string(line.ship_mode));
    first = std::min(first, line.ship_date);
    last = std::max(last, line.ship_date);
  }
  EXPECT_EQ(lines_of_orders.size(), kOrders);
  EXPECT_EQ(std::ranges::max_element(lines_of_orders, {}, [](const auto& order) { return order.second; })->second, 7);
  EXPECT_EQ(quantities.size(), 50U);
  EXPECT_EQ(*quantities.begin(), 100);
  EXPECT_EQ(discounts.size(), 11U);
  EXPECT_EQ(taxes.size(), 9U);
  EXPECT_EQ(flags, (std::set<std::string>{"AF", "NF", "NO", "RF"}));
  EXPECT_EQ(instructions.size(), 4U);
  EXPECT_EQ(modes.size(), 7U);
  EXPECT_GE(date_text(first), "1992-01-02");
  EXPECT_LE(date_text(last), "1998-12-01");
}

TEST(LineItem, IsTheSameForTheSameSeed) {
  LineItemGenerator a(100, 7), b(100, 7), other(100, 8);
  ASSERT_EQ(a.rows(), b.rows());
  EXPECT_NE(text_of(a.next()), text_of(other.next()));
  b.next();
  for (size_t i = 1; i < a.rows(); ++i) EXPECT_EQ(text_of(a.next()), text_of(b.next()));
}

TEST(LineItem, HasTheSameValuesAsARowAndAsAText) {
  const Schema schema = lineitem_schema();
  RowBuilder builder(schema);
  LineItemGenerator generator(200, 3);
  for (size_t i = 0; i < generator.rows(); ++i) {
    const LineItem line = generator.next();
    const RowView row(schema, build(builder, line));
    std::string text;
    for (size_t field = 0; field < schema.size(); ++field) {
      text += (field == 0 ? "" : "|") + row.value(field).to_string();
    }
    EXPECT_EQ(text, text_of(line));
  }
}

}  // namespace
}  // namespace loam::bench
