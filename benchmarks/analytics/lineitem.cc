#include "benchmarks/analytics/lineitem.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/analytics/comment_text.h"
#include "common/base/assert.h"
#include "common/schema/calendar.h"
#include "common/schema/decimal.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

constexpr size_t kMaxLines = 7;
constexpr std::array<std::string_view, 4> kInstructions = {"DELIVER IN PERSON", "COLLECT COD", "NONE",
                                                           "TAKE BACK RETURN"};
constexpr std::array<std::string_view, 7> kModes = {"REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"};
constexpr size_t kShortestComment = 10, kLongestComment = 43;

int32_t day(std::string_view date) { return parse_date(date).value(); }

/// The price of a part in hundredths [TPC-H 4.2.3, P_RETAILPRICE].
int64_t retail_price(int64_t part_key) { return 90'000 + part_key / 10 % 20'001 + 100 * (part_key % 1'000); }

/// The key of the order with this number, from 1 on: of each 32 keys only the first 8 are used.
int64_t sparse_key(size_t order) { return static_cast<int64_t>(order / 8 * 32 + order % 8); }

}  // namespace

Schema lineitem_schema() {
  const FieldType money = FieldType::decimal(kMoneyDigits, kMoneyScale);
  return Schema::make({{"l_orderkey", FieldType::kInt64, false},
                       {"l_partkey", FieldType::kInt64, false},
                       {"l_suppkey", FieldType::kInt64, false},
                       {"l_linenumber", FieldType::kInt32, false},
                       {"l_quantity", money, false},
                       {"l_extendedprice", money, false},
                       {"l_discount", money, false},
                       {"l_tax", money, false},
                       {"l_returnflag", FieldType::kText, false},
                       {"l_linestatus", FieldType::kText, false},
                       {"l_shipdate", FieldType::kDate, false},
                       {"l_commitdate", FieldType::kDate, false},
                       {"l_receiptdate", FieldType::kDate, false},
                       {"l_shipinstruct", FieldType::kText, false},
                       {"l_shipmode", FieldType::kText, false},
                       {"l_comment", FieldType::kText, false}})
      .value();
}

std::string duckdb_type(FieldType type) {
  switch (type) {
    case FieldType::kInt64:
      return "BIGINT";
    case FieldType::kInt32:
      return "INTEGER";
    case FieldType::kDecimal:
      return fmt::format("DECIMAL({},{})", type.digits(), type.scale());
    case FieldType::kDate:
      return "DATE";
    default:
      LOAM_CHECK(type == FieldType::kText, "lineitem has no field of this type");
      return "VARCHAR";
  }
}

Bytes build(RowBuilder& builder, const LineItem& line) {
  builder.reset();
  const bool numbers = builder.set_int64(LineItem::kOrderKey, line.order_key).ok() &&
                       builder.set_int64(LineItem::kPartKey, line.part_key).ok() &&
                       builder.set_int64(LineItem::kSupplierKey, line.supplier_key).ok() &&
                       builder.set_int32(LineItem::kLineNumber, line.line_number).ok() &&
                       builder.set_decimal(LineItem::kQuantity, line.quantity).ok() &&
                       builder.set_decimal(LineItem::kExtendedPrice, line.extended_price).ok() &&
                       builder.set_decimal(LineItem::kDiscount, line.discount).ok() &&
                       builder.set_decimal(LineItem::kTax, line.tax).ok();
  const bool others = builder.set_text(LineItem::kReturnFlag, line.return_flag).ok() &&
                      builder.set_text(LineItem::kLineStatus, line.line_status).ok() &&
                      builder.set_date(LineItem::kShipDate, line.ship_date).ok() &&
                      builder.set_date(LineItem::kCommitDate, line.commit_date).ok() &&
                      builder.set_date(LineItem::kReceiptDate, line.receipt_date).ok() &&
                      builder.set_text(LineItem::kShipInstruct, line.ship_instruct).ok() &&
                      builder.set_text(LineItem::kShipMode, line.ship_mode).ok() &&
                      builder.set_text(LineItem::kComment, line.comment).ok();
  const auto row = builder.finish();
  LOAM_CHECK(numbers && others && row.ok(), "a row of lineitem does not fit its schema");
  return row.value();
}

std::string text_of(const LineItem& line) {
  const auto money = [](int64_t hundredths) { return decimal_text(hundredths, kMoneyScale); };
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", line.order_key, line.part_key,
                     line.supplier_key, line.line_number, money(line.quantity), money(line.extended_price),
                     money(line.discount), money(line.tax), line.return_flag, line.line_status,
                     date_text(line.ship_date), date_text(line.commit_date), date_text(line.receipt_date),
                     line.ship_instruct, line.ship_mode, line.comment);
}

