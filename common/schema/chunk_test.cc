#include "common/schema/chunk.h"

#include <random>

#include <gtest/gtest.h>

#include "common/schema/arrow.h"
#include "common/schema/calendar.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

struct Sample {
  std::shared_ptr<const ResultSchema> schema;
  std::vector<std::vector<Value>> rows;
  Buffer bytes;
};

Sample random_sample(testing::Random& random, size_t max_rows) {
  Sample sample;
  const Schema table = testing::random_schema(random, 6);
  auto schema = std::make_shared<ResultSchema>(ResultSchema{table.fields()});
  schema->columns.push_back({"_key", FieldType::kUint64, false});
  sample.schema = schema;
  ChunkBuilder builder(*schema);
  for (size_t n = random.below(max_rows + 1); n != 0; --n) {
    std::vector<Value> row = testing::random_row(random, table);
    const Buffer encoded = testing::build_row(table, row);
    if (random.one_in(2)) {
      for (size_t i = 0; i < table.size(); ++i) builder.append_field(i, RowView(table, encoded), i);
      builder.append(table.size(), uint64_t{n});
      builder.end_row();
      row.push_back(Value::uint64(n));
    } else {
      row.push_back(Value::uint64(n));
      builder.append_row(row);
    }
    sample.rows.push_back(std::move(row));
  }
  const size_t estimate = builder.bytes();
  EXPECT_TRUE(builder.finish(sample.bytes).ok());
  // A boolean counts as a byte, and takes a bit.
  const auto booleans = static_cast<size_t>(
      std::ranges::count_if(table.fields(), [](const Field& field) { return field.type == FieldType::kBoolean; }));
  EXPECT_GE(sample.bytes.size() + 8 + booleans * sample.rows.size(), estimate);
  EXPECT_LE(sample.bytes.size(), estimate + 8 * 4 * (sample.schema->size() + 1));
  EXPECT_EQ(builder.rows(), 0u);
  const auto chunk = Chunk::decode(sample.bytes, sample.schema).value();
  for (size_t i = 0; i < schema->size(); ++i) {
    const ChunkView::Column& column = chunk->view().column(i);
    const uintptr_t alignment = is_long(column.type) ? sizeof(Int128) : sizeof(uint64_t);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(column.values) % alignment, 0u) << to_string(column.type);
  }
  return sample;
}

TEST(Chunk, ModelOfBuildingAndReading) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 300; ++round) {
    const Sample sample = random_sample(random, 40);
    Buffer shifted(sample.bytes.size() + 1);  // Chunk::decode() copies, so the bytes may have any alignment
    std::copy(sample.bytes.begin(), sample.bytes.end(), shifted.begin() + 1);
    const auto chunk = Chunk::decode(Bytes(shifted).subspan(1), sample.schema);
    ASSERT_TRUE(chunk.ok()) << chunk.status().to_string();
    const ChunkView& view = (*chunk)->view();
    ASSERT_EQ(view.rows(), sample.rows.size());
    for (size_t row = 0; row < sample.rows.size(); ++row) {
      for (size_t i = 0; i < view.columns(); ++i) ASSERT_EQ(view.value(i, row), sample.rows[row][i]);
    }
    EXPECT_EQ(ChunkView::decode(Bytes(shifted).subspan(1), *sample.schema).code(), StatusCode::kInvalidArgument);
  }
}

TEST(Chunk, TruncatedAndProlongedChunksAreMalformed) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 60; ++round) {
    Sample sample = random_sample(random, 12);
    for (size_t size = 0; size < sample.bytes.size(); ++size) {
      ASSERT_EQ(ChunkView::decode(Bytes(sample.bytes).first(size), *sample.schema).code(), StatusCode::kMalformed)
          << size;
    }
    sample.bytes.push_back(std::byte{0});
    ASSERT_EQ(ChunkView::decode(sample.bytes, *sample.schema).code(), StatusCode::kMalformed);
  }
}

TEST(Chunk, ChangedBytesAreRefusedOrReadInBounds) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t refused = 0;
  for (int round = 0; round < 200; ++round) {
    const Sample sample = random_sample(random, 12);
    for (int n = 0; n < 50; ++n) {
      Buffer bytes = sample.bytes;
      bytes[random.below(bytes.size())] =
          static_cast<std::byte>(random.one_in(2) ? random.below(4) : random.below(256));
      const auto view = ChunkView::decode(bytes, *sample.schema);
      if (!view.ok()) {
        ASSERT_EQ(view.code(), StatusCode::kMalformed);
        ++refused;
        continue;
      }
      for (size_t row = 0; row < view->rows(); ++row) {
        for (size_t i = 0; i < view->columns(); ++i) static_cast<void>(view->value(i, row).to_string());
      }
    }
  }
  EXPECT_GT(refused, 500u);
}

