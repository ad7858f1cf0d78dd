// Order lines, and the answers to queries of them that do not come from a scan.
#include "benchmarks/scan/order_lines.h"

#include <algorithm>
#include <array>

#include "common/base/assert.h"
#include "common/schema/row.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

constexpr size_t kInfoBytes = 24;
constexpr int64_t kItems = 100'000;

Schema order_line_schema(bool with_info) {
  std::vector<Field> fields = {{"order", FieldType::kInt64, false},     {"item", FieldType::kInt64, false},
                               {"delivered", FieldType::kInt64, false}, {"amount", FieldType::kInt64, false},
                               {"line", FieldType::kInt32, false},      {"quantity", FieldType::kInt32, false},
                               {"supplier", FieldType::kInt32, false}};
  if (with_info) fields.push_back({"info", FieldType::kText, false});
  return Schema::make(std::move(fields)).value();
}

std::string random_letters(testing::Random& random, size_t n) {
  std::string text(n, ' ');
  for (char& c : text) c = static_cast<char>('a' + random.below(26));
  return text;
}

Bytes build(RowBuilder& builder, const OrderLine& line, bool with_info) {
  builder.reset();
  const bool built =
      builder.set_int64(kOrder, line.order).ok() && builder.set_int64(kItem, line.item).ok() &&
      builder.set_int64(kDelivered, line.delivered).ok() && builder.set_int64(kAmount, line.amount).ok() &&
      builder.set_int32(kLine, line.line).ok() && builder.set_int32(kQuantity, line.quantity).ok() &&
      builder.set_int32(kSupplier, line.supplier).ok() && (!with_info || builder.set_text(kInfo, line.info).ok());
  const auto row = builder.finish();
  LOAM_CHECK(built && row.ok(), "an order line does not fit its schema");
  return row.value();
}

bool has_ranges(OrderLineField field) { return field == kItem || field == kDelivered; }

int64_t value_of(const OrderLine& line, OrderLineField field) {
  LOAM_CHECK(has_ranges(field), "a field without ranges");
  return field == kItem ? line.item : line.delivered;
}

/// The values of the field are from 0 to this number, exclusive.
int64_t values_of(OrderLineField field) {
  LOAM_CHECK(has_ranges(field), "a field without ranges");
  return field == kItem ? kItems : kTimes;
}

void add_text_clause(Query& query, testing::Random& random) {
  const auto letters = [&](size_t n) { return Value::text(random_letters(random, n)); };
  switch (random.below(4)) {
    case 0:
      query.where.where(kInfo, PredicateOp::kPrefix, {letters(1)});
      break;
    case 1:
      query.where.where(kInfo, PredicateOp::kContains, {letters(2)});
      break;
    case 2:
      query.where.all.push_back(
          {{{kInfo, PredicateOp::kSuffix, {letters(1)}},
            {kInfo, PredicateOp::kPrefix, {letters(2)}},
            {kLine, PredicateOp::kEqual, {Value::int32(static_cast<int32_t>(random.below(10)))}}}});
      break;
    default:
      query.where.where(kInfo, PredicateOp::kGreater, {letters(3)});
  }
}

}  // namespace

struct OrderLineGenerator::State {
  State(size_t all, uint64_t seed, bool ordered) : random(seed), rows(all), in_order(ordered) {}
  testing::Random random;
  size_t rows;
  bool in_order;
  size_t made = 0;
};

OrderLineGenerator::OrderLineGenerator(size_t rows, uint64_t seed, bool in_order)
    : state_(std::make_unique<State>(rows, seed, in_order)) {}
OrderLineGenerator::~OrderLineGenerator() = default;

