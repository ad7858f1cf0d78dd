#include "deploy/cli/src/index/index_text.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

using Texts = std::vector<std::string>;

/// Of (carrier text?, delay int32 descending, miles float64).
client::Index flights(bool unique = false) {
  Schema schema = Schema::make({{"delay", FieldType::kInt32, false},
                                {"carrier", FieldType::kText, true},
                                {"miles", FieldType::kFloat64, false},
                                {"odd:desc", FieldType::kInt16, false}})
                      .value();
  const client::Table table(std::make_shared<const client::Table::Description>(
      client::Table::Description{TableId(7), "flights", TableKind::kTransactional, std::move(schema)}));
  return client::Index(std::make_shared<const client::Index::Description>(
      client::Index::Description{TableId(8), "by_carrier", table, {{1, false}, {0, true}, {2, false}}, unique, 3}));
}

std::string message_of(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(IndexText, FieldsHaveADirection) {
  const client::Index index = flights();
  const Schema& schema = index.table().schema();
  const auto fields = parse_index_fields(Texts{"carrier", "delay:desc", "miles:asc", "odd:desc"}, schema);
  ASSERT_TRUE(fields.ok()) << fields.status().to_string();
  ASSERT_EQ(fields->size(), 4u);
  const std::vector<std::pair<std::string_view, bool>> expected = {
      {"carrier", false}, {"delay", true}, {"miles", false}, {"odd:desc", false}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::pair((*fields)[i].name, (*fields)[i].descending), expected[i]);
  }
  EXPECT_TRUE((*parse_index_fields(Texts{"odd:desc:desc"}, schema))[0].descending);
  EXPECT_NE(message_of(parse_index_fields(Texts{"size:desc"}, schema).status()).find("'size'"), std::string::npos);
  EXPECT_EQ(message_of(parse_index_fields(Texts{"delay", "delay:desc"}, schema).status()),
            "field delay is named twice");
}

TEST(IndexText, FormatsCommandThatCreatesIndex) {
  EXPECT_EQ(format_index_fields(flights()), "carrier,delay:desc,miles");
  EXPECT_EQ(create_command(flights(true)),
            "loam index create by_carrier --table flights --fields carrier,delay:desc,miles --unique");
}

TEST(IndexText, ParsesValuesOfFirstFields) {
  const client::Index index = flights();
  EXPECT_EQ(*parse_index_values(index, Texts{"U,A", "-3"}, {}), (std::vector{Value::text("U,A"), Value::int32(-3)}));
  EXPECT_EQ(*parse_index_values(index, Texts{""}, {}), std::vector{Value::text("")});
  EXPECT_EQ(*parse_index_values(index, Texts{"5"}, Texts{"carrier"}), (std::vector{Value::null(), Value::int32(5)}));
  EXPECT_EQ(*parse_index_values(index, {}, Texts{"carrier"}), std::vector{Value::null()});
}

TEST(IndexText, RejectsValuesThatDoNotFit) {
  const client::Index index = flights();
  const auto refused = [&](const Texts& texts, const Texts& nulls) {
    return message_of(parse_index_values(index, texts, nulls).status());
  };
  EXPECT_EQ(refused({}, {}), "give values of the index's first fields: carrier,delay:desc,miles");
  EXPECT_EQ(refused({"a", "1", "2", "3"}, {}), "index by_carrier has 3 fields (carrier,delay:desc,miles), not 4");
  EXPECT_EQ(refused({"a", "soon"}, {}).find("field delay: 'soon'"), 0u);
  EXPECT_EQ(refused({"a"}, {"delay"}), "field delay is never NULL");
  EXPECT_EQ(refused({"a"}, {"miles"}),
            "values and NULLs are those of the index's first fields, each once: carrier,delay:desc,miles");
  EXPECT_EQ(refused({"1"}, {"carrier", "carrier"}),
            "values and NULLs are those of the index's first fields, each once: carrier,delay:desc,miles");
}

