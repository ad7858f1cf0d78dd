#include "common/snapshot/snapshot.h"

#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

std::vector<Version> versions(std::initializer_list<uint64_t> ids) {
  std::vector<Version> out;
  for (const uint64_t id : ids) out.push_back(Version(id));
  return out;
}

Snapshot make(uint64_t base, uint64_t high, std::initializer_list<uint64_t> open) {
  return Snapshot::make(Version(base), Version(high), versions(open)).value();
}

struct Model {
  uint64_t base, high;
  std::set<uint64_t> open;
  bool visible(uint64_t v) const { return v <= base || (v <= high && !open.contains(v)); }
};

Model random_model(std::mt19937_64& random, uint64_t range) {
  Model model{};
  model.base = random() % range;
  model.high = model.base + random() % range;
  for (uint64_t id = model.base + 1; id <= model.high; ++id) {
    if (random() % 3 == 0) model.open.insert(id);
  }
  return model;
}

Snapshot from(const Model& model) {
  std::vector<Version> open;
  for (const uint64_t id : model.open) open.push_back(Version(id));
  return Snapshot::make(Version(model.base), Version(model.high), open).value();
}

TEST(Snapshot, SeesVersionsUpToBaseAndBetweenTheOpenIds) {
  const Snapshot s = make(4, 9, {5, 8});
  for (const uint64_t v : {1, 4, 6, 7, 9}) EXPECT_TRUE(s.visible(Version(v))) << v;
  for (const uint64_t v : {5, 8, 10}) EXPECT_FALSE(s.visible(Version(v))) << v;
  EXPECT_FALSE(s.visible(Version(kMax)));
  EXPECT_EQ(s.to_string(), "{base 4, high 9, open 5 8}");
}

TEST(Snapshot, TheDefaultSnapshotSeesNothing) {
  EXPECT_FALSE(Snapshot().visible(Version(1)));
  EXPECT_TRUE(Snapshot(Version(3)).visible(Version(3)));
  EXPECT_FALSE(Snapshot(Version(3)).visible(Version(4)));
}

TEST(Snapshot, SnapshotsThatSeeTheSameVersionsAreEqual) {
  EXPECT_EQ(make(2, 9, {5, 8}), make(4, 9, {5, 8}));
  EXPECT_EQ(make(2, 9, {}), make(9, 9, {}));
  EXPECT_EQ(make(2, 9, {5, 8, 9}), make(2, 7, {5}));
  EXPECT_EQ(make(2, 4, {3, 4}), make(2, 2, {}));
  EXPECT_NE(make(2, 9, {5}), make(2, 9, {6}));
}