TEST(Chunk, MalformedChunks) {
  const ResultSchema schema{{{"a", FieldType::kInt64, false}, {"b", FieldType::kText, true}}};
  ChunkBuilder builder(schema);
  builder.append_row(std::vector<Value>{Value::int64(1), Value::text("é")});
  builder.append_row(std::vector<Value>{Value::int64(2), Value::null()});
  Buffer good;
  ASSERT_TRUE(builder.finish(good).ok());
  // 8: header; 2 × 16: column headers; 40: values of a; 56: validity of b; 64: offsets; 80: text
  ASSERT_EQ(good.size(), 88u);
  const auto with = [&](size_t at, uint8_t byte) {
    Buffer bytes = good;
    bytes[at] = static_cast<std::byte>(byte);
    return ChunkView::decode(bytes, schema).code();
  };
  EXPECT_EQ(with(40, 9), StatusCode::kOk);
  EXPECT_EQ(with(0, 1), StatusCode::kMalformed);      // one row only
  EXPECT_EQ(with(3, 1), StatusCode::kMalformed);      // 2^24 rows
  EXPECT_EQ(with(4, 3), StatusCode::kMalformed);      // three columns
  EXPECT_EQ(with(8, 2), StatusCode::kMalformed);      // int32
  EXPECT_EQ(with(12, 1), StatusCode::kMalformed);     // a NULL in a
  EXPECT_EQ(with(16, 8), StatusCode::kMalformed);     // one value in a
  EXPECT_EQ(with(28, 2), StatusCode::kMalformed);     // two NULLs in b
  EXPECT_EQ(with(28, 3), StatusCode::kMalformed);     // more NULLs than rows
  EXPECT_EQ(with(39, 0xff), StatusCode::kMalformed);  // more bytes of values than the chunk has
  EXPECT_EQ(with(56, 3), StatusCode::kMalformed);     // no NULL
  EXPECT_EQ(with(64, 1), StatusCode::kMalformed);     // begins at 1
  EXPECT_EQ(with(68, 3), StatusCode::kMalformed);     // falls
  EXPECT_EQ(with(72, 1), StatusCode::kMalformed);     // ends before the text does
  EXPECT_EQ(with(75, 0x80), StatusCode::kMalformed);  // negative
  EXPECT_EQ(with(81, 'x'), StatusCode::kMalformed);   // not UTF-8
  ResultSchema strict = schema;
  strict.columns[1].nullable = false;
  EXPECT_EQ(ChunkView::decode(good, strict).code(), StatusCode::kMalformed);
  EXPECT_TRUE(ChunkView::decode(good, schema).ok());
}

TEST(Chunk, ValuesOutOfTheRangeOfTheirTypeAreMalformed) {
  const auto code = [](FieldType type, const Value& value) {
    const ResultSchema schema{{{"before", FieldType::kText, false}, {"a", type, false}}};
    ChunkBuilder builder(schema);
    builder.append_row(std::vector<Value>{Value::text("x"), value});
    Buffer bytes;
    EXPECT_TRUE(builder.finish(bytes).ok());
    return ChunkView::decode(bytes, schema).code();
  };
  EXPECT_EQ(code(FieldType::kDate, Value::date(kLastDate)), StatusCode::kOk);
  EXPECT_EQ(code(FieldType::kDate, Value::date(kLastDate + 1)), StatusCode::kMalformed);
  EXPECT_EQ(code(FieldType::kTimestamp, Value::timestamp(kFirstTimestamp - 1)), StatusCode::kMalformed);
  EXPECT_EQ(code(FieldType::decimal(3, 1), Value::decimal(999, 3, 1)), StatusCode::kOk);
  EXPECT_EQ(code(FieldType::decimal(3, 1), Value::decimal(1000, 3, 1)), StatusCode::kMalformed);
  EXPECT_EQ(code(FieldType::decimal(38, 0), Value::decimal(Int128{1} << 126, 38, 0)), StatusCode::kOk);
  EXPECT_EQ(code(FieldType::decimal(38, 0), Value::decimal(Int128{1} << 127, 38, 0)), StatusCode::kMalformed);
}