OrderLine OrderLineGenerator::next(bool with_info) {
  testing::Random& random = state_->random;
  const size_t i = state_->made++;
  const auto item = static_cast<int64_t>(random.below(kItems));
  const auto at_random = static_cast<int64_t>(random.below(kTimes));
  const auto in_order = static_cast<int64_t>(static_cast<double>(i) / static_cast<double>(state_->rows) * kTimes);
  return {static_cast<int64_t>(i / 10),
          item,
          state_->in_order ? in_order : at_random,
          static_cast<int64_t>(random.below(1'000'000)),
          static_cast<int32_t>(i % 10),
          static_cast<int32_t>(1 + i % 7),
          static_cast<int32_t>(i % 1'000),
          with_info ? random_letters(random, kInfoBytes) : std::string()};
}

Query RangeSum::query() const {
  Query query;
  query.where.where(field, PredicateOp::kGreaterEqual, {Value::int64(low)});
  query.where.where(field, PredicateOp::kLess, {Value::int64(high)});
  query.aggregates = {{AggregateOp::kSum, kAmount}};
  return query;
}

const char* name_of(OrderLineField field) {
  constexpr std::array<const char*, kInfo + 1> kNames = {"order", "item",     "delivered", "amount",
                                                         "line",  "quantity", "supplier",  "info"};
  return kNames[field];
}

OrderLineField random_range_field(uint64_t seed) {
  return testing::Random(seed + 2).one_in(2) ? kItem : kDelivered;  // + 2: the ranges use the seed itself
}

std::vector<RangeSum> make_ranges(OrderLineField field, size_t count, uint64_t seed) {
  testing::Random random(seed);
  const int64_t values = values_of(field);
  std::vector<RangeSum> ranges(count);
  for (RangeSum& range : ranges) {
    const auto width =
        static_cast<int64_t>(random.between(static_cast<uint64_t>(values / 200), static_cast<uint64_t>(values / 2)));
    range.field = field;
    range.low = static_cast<int64_t>(random.below(static_cast<uint64_t>(values - width)));
    range.high = range.low + width;
  }
  return ranges;
}

std::vector<Query> mix_with_texts(std::span<const RangeSum> ranges, uint64_t seed) {
  testing::Random random(seed);
  std::vector<Query> queries;
  for (const RangeSum& range : ranges) {
    Query& query = queries.emplace_back(range.query());
    if (queries.size() % 2 == 0) add_text_clause(query, random);
  }
  return queries;
}

std::vector<Query> make_selections(size_t count, uint64_t seed) {
  testing::Random random(seed);
  const auto int32 = [&](uint64_t below) { return Value::int32(static_cast<int32_t>(random.below(below))); };
  std::vector<Query> queries;
  for (const RangeSum& range : make_ranges(kDelivered, count, seed + 1)) {
    Query& query = queries.emplace_back(range.query());
    switch (random.below(4)) {
      case 0: {
        std::vector<Value> suppliers;
        for (size_t n = random.between(3, 12); n != 0; --n) suppliers.push_back(int32(1'000));
        query.where.where(kSupplier, PredicateOp::kIn, std::move(suppliers));
        break;
      }
      case 1:
        query.where.all.push_back(
            {{{kQuantity, PredicateOp::kEqual, {int32(8)}}, {kSupplier, PredicateOp::kLess, {int32(500)}}}});
        break;
      case 2:
        query.where.where(kItem, PredicateOp::kLess, {Value::int64(static_cast<int64_t>(random.below(100'000)))});
        break;
      default:
        query.where.where(kQuantity, PredicateOp::kNotEqual, {int32(8)});
    }
    add_text_clause(query, random);
  }
  return queries;
}

OrderLines::OrderLines(size_t rows, uint64_t seed, const Options& options) : range_field_(options.ranges) {
  const auto schema = std::make_shared<const Schema>(order_line_schema(options.with_info));
  RowBuilder builder(*schema);
  OrderLineGenerator lines(rows, seed, options.in_order);
  sums_.reserve(rows);
  const auto next = [&](size_t) {
    const OrderLine line = lines.next(options.with_info);
    sums_.push_back({value_of(line, range_field_), line.amount});
    return build(builder, line, options.with_info);
  };
  const size_t text_bytes = options.with_info ? kInfoBytes : 0;
  data_ = std::make_unique<ScanTable>(
      schema, ScanTable::Options{.rows = rows, .text_bytes = text_bytes, .columns = options.columns}, next);
  // Turns (value, amount) into prefix sums: the answer of a range is the difference of two of them.
  std::ranges::sort(sums_);
  int64_t sum = 0;
  for (auto& [value, amount] : sums_) amount = sum += amount;
}

Buffer OrderLines::any_row() const {
  RowBuilder builder(*schema());
  const bool with_info = schema()->size() > kInfo;
  const Bytes row = build(builder, OrderLineGenerator(1, 1).next(with_info), with_info);
  return {row.begin(), row.end()};
}

int64_t OrderLines::sum(const RangeSum& range) const {
  LOAM_CHECK(range.field == range_field_, "sums over the ranges of another field are known");
  return sum_before(range.high) - sum_before(range.low);
}

int64_t OrderLines::sum_before(int64_t value) const {
  const auto end = std::ranges::lower_bound(sums_, value, {}, [](const auto& line) { return line.first; });
  return end == sums_.begin() ? 0 : std::prev(end)->second;
}

int64_t OrderLines::sum(const Selection& selection) {
  int64_t sum = 0;
  data_->for_each_row([&](const RowView& row) {
    if (matches(selection, row)) sum += row.int64(kAmount);
  });
  return sum;
}

uint64_t OrderLines::read_all() const {
  std::array<uint64_t, 16> sums{};  // enough independent sums for the widest loads
  for (const std::span<const uint64_t> page : data_->pages()) {
    size_t i = 0;
    for (; i + sums.size() <= page.size(); i += sums.size()) {
      for (size_t k = 0; k < sums.size(); ++k) sums[k] += page[i + k];
    }
    for (; i < page.size(); ++i) sums[0] += page[i];
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

int64_t SumPass::sum(size_t i) const {
  int64_t sum = 0;
  for (const auto& chunk : result(i)) {
    for (size_t row = 0; row < chunk->rows(); ++row) {
      if (!chunk->view().is_null(0, row)) sum += chunk->view().get<int64_t>(0, row);
    }
  }
  return sum;
}

}  // namespace loam::bench
