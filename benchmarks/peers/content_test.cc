#include "benchmarks/peers/content.h"

#include <set>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

TEST(PeerContent, KeysDifferAndHaveTheirLength) {
  std::set<std::string> keys;
  for (const uint32_t record : {0u, 1u, 16u, 0xffu, 0x100u, 0xffffffffu}) {
    std::string key(kKeyBytes, '?');
    write_key(record, key.data());
    EXPECT_EQ(key.find('?'), std::string::npos) << key;
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_TRUE(keys.contains("loam-benchmark-record-000000ff"));
}

TEST(PeerContent, ValueBelongsToOneRecordAndStamp) {
  const Content content(200, 7);
  std::string value(200, '?');
  content.write_value(3, 9, value.data());
  EXPECT_TRUE(content.is_value(3, 9, value));
  EXPECT_FALSE(content.is_value(4, 9, value));
  EXPECT_FALSE(content.is_value(3, 8, value));
  EXPECT_FALSE(content.is_value(3, 9, std::string_view(value).substr(1)));
  for (const size_t at : {size_t{0}, size_t{4}, size_t{8}, size_t{199}}) {
    std::string damaged = value;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(content.is_value(3, 9, damaged)) << at;
  }
  EXPECT_FALSE(Content(200, 8).is_value(3, 9, value)) << "another seed, another noise";
}

TEST(PeerContent, SmallestValueIsRecordAndStamp) {
  const Content content(kMinValueBytes, 1);
  std::string value(kMinValueBytes, '?');
  content.write_value(5, 6, value.data());
  EXPECT_TRUE(content.is_value(5, 6, value));
  EXPECT_THROW(Content(kMinValueBytes - 1, 1), std::invalid_argument);
}

}  // namespace
}  // namespace loam::bench
