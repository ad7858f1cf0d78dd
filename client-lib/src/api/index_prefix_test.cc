// Ranges by a prefix of the last value, on a real cluster.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/index_test_fixture.h"

namespace loam::client {
namespace {

using namespace std::string_view_literals;

class IndexPrefixTest : public IndexTest {
 protected:
  /// Inserts records 1, 2, … with the notes in their order, then one without a note.
  Table notes(const std::vector<std::string_view>& texts) {
    Table table = accounts();
    const Status filled = commit([&](Transaction& tx) -> Status {
      uint64_t key = 0;
      for (const std::string_view text : texts) {
        LOAM_RETURN_IF_ERROR(tx.insert(table, Key(++key), {Value::int64(0), Value::text(text)}));
      }
      return tx.insert(table, Key(++key), {Value::int64(0), Value::null()});
    });
    EXPECT_TRUE(filled.ok()) << filled.to_string();
    return table;
  }
  static IndexRange begin_with(std::string_view text) { return IndexRange::prefix({Value::text(text)}); }
  static IndexRange backward(IndexRange range, size_t limit = SIZE_MAX) {
    range.backward = true;
    range.limit = limit;
    return range;
  }
};

TEST_F(IndexPrefixTest, FindsPrefixesInBothDirections) {
  const Table table = notes({"", "A", "Ac", "Ad", "Ad\0"sv, "Ad hoc", "Ada", "Adam", "Ae", "ad", "Äda"});
  constexpr uint64_t kNull = 12;
  for (const bool unique : {false, true}) {
    for (const bool descending : {false, true}) {
      SCOPED_TRACE(std::string(unique ? "unique" : "") + (descending ? " descending" : ""));
      const std::string name = index_name(std::string(unique ? "u" : "n") + (descending ? "d" : "a"));
      const Index index = client_->create_index(name, table, {{"note", descending}}, {.unique = unique}).value();
      const auto expect = [&](const IndexRange& asked, Keys ascending) {
        if (descending) std::ranges::reverse(ascending);
        EXPECT_EQ(range(index, asked), ascending);
        std::ranges::reverse(ascending);
        EXPECT_EQ(range(index, backward(asked)), ascending);
        ascending.resize(std::min<size_t>(ascending.size(), 2));
        EXPECT_EQ(range(index, backward(asked, 2)), ascending);
      };
      expect(begin_with("Ad"), {4, 5, 6, 7, 8});
      expect(begin_with("Ada"), {7, 8});
      expect(begin_with("Adam"), {8});
      expect(begin_with("Adams"), {});
      expect(begin_with("Z"), {});
      expect(begin_with("Ä"), {11});
      expect(begin_with(""), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
      EXPECT_EQ(range(index, IndexRange::equal({Value::null()})), Keys{kNull});
      EXPECT_EQ(range(index, {.from = begin_with("Ad").from, .limit = 2}), descending ? (Keys{8, 7}) : (Keys{4, 5}));
      const IndexBound without{{Value::text("Ad")}, false, {}, true};
      expect({.from = without}, descending ? (Keys{kNull, 1, 2, 3}) : (Keys{9, 10, 11}));
      expect({.to = without}, descending ? (Keys{9, 10, 11}) : (Keys{kNull, 1, 2, 3}));
    }
  }
}

TEST_F(IndexPrefixTest, MayEndInsideOfACharacter) {
  const Table table = notes({"é", "éa", "ê", "日", "日本", "本", "語"});
  for (const bool descending : {false, true}) {
    const Index index =
        client_->create_index(index_name(descending ? "d" : "a"), table, {{"note", descending}}).value();
    const auto expect = [&](std::string_view prefix, Keys ascending) {
      if (descending) std::ranges::reverse(ascending);
      EXPECT_EQ(range(index, begin_with(prefix)), ascending) << prefix;
    };
    expect("é", {1, 2});
    expect("日", {4, 5});
    expect("\xc3", {1, 2, 3});
    expect("\xe6", {4, 5, 6});
    expect("\xe6\x97", {4, 5});
    expect("日\xe6", {5});
    expect("\xff", {});
  }
}

TEST_F(IndexPrefixTest, FindsBlobsWithAnyBytes) {
  const Schema schema = Schema::make({{"raw", FieldType::kBlob, false}}).value();
  const Table table = client_->create_table(index_name(".t"), TableKind::kTransactional, schema).value();
  const std::vector<std::string_view> blobs = {"",       "\0"sv,     "\0\0"sv, "\0\1"sv,   "\0\xff"sv,
                                               "\1",     "\1\0"sv,   "\1\1",   "\2",       "a\0b"sv,
                                               "a\0c"sv, "\xfe\xff", "\xff",   "\xff\0"sv, "\xff\xff"};
  ASSERT_TRUE(commit([&](Transaction& tx) -> Status {
                for (size_t i = 0; i < blobs.size(); ++i) {
                  LOAM_RETURN_IF_ERROR(tx.insert(table, Key(i), {Value::blob(as_bytes(blobs[i]))}));
                }
                return ok_status();
              }).ok());
  for (const bool descending : {false, true}) {
    const Index index = client_->create_index(index_name(descending ? "d" : "a"), table, {{"raw", descending}}).value();
    for (const std::string_view prefix : blobs) {
      Keys expected;
      for (size_t i = 0; i < blobs.size(); ++i) {
        if (blobs[i].starts_with(prefix)) expected.push_back(i);
      }
      if (descending) std::ranges::reverse(expected);
      EXPECT_EQ(range(index, IndexRange::prefix({Value::blob(as_bytes(prefix))})), expected)
          << Value::blob(as_bytes(prefix)).to_string();
    }
  }
}

TEST_F(IndexPrefixTest, FollowsEqualValues) {
  const Table table = accounts();
  for (uint64_t key = 1; key <= 9; ++key) {
    const Value note = key % 3 == 0 ? Value::null() : Value::text(key % 3 == 1 ? "Ada" : "Adam");
    ASSERT_TRUE(put(table, key, static_cast<int64_t>(key / 4), note).ok());
  }
  const Index index = client_->create_index(index_name(), table, {{"balance", true}, {"note", true}}).value();
  const auto of = [](int64_t balance, std::string_view text) {
    return IndexRange::prefix({Value::int64(balance), Value::text(text)});
  };
  EXPECT_EQ(range(index, of(1, "Ad")), (Keys{5, 4, 7}));
  EXPECT_EQ(range(index, backward(of(1, "Ad"))), (Keys{7, 4, 5}));
  EXPECT_EQ(range(index, of(1, "Adam")), Keys{5});
  EXPECT_EQ(range(index, of(1, "")), (Keys{5, 4, 7}));
  EXPECT_EQ(range(index, of(3, "Ad")), Keys{});
  const IndexBound two{{Value::int64(2)}}, ada{{Value::int64(1), Value::text("Ada")}, true, {}, true};
  EXPECT_EQ(range(index, {.from = two, .to = ada}), (Keys{8, 9, 5, 4, 7})) << "the two ends may be of different kinds";
}

TEST_F(IndexPrefixTest, ShowsTheTransactionsOwnWrites) {
  const Table table = notes({"Ac", "Ad", "Ada", "Adam", "Ae"});
  const Index index = client_->create_index(index_name(), table, {{"note"}}).value();
  auto tx = client_->begin();
  ASSERT_TRUE(tx->update(table, Key(1), {{"note", Value::text("Adele")}}).ok());
  ASSERT_TRUE(tx->update(table, Key(2), {{"note", Value::null()}}).ok());
  ASSERT_TRUE(tx->remove(table, Key(4)).ok());
  ASSERT_TRUE(tx->update(table, Key(3), {{"balance", Value::int64(7)}}).ok());
  ASSERT_TRUE(tx->insert(table, Key(9), {Value::int64(0), Value::text("Ad")}).ok());
  ASSERT_TRUE(tx->insert(table, Key(10), {Value::int64(0), Value::text("A")}).ok());
  EXPECT_EQ(keys(tx->range(index, begin_with("Ad"))), (Keys{9, 3, 1}));
  EXPECT_EQ(keys(tx->range(index, backward(begin_with("Ad"), 2))), (Keys{1, 3}));
  ASSERT_TRUE(tx->commit().ok());
  EXPECT_EQ(range(index, begin_with("Ad")), (Keys{9, 3, 1}));
}

// A page begins behind the last record of the previous page; the other bound stays a prefix.
TEST_F(IndexPrefixTest, ReadsPageByPage) {
  std::vector<std::string_view> texts = {"Ac"};
  for (const std::string_view text : {"Ad", "Ada", "Adam"}) texts.insert(texts.end(), 7, text);
  texts.emplace_back("Ae");
  const Table table = notes(texts);
  Keys expected;
  for (uint64_t key = 2; key <= 22; ++key) expected.push_back(key);
  const Index index = client_->create_index(index_name(), table, {{"note"}}).value();
  for (const bool down : {false, true}) {
    IndexRange page = begin_with("Ad");
    page.backward = down;
    page.limit = 4;
    Keys all;
    auto tx = client_->begin({.read_only = true});
    for (;;) {
      const auto records = tx->range(index, page);
      ASSERT_TRUE(records.ok()) << records.status().to_string();
      if (records->empty()) break;
      for (const Record& record : *records) all.push_back(record.key().value);
      const Record& last = records->back();
      (down ? page.to : page.from) = IndexBound{{last.view().value(1)}, false, last.key()};
    }
    if (down) std::ranges::reverse(all);
    EXPECT_EQ(all, expected);
  }
}

TEST_F(IndexPrefixTest, UpdatesAndRemovesByPrefix) {
  const Table table = notes({"Ac", "Ad", "Ada", "Ae"});
  const Index index = client_->create_index(index_name(), table, {{"note"}}).value();
  ASSERT_TRUE(commit([&](Transaction& tx) -> Status {
                LOAM_ASSIGN_OR_RETURN(const size_t updated,
                                      tx.update(index, begin_with("Ad"), {{"note", Value::text("B")}}));
                EXPECT_EQ(updated, 2u);
                LOAM_ASSIGN_OR_RETURN(const size_t removed, tx.remove(index, begin_with("A")));
                EXPECT_EQ(removed, 2u);
                return ok_status();
              }).ok());
  EXPECT_EQ(range(index, {}), (Keys{5, 2, 3}));
}

TEST_F(IndexPrefixTest, RejectsInvalidPrefixes) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}, {"note"}}).value();
  auto tx = client_->begin();
  const auto expect = [&](const IndexRange& asked, std::string_view why) {
    for (const Status& status : {tx->range(index, asked).status(), tx->remove(index, asked).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("index " + index.name()), std::string_view::npos) << status.to_string();
      EXPECT_NE(status.message().find(why), std::string_view::npos) << status.to_string();
    }
  };
  expect(IndexRange::prefix({}), "needs a text or blob as its last value");
  expect(IndexRange::prefix({Value::int64(1)}), "needs a text or blob as its last value");
  expect(IndexRange::prefix({Value::int64(1), Value::null()}), "needs a text or blob as its last value");
  expect(IndexRange::prefix({Value::text("1")}), "is of type int64, not text");
  expect({.from = IndexBound{{Value::int64(1), Value::text("a")}, false, Key(3), true}},
         "a bound with a record cannot be a prefix");
}

}  // namespace
}  // namespace loam::client