struct LineItemGenerator::State {
  State(size_t orders, uint64_t seed)
      : lines_of_orders(seed),
        random(seed + 1),
        comments(seed + 2),
        parts(std::max<size_t>(1, orders * 2 / 15)),
        suppliers(static_cast<int64_t>(std::max<size_t>(1, orders / 150))) {
    testing::Random counts(seed);
    for (size_t i = 0; i < orders; ++i) rows += counts.between(1, kMaxLines);
  }

  testing::Random lines_of_orders;  // apart from `random`, so that the constructor can count the rows
  testing::Random random;
  const CommentText comments;
  const uint64_t parts;
  const int64_t suppliers;
  size_t rows = 0;
  // The present order.
  size_t order = 0;
  size_t line = 0, lines = 0;
  int32_t order_date = 0;
};

LineItemGenerator::LineItemGenerator(size_t orders, uint64_t seed) : state_(std::make_unique<State>(orders, seed)) {}
LineItemGenerator::~LineItemGenerator() = default;

size_t LineItemGenerator::rows() const { return state_->rows; }

LineItem LineItemGenerator::next() {
  static const int32_t kFirst = day("1992-01-01"), kLast = day("1998-12-31") - 151, kCurrent = day("1995-06-17");
  State& state = *state_;
  testing::Random& random = state.random;
  const auto between = [&](uint64_t low, uint64_t high) { return static_cast<int64_t>(random.between(low, high)); };
  const auto days = [&](uint64_t low, uint64_t high) { return static_cast<int32_t>(random.between(low, high)); };
  if (state.line == state.lines) {
    ++state.order;
    state.line = 0;
    state.lines = state.lines_of_orders.between(1, kMaxLines);
    state.order_date = kFirst + days(0, static_cast<uint64_t>(kLast - kFirst));
  }
  LineItem item;
  item.order_key = sparse_key(state.order);
  item.part_key = between(1, state.parts);
  const int64_t suppliers = state.suppliers;
  const int64_t step = suppliers / 4 + (item.part_key - 1) / suppliers;
  item.supplier_key = (item.part_key + between(0, 3) * step) % suppliers + 1;
  item.line_number = static_cast<int32_t>(++state.line);
  item.quantity = 100 * between(1, 50);
  item.extended_price = item.quantity / 100 * retail_price(item.part_key);
  item.discount = between(0, 10);
  item.tax = between(0, 8);
  item.ship_date = state.order_date + days(1, 121);
  item.commit_date = state.order_date + days(30, 90);
  item.receipt_date = item.ship_date + days(1, 30);
  item.return_flag = item.receipt_date > kCurrent ? "N" : random.one_in(2) ? "R" : "A";
  item.line_status = item.ship_date > kCurrent ? "O" : "F";
  item.ship_instruct = kInstructions[random.below(kInstructions.size())];
  item.ship_mode = kModes[random.below(kModes.size())];
  item.comment = state.comments.piece(random, kShortestComment, kLongestComment);
  return item;
}

}  // namespace loam::bench
