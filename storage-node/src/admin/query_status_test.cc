#include "storage-node/src/admin/query_status.h"

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

TEST(QueryId, TextAndBack) {
  for (const QueryId id : {QueryId{SessionId(17), 0x3fa9c104}, QueryId{SessionId(1), 5},
                           QueryId{SessionId(UINT64_MAX), UINT32_MAX}, QueryId{}}) {
    const auto parsed = QueryId::parse(id.to_string());
    ASSERT_TRUE(parsed.ok()) << id.to_string();
    EXPECT_EQ(*parsed, id);
  }
  EXPECT_EQ((QueryId{SessionId(17), 0xabc}.to_string()), "17-00000abc");
}

TEST(QueryId, RefusesOtherTexts) {
  for (const char* text : {"", "-", "17", "17-", "17-abc", "-3fa9c104", "17-3fa9c1040", "17-3fa9c10g", "17-3fa9c104 ",
                           "x-3fa9c104", "17 -3fa9c104", "17--fa9c104", "99999999999999999999-3fa9c104"}) {
    EXPECT_EQ(QueryId::parse(text).code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace loam::storage