TEST(Chunk, ExtendAppendsPresentValues) {
  const ResultSchema schema{{{"a", FieldType::kInt32, true}}};
  for (const bool null_first : {false, true}) {
    ChunkBuilder builder(schema);
    std::vector<Value> expected;
    const auto append = [&](int32_t from, int32_t count) {
      std::byte* at = builder.extend(0, static_cast<size_t>(count));
      for (int32_t x = from; x < from + count; ++x, at += sizeof x) {
        std::memcpy(at, &x, sizeof x);
        expected.push_back(Value::int32(x));
      }
      builder.end_rows(static_cast<size_t>(count));
    };
    const auto append_null = [&] {
      builder.append_null(0);
      builder.end_row();
      expected.push_back(Value::null());
    };
    if (null_first) append_null();
    append(100, 13);
    append_null();
    append(200, 20);
    const size_t bytes = builder.bytes();
    Buffer buffer;
    ASSERT_TRUE(builder.finish(buffer).ok());
    EXPECT_LE(buffer.size(), bytes + 16);
    const auto view = ChunkView::decode(buffer, schema);
    ASSERT_TRUE(view.ok()) << view.status().to_string();
    ASSERT_EQ(view->rows(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(view->value(0, i), expected[i]) << i;
  }
}

TEST(Chunk, LimitOfBytes) {
  const ResultSchema schema{{{"a", FieldType::kText, false}}};
  ChunkBuilder builder(schema);
  const std::string text(1 << 20, 'x');
  for (int i = 0; i < 3; ++i) builder.append_row(std::vector<Value>{Value::text(text)});
  Buffer bytes;
  ASSERT_TRUE(builder.finish(bytes).ok());
  EXPECT_TRUE(ChunkView::decode(bytes, schema).ok());
  bytes.clear();
  for (int i = 0; i < 4; ++i) builder.append_row(std::vector<Value>{Value::text(text)});
  EXPECT_EQ(builder.finish(bytes).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(ChunkView::decode(Buffer(kMaxChunkBytes + 8), schema).code(), StatusCode::kMalformed);
}

TEST(Arrow, ArraysPointIntoTheChunkAndOutliveIt) {
  const auto schema = std::make_shared<const ResultSchema>(
      ResultSchema{{{"n", FieldType::kInt32, true}, {"t", FieldType::kText, false}, {"k", FieldType::kUint64, false}}});
  ChunkBuilder builder(*schema);
  builder.append_row(std::vector<Value>{Value::int32(7), Value::text("ab"), Value::uint64(1)});
  builder.append_row(std::vector<Value>{Value::null(), Value::text("c"), Value::uint64(2)});
  Buffer bytes;
  ASSERT_TRUE(builder.finish(bytes).ok());
  std::weak_ptr<const Chunk> watch;
  ArrowArray array;
  {
    const auto chunk = Chunk::adopt(std::move(bytes), schema).value();
    watch = chunk;
    export_chunk(chunk, &array);
  }
  ASSERT_EQ(array.length, 2);
  ASSERT_EQ(array.n_children, 3);
  EXPECT_EQ(array.n_buffers, 1);
  EXPECT_EQ(array.buffers[0], nullptr);
  const ArrowArray* n = array.children[0];
  EXPECT_EQ(n->null_count, 1);
  EXPECT_EQ(*static_cast<const uint8_t*>(n->buffers[0]) & 3, 1);
  EXPECT_EQ(static_cast<const int32_t*>(n->buffers[1])[0], 7);
  const ArrowArray* t = array.children[1];
  ASSERT_EQ(t->n_buffers, 3);
  EXPECT_EQ(t->buffers[0], nullptr);
  EXPECT_EQ(static_cast<const int32_t*>(t->buffers[1])[2], 3);
  EXPECT_EQ(std::string_view(static_cast<const char*>(t->buffers[2]), 3), "abc");

  ArrowArray moved = *array.children[2];  // as consumers do: move a child, then release the parent
  array.children[2]->release = nullptr;
  array.release(&array);
  EXPECT_EQ(array.release, nullptr);
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(static_cast<const uint64_t*>(moved.buffers[1])[1], 2u);
  moved.release(&moved);
  EXPECT_TRUE(watch.expired());
}

TEST(Arrow, SchemaNamesEveryType) {
  ResultSchema schema;
  const std::vector<std::pair<FieldType, std::string>> formats = {{FieldType::kInt16, "s"},
                                                                  {FieldType::kInt32, "i"},
                                                                  {FieldType::kInt64, "l"},
                                                                  {FieldType::kFloat32, "f"},
                                                                  {FieldType::kFloat64, "g"},
                                                                  {FieldType::kText, "u"},
                                                                  {FieldType::kBlob, "z"},
                                                                  {FieldType::kUint64, "L"},
                                                                  {FieldType::kBoolean, "b"},
                                                                  {FieldType::kDate, "tdD"},
                                                                  {FieldType::kTimestamp, "tsu:UTC"},
                                                                  {FieldType::decimal(18, 2), "d:18,2,64"},
                                                                  {FieldType::decimal(19, 0), "d:19,0"}};
  for (const auto& [type, format] : formats) {
    schema.columns.push_back({std::string(to_string(type)), type, type == FieldType::kText});
  }
  ArrowSchema exported;
  export_schema(schema, &exported);
  EXPECT_STREQ(exported.format, "+s");
  ASSERT_EQ(exported.n_children, static_cast<int64_t>(formats.size()));
  for (size_t i = 0; i < formats.size(); ++i) {
    EXPECT_EQ(exported.children[i]->format, formats[i].second);
    EXPECT_EQ(exported.children[i]->name, schema.columns[i].name);
    EXPECT_EQ(exported.children[i]->flags, schema.columns[i].nullable ? ARROW_FLAG_NULLABLE : 0);
  }
  exported.release(&exported);
  EXPECT_EQ(exported.release, nullptr);
}

}  // namespace
}  // namespace loam