TEST(Snapshot, MakeRefuses) {
  const auto code = [](uint64_t base, uint64_t high, std::initializer_list<uint64_t> open) {
    return Snapshot::make(Version(base), Version(high), versions(open)).code();
  };
  EXPECT_EQ(code(5, 4, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(5, 9, {5}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(5, 9, {10}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(5, 9, {7, 7}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(5, 9, {8, 7}), StatusCode::kInvalidArgument);
  std::vector<Version> many;
  for (uint64_t id = 2; id <= 2 * (kMaxOpenIds + 1); id += 2) many.push_back(Version(id));
  EXPECT_EQ(Snapshot::make(Version(1), Version(kMax), many).code(), StatusCode::kInvalidArgument);
  many.pop_back();
  const Snapshot largest = Snapshot::make(Version(1), Version(kMax), many).value();
  Buffer buffer;
  ByteWriter out(buffer);
  largest.encode(out);
  ByteReader in(buffer);
  EXPECT_EQ(Snapshot::decode(in).value(), largest);
}

TEST(Snapshot, ModelOfVisibilityAndCodec) {
  std::random_device device;
  const uint64_t seed = device();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Snapshot reused;
  for (int round = 0; round < 2'000; ++round) {
    const Model model = random_model(random, 40);
    const Snapshot snapshot = from(model);
    Buffer buffer;
    ByteWriter out(buffer);
    snapshot.encode(out);
    ByteReader in(buffer);
    ASSERT_TRUE(Snapshot::decode(in, reused).ok());
    ASSERT_TRUE(in.at_end());
    ASSERT_EQ(reused, snapshot);
    for (uint64_t v = 1; v < 90; ++v) ASSERT_EQ(snapshot.visible(Version(v)), model.visible(v)) << v;
    if (!snapshot.open().empty()) {
      ASSERT_EQ(snapshot.open().front().value, snapshot.base().value + 1);
      ASSERT_LT(snapshot.open().back(), snapshot.high());
    }
  }
}

TEST(Snapshot, ModelOfSeesAllOf) {
  std::random_device device;
  const uint64_t seed = device();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int yes = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Model a = random_model(random, 8);
    Model b = random_model(random, 8);
    if (round % 2 == 0) {  // makes b a later snapshot than a
      b = a;
      std::erase_if(b.open, [&](uint64_t) { return random() % 2 == 0; });
      b.high += random() % 3;
    }
    bool expected = true;
    for (uint64_t v = 1; v < 24; ++v) expected = expected && (!a.visible(v) || b.visible(v));
    ASSERT_EQ(from(b).sees_all_of(from(a)), expected) << from(a).to_string() << " in " << from(b).to_string();
    yes += expected;
  }
  EXPECT_GT(yes, 1'000);
  EXPECT_LT(yes, 19'000);
}

TEST(Snapshot, EncodedSizeWithOneTransactionOpenForTenMillionOthers) {
  std::mt19937_64 random(7);
  std::vector<size_t> sizes;
  for (int round = 0; round < 1'000; ++round) {
    const uint64_t first = 1'000'000'000'000 + random() % 1'000'000;
    std::set<uint64_t> open{first};
    const uint64_t high = first + 10'000'000;
    while (open.size() < 64) open.insert(high - random() % 512);
    std::vector<Version> ids;
    for (const uint64_t id : open) ids.push_back(Version(id));
    Buffer buffer;
    ByteWriter out(buffer);
    Snapshot::make(Version(first - 1), Version(high), ids).value().encode(out);
    sizes.push_back(buffer.size());
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_LE(sizes[sizes.size() * 99 / 100], 128u);
}

Status decode_all(Bytes bytes) {
  ByteReader in(bytes);
  Snapshot snapshot;
  LOAM_RETURN_IF_ERROR(Snapshot::decode(in, snapshot));
  return in.finish("snapshot");
}

TEST(Snapshot, TruncationAtEveryByteIsMalformed) {
  Buffer buffer;
  ByteWriter out(buffer);
  make(1'000, 5'000, {1'001, 1'700, 4'000}).encode(out);
  EXPECT_TRUE(decode_all(buffer).ok());
  for (size_t size = 0; size < buffer.size(); ++size) {
    EXPECT_TRUE(decode_all(Bytes(buffer).first(size)) == StatusCode::kMalformed) << size;
  }
}

TEST(Snapshot, MalformedBytes) {
  const auto decode = [](std::initializer_list<uint64_t> numbers) {
    Buffer buffer;
    ByteWriter out(buffer);
    for (const uint64_t x : numbers) out.put_varint(x);
    return decode_all(buffer).code();
  };
  EXPECT_EQ(decode({5, 3, 1, 2}), StatusCode::kOk);
  EXPECT_EQ(decode({5, 3, 1, 3}), StatusCode::kMalformed);           // id 9 above high 8
  EXPECT_EQ(decode({5, 3, 1, kMax}), StatusCode::kMalformed);        // the sum wraps around
  EXPECT_EQ(decode({5, kMax - 4, 0}), StatusCode::kMalformed);       // high wraps around
  EXPECT_EQ(decode({kMax, 0, 0}), StatusCode::kOk);                  // the highest version
  EXPECT_EQ(decode({5, 3, 4, 0, 0, 0, 0}), StatusCode::kMalformed);  // more ids than versions between base and high
  EXPECT_EQ(decode({5, 3, kMax}), StatusCode::kMalformed);
  Buffer buffer;
  ByteWriter out(buffer);
  for (const uint64_t x : {uint64_t{1}, kMax - 1, uint64_t{kMaxOpenIds + 1}}) out.put_varint(x);
  buffer.resize(buffer.size() + kMaxOpenIds + 1);
  EXPECT_EQ(decode_all(buffer).code(), StatusCode::kMalformed);
}

TEST(Snapshot, RandomBytesNeverBreakTheInvariants) {
  std::random_device device;
  const uint64_t seed = device();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Snapshot snapshot;
  for (int round = 0; round < 20'000; ++round) {
    Buffer buffer(random() % 24);
    for (std::byte& b : buffer) b = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 6);
    ByteReader in(buffer);
    if (!Snapshot::decode(in, snapshot).ok()) {
      ASSERT_EQ(snapshot, Snapshot());
      continue;
    }
    ASSERT_EQ(Snapshot::make(snapshot.base(), snapshot.high(), snapshot.open()).value(), snapshot);
  }
}

}  // namespace
}  // namespace loam
