#include "common/schema/projection.h"

#include <random>

#include <gtest/gtest.h>

#include "common/schema/row.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

Schema people() {
  return Schema::make({{"id", FieldType::kInt64, false},
                       {"name", FieldType::kText, false},
                       {"age", FieldType::kInt16, true},
                       {"photo", FieldType::kBlob, true}})
      .value();
}

Buffer projected(const Projection& projection, Bytes row) {
  Buffer part(projection.projected_size(row), std::byte{0xee});
  projection.project(row, part.data());
  return part;
}

Buffer composed(const Projection& projection, Bytes row, Bytes part) {
  Buffer whole(projection.composed_size(row, part), std::byte{0xee});
  projection.compose(row, part, whole.data());
  return whole;
}

std::string refusal(const Schema& schema, const std::vector<uint16_t>& numbers) {
  const auto projection = Projection::make(schema, FieldNumbers(numbers));
  EXPECT_EQ(projection.code(), StatusCode::kInvalidArgument);
  return std::string(projection.status().message());
}

TEST(Projection, ModelOfProjectingAndComposing) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 2'000; ++round) {
    const Schema schema = testing::random_schema(random, 24);
    const std::vector<uint16_t> numbers = testing::random_fields(random, schema);
    const Schema part_schema = testing::projected_schema(schema, numbers);
    const Projection projection = Projection::make(schema, FieldNumbers(numbers)).value();
    std::vector<Value> values = testing::random_row(random, schema);
    const Buffer row = testing::build_row(schema, values);

    std::vector<Value> named;
    named.reserve(numbers.size());
    for (const uint16_t number : numbers) named.push_back(values[number]);
    ASSERT_TRUE(equal(projected(projection, row), testing::build_row(part_schema, named)))
        << "a part is not the row of its schema: " << part_schema.to_string() << " of " << schema.to_string();

    named = testing::random_row(random, part_schema);
    const Buffer part = testing::build_row(part_schema, named);
    ASSERT_TRUE(validate_row(projection, part).ok()) << validate_row(projection, part).to_string();
    for (size_t i = 0; i < numbers.size(); ++i) values[numbers[i]] = named[i];
    ASSERT_TRUE(equal(composed(projection, row, part), testing::build_row(schema, values)))
        << "a composed row is not the row of these values: " << part_schema.to_string() << " into "
        << schema.to_string();
  }
}

TEST(Projection, ValuesGrowShrinkAndVanish) {
  const Schema schema = people();
  const std::vector<uint16_t> numbers = {3, 1};
  const Projection projection = Projection::make(schema, FieldNumbers(numbers)).value();
  const Schema part_schema = testing::projected_schema(schema, numbers);
  const Bytes jpeg = as_bytes("jpeg");
  const Buffer row =
      testing::build_row(schema, {Value::int64(7), Value::text("Ada"), Value::null(), Value::blob(jpeg)});
  const auto change = [&](const Value& photo, const Value& name) {
    return composed(projection, row, testing::build_row(part_schema, {photo, name}));
  };
  const Buffer longer = change(Value::blob(as_bytes(std::string(5'000, 'x'))), Value::text("Augusta Ada King"));
  EXPECT_EQ(RowView(schema, longer).text(1), "Augusta Ada King");
  EXPECT_EQ(RowView(schema, longer).blob(3).size(), 5'000u);
  EXPECT_EQ(RowView(schema, longer).int64(0), 7);
  EXPECT_TRUE(RowView(schema, longer).is_null(2));
  const Buffer shorter = change(Value::null(), Value::text(""));
  EXPECT_EQ(shorter.size(), schema.fixed_size());
  EXPECT_TRUE(RowView(schema, shorter).is_null(3));
  EXPECT_TRUE(validate_row(schema, shorter).ok());
}

TEST(Projection, ComposedSizeMayExceedTheRowLimit) {
  const Schema schema = Schema::make({{"a", FieldType::kBlob, false}, {"b", FieldType::kBlob, false}}).value();
  const std::vector<uint16_t> numbers = {1};
  const Projection projection = Projection::make(schema, FieldNumbers(numbers)).value();
  const Buffer half(kMaxRowBytes / 2, std::byte{1});
  const Buffer row = testing::build_row(schema, {Value::blob(half), Value::blob({})});
  const Buffer part = testing::build_row(testing::projected_schema(schema, numbers), {Value::blob(half)});
  EXPECT_TRUE(validate_row(projection, part).ok());
  EXPECT_EQ(projection.composed_size(row, part), schema.fixed_size() + kMaxRowBytes);
}

TEST(Projection, MakeRefusesInvalidFieldNumbers) {
  const Schema schema = people();
  EXPECT_EQ(refusal(schema, {}), "fields: none is named");
  EXPECT_EQ(refusal(schema, {4}), "fields: none has number 4, they count from 0 to 3");
  EXPECT_EQ(refusal(schema, {0, 65'535}), "fields: none has number 65535, they count from 0 to 3");
  EXPECT_EQ(refusal(schema, {1, 0, 1}), "fields: 'name' is named twice");
  EXPECT_EQ(refusal(schema, {0, 1, 2, 3, 0}), "fields: 5 are named, and there are 4");
}

TEST(Projection, PartsAreCheckedLikeRows) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 3'000; ++round) {
    const Schema schema = testing::random_schema(random);
    const std::vector<uint16_t> numbers = testing::random_fields(random, schema);
    const Schema part_schema = testing::projected_schema(schema, numbers);
    const Projection projection = Projection::make(schema, FieldNumbers(numbers)).value();
    Buffer part = testing::build_row(part_schema, testing::random_row(random, part_schema));
    for (size_t left = random.below(3); left != 0 && !part.empty(); --left) {
      part[random.below(part.size())] = static_cast<std::byte>(random.below(256));
    }
    if (random.one_in(4)) part.resize(random.below(part.size() + 3));
    const Status status = validate_row(projection, part);
    ASSERT_EQ(status.to_string(), validate_row(part_schema, part).to_string());
    if (!status.ok()) continue;
    const Buffer row = testing::build_row(schema, testing::random_row(random, schema));
    const Buffer whole = composed(projection, row, part);
    ASSERT_TRUE(whole.size() > kMaxRowBytes || validate_row(schema, whole).ok())
        << "a valid row and a valid part compose an invalid row";
  }
}

TEST(FieldNumbers, RoundTripAtAnyAlignment) {
  const std::vector<uint16_t> numbers = {3, 0, 1'023};
  Buffer bytes(1);  // one byte first, so that the numbers lie at an odd address
  ByteWriter writer(bytes);
  FieldNumbers(numbers).encode(writer);
  ASSERT_EQ(bytes.size(), 1u + 1 + 6);
  ByteReader reader(Bytes(bytes).subspan(1));
  const FieldNumbers read = FieldNumbers::decode(reader).value();
  EXPECT_TRUE(reader.finish("field numbers").ok());
  EXPECT_EQ(read, FieldNumbers(numbers));
  EXPECT_EQ(read[2], 1'023);
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    ByteReader half(Bytes(bytes).subspan(1, cut - 1));
    EXPECT_EQ(FieldNumbers::decode(half).code(), StatusCode::kMalformed);
  }
}

}  // namespace
}  // namespace loam