TEST(IndexText, ParsesBoundAsLineOfCsv) {
  const client::Index index = flights();
  EXPECT_EQ(*parse_index_bound(index, "UA,5,1.5"),
            (std::vector{Value::text("UA"), Value::int32(5), Value::float64(1.5)}));
  EXPECT_EQ(*parse_index_bound(index, "\"a,\"\"b\"\"\n\",-5"),
            (std::vector{Value::text("a,\"b\"\n"), Value::int32(-5)}));
  EXPECT_EQ(*parse_index_bound(index, ",5"), (std::vector{Value::null(), Value::int32(5)}));
  EXPECT_EQ(*parse_index_bound(index, ""), std::vector{Value::null()});
  EXPECT_EQ(*parse_index_bound(index, "\"\""), std::vector{Value::text("")});
  EXPECT_EQ(message_of(parse_index_bound(index, "UA,").status()), "field delay is never NULL");
  EXPECT_EQ(message_of(parse_index_bound(index, "UA\nB6").status()), "a line end stands in quotes");
  EXPECT_EQ(message_of(parse_index_bound(index, "a,1,2,3").status()),
            "index by_carrier has 3 fields (carrier,delay:desc,miles), not 4");
  EXPECT_NE(message_of(parse_index_bound(index, "\"a").status()).find("never closed"), std::string::npos);
}

TEST(IndexText, ParsesPrefixAsLastValueOfLine) {
  const client::Index index = flights();
  EXPECT_EQ(*parse_index_prefix(index, "U"), std::vector{Value::text("U")});
  EXPECT_EQ(*parse_index_prefix(index, "\"a,\"\"b\""), std::vector{Value::text("a,\"b")});
  EXPECT_EQ(*parse_index_prefix(index, ""), std::vector{Value::text("")});
  EXPECT_EQ(*parse_index_prefix(index, "\"\""), std::vector{Value::text("")});
  EXPECT_EQ(message_of(parse_index_prefix(index, "UA,5").status()),
            "field delay is of type int32; only a text or blob has a beginning (index by_carrier: "
            "carrier,delay:desc,miles)");
  EXPECT_EQ(message_of(parse_index_prefix(index, "U,").status()).find("field delay is of type int32"), 0u);
  EXPECT_EQ(message_of(parse_index_prefix(index, "a,1,2,3").status()),
            "index by_carrier has 3 fields (carrier,delay:desc,miles), not 4");
  EXPECT_EQ(message_of(parse_index_prefix(index, "UA\nB6").status()), "a line end stands in quotes");
}

TEST(IndexText, ParsesPrefixAfterOtherValues) {
  Schema schema = Schema::make({{"kind", FieldType::kInt16, true}, {"raw", FieldType::kBlob, true}}).value();
  const client::Table table(std::make_shared<const client::Table::Description>(
      client::Table::Description{TableId(7), "things", TableKind::kTransactional, std::move(schema)}));
  const client::Index index(std::make_shared<const client::Index::Description>(
      client::Index::Description{TableId(8), "by_kind", table, {{0, false}, {1, true}}, false, 3}));
  const auto raw = [](std::string_view bytes) { return Value::blob(as_bytes(bytes)); };
  EXPECT_EQ(*parse_index_prefix(index, "7,x'61'"), (std::vector{Value::int16(7), raw("a")}));
  EXPECT_EQ(*parse_index_prefix(index, ",x'61'"), (std::vector{Value::null(), raw("a")}));
  EXPECT_EQ(*parse_index_prefix(index, "7,"), (std::vector{Value::int16(7), raw("")}));
  EXPECT_EQ(message_of(parse_index_prefix(index, "7,x'6'").status()).find("field raw: 'x'6''"), 0u);
  EXPECT_EQ(message_of(parse_index_prefix(index, "soon,x'61'").status()).find("field kind: 'soon'"), 0u);
}

}  // namespace
}  // namespace loam::cli
