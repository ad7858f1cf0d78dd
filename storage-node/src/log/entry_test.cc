#include "storage-node/src/log/entry.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "common/snapshot/snapshot.h"

namespace loam::storage {
namespace {

struct Slab {
  alignas(16) std::array<std::byte, 4096> bytes{};
  Entry* at(size_t i) { return reinterpret_cast<Entry*>(bytes.data() + 64 * i); }
  Entry* make(size_t i, uint64_t version, Link link) {
    Entry* const entry = at(i);
    entry->size_bytes = 48;
    entry->kind = EntryKind::kPut;
    entry->valid_from = version;
    entry->link.init(link.encode());
    return entry;
  }
};

TEST(EntryTest, LinkRoundTrips) {
  Slab slab;
  for (const EntryState state : {EntryState::kLive, EntryState::kDead, EntryState::kMoved, EntryState::kReplaced}) {
    for (Entry* const address : {static_cast<Entry*>(nullptr), slab.at(3)}) {
      for (const uint64_t valid_to : {kOpen, kPending, uint64_t{77}}) {
        const Link link{valid_to, address, state};
        EXPECT_EQ(Link::decode(link.encode()), link);
      }
    }
  }
}

TEST(EntryTest, SizesAreWhole) {
  EXPECT_EQ(entry_size(0), 48u);
  EXPECT_EQ(entry_size(1), 64u);
  EXPECT_EQ(entry_size(44), 96u);
  EXPECT_EQ(entry_size(48), 96u);
}

TEST(EntryTest, SwapsTheWholePairOrNothing) {
  Slab slab;
  Entry* const older = slab.make(0, 1, {});
  Entry* const entry = slab.make(1, 2, {kOpen, older, EntryState::kLive});
  Link expected{kOpen, nullptr, EntryState::kLive};
  EXPECT_FALSE(entry->compare_exchange_link(expected, {7, nullptr, EntryState::kLive}));
  EXPECT_EQ(expected, (Link{kOpen, older, EntryState::kLive}));
  EXPECT_TRUE(entry->compare_exchange_link(expected, {7, older, EntryState::kDead}));
  EXPECT_EQ(entry->load_link(), (Link{7, older, EntryState::kDead}));
}

TEST(EntryTest, ResolvesAndJudgesThroughForwardPointers) {
  Slab slab;
  Entry* const copy = slab.make(2, 5, {9, nullptr, EntryState::kLive});
  Entry* const moved = slab.make(1, 5, {kOpen, copy, EntryState::kMoved});
  Entry* const original = slab.make(0, 5, {kOpen, moved, EntryState::kMoved});
  EXPECT_EQ(resolve_moved(original), copy);
  EXPECT_EQ(resolve_moved(copy), copy);
  EXPECT_EQ(resolve_moved(nullptr), nullptr);
  // A writer claims the copy after the move. The copy decides about the original.
  const Lifetime lifetime = lifetime_of(*original);
  EXPECT_TRUE(lifetime.alive);
  EXPECT_EQ(lifetime.valid_to, 9u);
  EXPECT_TRUE(lifetime.visible(Snapshot(Version(8)), 5));
  EXPECT_FALSE(lifetime.visible(Snapshot(Version(9)), 5));
  EXPECT_FALSE(lifetime.visible(Snapshot(Version(4)), 5));
}

TEST(EntryTest, DeadReplacedAndPendingAreInvisibleToEverySnapshot) {
  Slab slab;
  const Snapshot all(Version(kOpen - 1));
  EXPECT_FALSE(lifetime_of(*slab.make(0, 5, {kOpen, nullptr, EntryState::kDead})).visible(all, 5));
  EXPECT_FALSE(lifetime_of(*slab.make(1, 5, {6, nullptr, EntryState::kReplaced})).visible(all, 5));
  EXPECT_FALSE(lifetime_of(*slab.make(2, 5, {kPending, nullptr, EntryState::kLive})).visible(all, 5));
  EXPECT_FALSE(lifetime_of(*slab.at(2)).newest());
  EXPECT_TRUE(lifetime_of(*slab.make(3, 5, {kOpen, nullptr, EntryState::kLive})).visible(all, 5));
  EXPECT_TRUE(lifetime_of(*slab.at(3)).newest());
}

}  // namespace
}  // namespace loam::storage
