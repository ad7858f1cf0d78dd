#include "storage-node/src/log/columns.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/memory/page_pool.h"
#include "common/schema/order_key.h"
#include "common/schema/row.h"
#include "common/testing/random_schema.h"
#include "storage-node/src/log/table_log.h"
#include "storage-node/src/log/thread_context.h"

namespace loam::storage {
namespace {

/// A pool and one page from it.
class ColumnsTest : public ::testing::Test {
 protected:
  static constexpr size_t kPage = size_t{256} << 10;

  Columns& lay_out(const ColumnWidths& widths, size_t rows, size_t text_bytes) {
    page_ = Page::open(pool_->allocate(kPage, Reserve::kWrite, BlockContents::kUninitialized), kPage, TableId(1), 1,
                       Reserve::kWrite);
    return Columns::lay_out(*page_, widths, rows, text_bytes);
  }
  void release() { pool_->release(page_->block(), page_->size_bytes()); }

  std::unique_ptr<PagePool> pool_ =
      PagePool::create({.limit_bytes = 8 * kPage, .page_size_bytes = kPage, .huge_pages = false, .prefault = false})
          .value();
  Page* page_ = nullptr;
};

TEST_F(ColumnsTest, ModelOfRows) {
  testing::Random random(testing::test_seed(17));
  for (int round = 0; round < 300; ++round) {
    const Schema schema = testing::random_schema(random, 12);
    std::vector<Buffer> rows;
    ColumnWidths widths(schema);
    size_t texts = 0;
    const size_t count = random.between(1, 300);
    while (rows.size() < count) {
      rows.push_back(testing::build_row(schema, testing::random_row(random, schema)));
      widths.add(rows.back());
      texts += rows.back().size() - schema.fixed_size();
    }
    ASSERT_LE(ColumnWidths::page_overhead(schema) + count * widths.row_bytes() + texts, kPage)
        << "the random row is valid";
    Columns& columns = lay_out(widths, count, texts);
    EXPECT_FALSE(columns.full());
    for (const Buffer& row : rows) columns.append(row);
    EXPECT_TRUE(columns.full());
    EXPECT_TRUE(page_->all_visible());
    std::vector<int64_t> out(count);
    for (size_t i = 0; i < count; ++i) {
      const RowView row(schema, rows[i]);
      ASSERT_EQ(columns.row_bytes(i), rows[i].size());
      Buffer gathered(rows[i].size(), std::byte{0xee});
      columns.gather(i, gathered.data());
      ASSERT_EQ(gathered, rows[i]) << schema.to_string();
      for (size_t field = 0; field < schema.size(); ++field) {
        ASSERT_EQ(columns.is_null(field, i), row.is_null(field));
        const FieldType type = schema.field(field).type;
        if (is_variable(type)) {
          const std::string_view text = row.text(field);
          ASSERT_EQ(columns.text(field, i), text);
          ASSERT_EQ(columns.heads(field, i, 1, out.data()), text.size() <= sizeof out[0] && !text.ends_with('\0'));
          ASSERT_EQ(out[0], head_key(text));
        } else if (type == FieldType::kInt16) {
          ASSERT_EQ(columns.get<int16_t>(field, i), row.int16(field));
        } else if (type == FieldType::kInt32) {
          ASSERT_EQ(columns.get<int32_t>(field, i), row.int32(field));
        } else if (type == FieldType::kInt64) {
          ASSERT_EQ(columns.get<int64_t>(field, i), row.int64(field));
          ASSERT_EQ(columns.integers(field, i, 1, out.data())[0], row.int64(field));
        } else if (is_long(type)) {
          ASSERT_EQ(columns.get<Int128>(field, i), row.decimal(field));
        }
        const Column& column = columns.column(field);
        ASSERT_TRUE(column.has_null || !row.is_null(field));
        if (row.is_null(field)) continue;
        const int64_t key = is_variable(type) ? head_key(row.text(field))
                            : is_float(type)  ? order_key(row.value(field).as_float64())
                            : is_long(type)   ? order_key(row.decimal(field))
                                              : row.value(field).as_int64();
        ASSERT_LE(column.least, key);
        ASSERT_GE(column.greatest, key);
      }
    }
    release();
  }
}

TEST_F(ColumnsTest, IntegersUseTheWidthOfTheirRange) {
  const Schema schema = Schema::make({{"a", FieldType::kInt64, false}, {"b", FieldType::kInt64, false}}).value();
  for (const auto& [low, high, width] :
       {std::tuple{INT64_C(1'000'000'000'000), INT64_C(1'000'000'000'255), 1u},
        std::tuple{INT64_C(-300), INT64_C(0), 2u}, std::tuple{INT64_C(-1), INT64_C(0xfffffffe), 4u},
        std::tuple{INT64_MIN, INT64_MAX, 8u}}) {
    ColumnWidths widths(schema);
    std::vector<Buffer> rows;
    for (const int64_t value : {low, high, high, low}) {
      rows.push_back(testing::build_row(schema, {Value::int64(value), Value::int64(7)}));
      widths.add(rows.back());
    }
    EXPECT_EQ(widths.width(0), width);
    EXPECT_EQ(widths.width(1), 1u);
    Columns& columns = lay_out(widths, rows.size(), 0);
    for (const Buffer& row : rows) columns.append(row);
    int64_t out[4];
    const int64_t* const read = columns.integers(0, 0, 4, out);
    EXPECT_EQ(std::vector<int64_t>(read, read + 4), (std::vector<int64_t>{low, high, high, low}));
    EXPECT_EQ(columns.column(0).least, low);
    EXPECT_EQ(columns.column(0).greatest, high);
    release();
  }
}

TEST(RowMemory, RowsStayUntilTheGuardEnds) {
  EpochDomain epochs;
  EpochThread thread(epochs, "test");
  ThreadContext me(thread, 0);
  std::vector<std::byte*> first;
  for (int round = 0; round < 3; ++round) {
    const EpochGuard guard(thread);
    std::vector<std::byte*> rows;
    for (const size_t bytes : {size_t{1}, size_t{40'000}, size_t{24}, size_t{30'000}, size_t{100'000}, size_t{9}}) {
      const EpochGuard inner(thread);
      std::byte* const row = me.row_memory(bytes);
      EXPECT_EQ(reinterpret_cast<uint64_t>(row) % 8, 0u);
      std::memset(row, static_cast<int>(rows.size()), bytes);
      rows.push_back(row);
    }
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(static_cast<size_t>(*rows[i]), i);
    const std::vector<std::byte*> small = {rows[0], rows[2], rows[5]};
    if (round == 0) first = small;
    EXPECT_EQ(small, first) << "the next guard uses the same memory again";
  }
  const EpochGuard guard(thread);
  std::vector<std::byte*> many;
  for (int i = 0; i < 1'000; ++i) {
    many.push_back(me.row_memory(10'000));
    std::memset(many.back(), i % 100, 10'000);
  }
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(static_cast<int>(many[static_cast<size_t>(i)][9'999]), i % 100);
}

}  // namespace
}  // namespace loam::storage
