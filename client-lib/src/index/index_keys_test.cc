#include "client-lib/src/index/index_keys.h"

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::client {
namespace {

using namespace std::string_view_literals;
using testing::Random;

struct StoredRecord {
  std::vector<Value> values;
  Key record;
};

Index index_of(std::vector<Field> fields, std::vector<Index::Part> parts, bool unique) {
  const Table table(std::make_shared<const Table::Description>(
      Table::Description{TableId(7), "table", TableKind::kTransactional, Schema::make(std::move(fields)).value()}));
  return Index(std::make_shared<const Index::Description>(
      Index::Description{TableId(8), "index", table, std::move(parts), unique, 1}));
}

Index random_index(Random& random) {
  constexpr FieldType kTypes[] = {FieldType::kInt16, FieldType::kText, FieldType::kBlob};
  std::vector<Field> fields;
  std::vector<Index::Part> parts;
  const auto count = static_cast<uint16_t>(random.between(1, 3));
  for (uint16_t i = 0; i < count; ++i) {
    fields.push_back({"f" + std::to_string(i), kTypes[random.below(3)], random.one_in(2)});
    parts.push_back({i, random.one_in(2)});
  }
  return index_of(std::move(fields), std::move(parts), random.one_in(2));
}

/// One of few values, so that many are equal or prefixes of each other.
Value random_value(Random& random, const Field& field) {
  if (field.nullable && random.one_in(5)) return Value::null();
  if (field.type == FieldType::kInt16) return Value::int16(static_cast<int16_t>(random.below(3)));
  constexpr std::string_view kTextPieces[] = {"a", "b", "\0"sv, "\1", "é", "è", "日"};
  constexpr std::string_view kBlobPieces[] = {"a", "b", "\0"sv, "\1", "\2", "\xfe", "\xff"};
  std::string bytes;
  for (size_t left = random.below(4); left > 0; --left) {
    bytes += (field.type == FieldType::kText ? kTextPieces : kBlobPieces)[random.below(7)];
  }
  return field.type == FieldType::kText ? Value::text(bytes) : Value::blob(as_bytes(bytes));
}

StoredRecord random_stored(Random& random, const Index& index) {
  StoredRecord stored{{}, Key(random.below(4))};
  for (const Field& field : index.table().schema().fields()) stored.values.push_back(random_value(random, field));
  return stored;
}

/// A bound that is often close to the stored values.
std::optional<IndexBound> random_bound(Random& random, const Index& index, const std::vector<StoredRecord>& all) {
  if (random.one_in(4)) return std::nullopt;
  StoredRecord near = random.one_in(4) ? random_stored(random, index) : all[random.below(all.size())];
  IndexBound bound{std::move(near.values), random.one_in(2)};
  if (random.one_in(2)) {
    bound.record = near.record;
    return bound;
  }
  bound.values.resize(random.below(bound.values.size() + 1));
  if (bound.values.empty() || !is_variable(bound.values.back().type()) || random.one_in(3)) return bound;
  Value& last = bound.values.back();
  const std::string begin(last.as_text().substr(0, random.below(last.as_text().size() + 1)));
  last = last.type() == FieldType::kText ? Value::text(begin) : Value::blob(as_bytes(begin));
  bound.prefix = true;
  return bound;
}

int sign(auto a, auto b) { return a < b ? -1 : b < a ? 1 : 0; }

/// The order of two values, independent of the product's code.
int plain_order(const Value& a, const Value& b) {
  if (a.is_null() || b.is_null()) return sign(!a.is_null(), !b.is_null());
  if (a.type() == FieldType::kInt16) return sign(a.as_int64(), b.as_int64());
  return sign(a.as_text(), b.as_text());
}

/// The position relative to the bound: before it, at it, or behind it.
int side_of(const Index& index, const StoredRecord& stored, const IndexBound& bound) {
  for (size_t i = 0; i < bound.values.size(); ++i) {
    const bool open = bound.prefix && i + 1 == bound.values.size();
    if (open && !stored.values[i].is_null() && stored.values[i].as_text().starts_with(bound.values[i].as_text())) break;
    const int order = plain_order(stored.values[i], bound.values[i]);
    if (order != 0) return index.parts()[i].descending ? -order : order;
  }
  return bound.record ? sign(stored.record.value, bound.record->value) : 0;
}

bool belongs(const Index& index, const StoredRecord& stored, const IndexRange& range) {
  const int from = range.from ? side_of(index, stored, *range.from) : 1;
  const int to = range.to ? side_of(index, stored, *range.to) : -1;
  return (from > 0 || (from == 0 && range.from->inclusive)) && (to < 0 || (to == 0 && range.to->inclusive));
}

IndexKeys::TreeKey key_of(const IndexKeys& keys, const StoredRecord& stored) {
  RowBuilder builder(keys.fields().schema());
  for (size_t i = 0; i < stored.values.size(); ++i) EXPECT_TRUE(builder.set(i, stored.values[i]).ok());
  const Bytes row = builder.finish().value();
  return keys.key_of(RowView(keys.fields().schema(), row), stored.record).value();
}

std::string shown(const IndexBound& bound) {
  std::string text = bound.inclusive ? "with" : "without";
  for (const Value& value : bound.values) text += " " + value.to_string();
  if (bound.prefix) text += "…";
  if (bound.record) text += " record " + std::to_string(bound.record->value);
  return text;
}

TEST(IndexKeys, ModelOfRanges) {
  Random random(testing::test_seed(std::random_device()()));
  size_t found = 0, divided = 0, begun = 0;
  for (int round = 0; round < 500; ++round) {
    const Index index = random_index(random);
    const IndexKeys keys = IndexKeys::make(index).value();
    std::vector<StoredRecord> all;
    std::vector<IndexKeys::TreeKey> stored_keys;
    for (int i = 0; i < 20; ++i) {
      all.push_back(random_stored(random, index));
      stored_keys.push_back(key_of(keys, all.back()));
      const auto record = keys.record_of(stored_keys.back().bytes).value();
      ASSERT_EQ(record, stored_keys.back().shared ? std::nullopt : std::optional(all.back().record));
    }
    for (int i = 0; i < 20; ++i) {
      IndexRange range{random_bound(random, index, all), random_bound(random, index, all)};
      if (random.one_in(4)) range.to = range.from;
      const auto bounds = keys.bounds(range);
      ASSERT_TRUE(bounds.ok()) << bounds.status().to_string();
      divided += bounds->first || bounds->last;
      for (size_t k = 0; k < all.size(); ++k) {
        const bool contained = bounds->contain(stored_keys[k].bytes, all[k].record);
        ASSERT_EQ(contained, belongs(index, all[k], range))
            << shown({all[k].values, true, all[k].record}) << (range.from ? " from " + shown(*range.from) : "")
            << (range.to ? " to " + shown(*range.to) : "");
        found += contained;
        begun += contained && range.from && range.from->prefix && range.to && range.to->prefix;
      }
    }
  }
  EXPECT_GT(found, 20'000u);
  EXPECT_GT(begun, 500u) << "bounds that are prefixes";
  EXPECT_GT(divided, 500u) << "bounds with a record at shared keys";
}

TEST(IndexKeys, RejectsInvalidPrefixes) {
  const Index index = index_of({{"n", FieldType::kInt16, false}, {"t", FieldType::kText, true}}, {{0}, {1}}, false);
  const IndexKeys keys = IndexKeys::make(index).value();
  const struct {
    IndexBound bound;
    std::string_view why;
  } cases[] = {
      {{{}, true, {}, true}, "needs a text or blob as its last value"},
      {{{Value::int16(1)}, true, {}, true}, "needs a text or blob as its last value"},
      {{{Value::int16(1), Value::null()}, true, {}, true}, "needs a text or blob as its last value"},
      {{{Value::text("1")}, true, {}, true}, "key part 1 is of type int16, not text"},
      {{{Value::int16(1), Value::blob({})}, true, {}, true}, "key part 2 is of type text, not blob"},
      {{{Value::null(), Value::text("a")}, true, {}, true}, "key part 1 (int16) is NULL"},
      {{{Value::int16(1), Value::text("a"), Value::text("b")}, true, {}, true}, "3 values for a key of 2 parts"},
      {{{Value::int16(1), Value::text("a")}, true, Key(3), true}, "a bound with a record cannot be a prefix"},
  };
  for (const auto& [bound, why] : cases) {
    for (const IndexRange& range : {IndexRange{.from = bound}, IndexRange{.to = bound}}) {
      const Status status = keys.bounds(range).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << shown(bound);
      EXPECT_EQ(status.message().find("index index: "), 0u) << status.to_string();
      EXPECT_NE(status.message().find(why), std::string_view::npos) << status.to_string();
    }
  }
  EXPECT_TRUE(keys.bounds(IndexRange::prefix({Value::int16(1), Value::text("\xc3")})).ok()) << "half a character";
}

}  // namespace
}  // namespace loam::client
