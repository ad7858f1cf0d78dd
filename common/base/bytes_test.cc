#include "common/base/bytes.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(Bytes, RoundTrip) {
  Buffer buffer;
  ByteWriter writer(buffer);
  writer.put<uint16_t>(0xbeef);
  for (uint64_t x : {uint64_t{0}, uint64_t{127}, uint64_t{128}, std::numeric_limits<uint64_t>::max()})
    writer.put_varint(x);
  writer.put_text("loam");
  writer.align(16);
  writer.put(2.5);

  ByteReader reader(buffer);
  EXPECT_EQ(reader.get<uint16_t>(), 0xbeef);
  for (uint64_t x : {uint64_t{0}, uint64_t{127}, uint64_t{128}, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_EQ(reader.get_varint(), x);
  }
  EXPECT_EQ(reader.get_text(), "loam");
  reader.align(16);
  EXPECT_EQ(reader.get<double>(), 2.5);
  EXPECT_TRUE(reader.finish("test").ok());
}

TEST(Bytes, TruncationAtEveryByteIsMalformed) {
  Buffer buffer;
  ByteWriter writer(buffer);
  writer.put<uint32_t>(7);
  writer.put_text("some text");
  writer.put<uint64_t>(8);
  for (size_t size = 0; size < buffer.size(); ++size) {
    ByteReader reader(Bytes(buffer).first(size));
    static_cast<void>(reader.get<uint32_t>());
    static_cast<void>(reader.get_text());
    static_cast<void>(reader.get<uint64_t>());
    EXPECT_TRUE(reader.finish("test") == StatusCode::kMalformed) << size;
  }
}

TEST(Bytes, FailureSticks) {
  ByteReader reader{Bytes()};
  EXPECT_EQ(reader.get<uint64_t>(), 0u);
  EXPECT_EQ(reader.get_bytes().size(), 0u);
  EXPECT_TRUE(reader.failed());
}

TEST(Bytes, CountsAreBoundedByTheMessage) {
  Buffer buffer;
  ByteWriter(buffer).put_varint(1'000'000'000'000);
  ByteReader reader(buffer);
  EXPECT_EQ(reader.get_count(1), 0u);
  EXPECT_TRUE(reader.failed());
}

TEST(Bytes, VarintOfMoreThan64BitsIsMalformed) {
  std::array<std::byte, 11> bytes;
  bytes.fill(std::byte{0xff});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.get_varint(), 0u);
  EXPECT_TRUE(reader.failed());
}

TEST(Bytes, LeftoverBytesAreMalformed) {
  const std::array<std::byte, 1> bytes{};
  EXPECT_TRUE(ByteReader(bytes).finish("test") == StatusCode::kMalformed);
}

}  // namespace
}  // namespace loam
