#include "common/snapshot/publication.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace loam {
namespace {

// The model represents a set of finished ids by a bit mask, with bit v for version v, and enumerates all sets.
using Set = uint32_t;
constexpr unsigned kIds = 9;  // versions 1 … kIds exist or may begin later

bool sees(Set set, unsigned version) { return ((set >> version) & 1) != 0; }

Snapshot snapshot_of(Set finished, unsigned issued) {
  std::vector<Version> open;
  for (unsigned v = 1; v <= issued; ++v) {
    if (!sees(finished, v)) open.push_back(Version(v));
  }
  return Snapshot::make(Version(0), Version(issued), open).value();
}

struct Open {
  Set finished;  // the versions that the snapshot sees
  Snapshot snapshot;
  bool read_write;
};

/// A small model of the commit manager: issues and finishes ids at random, opens and closes snapshots, then publishes.
/// Some finished ids are not durable yet: snapshots see them, but the publication counts them as open.
struct Manager {
  Set finished = 0;
  Set durable = 0;
  unsigned issued = 0;
  std::vector<Open> open;
  Publication publication;
  size_t listed = 0;  // number of snapshots, from the front of `open`, that the publication lists in full

  void run(std::mt19937_64& random) {
    for (int step = 0; step < 24; ++step) {
      const auto dice = random() % 6;
      const unsigned id = issued == 0 ? 0 : 1 + static_cast<unsigned>(random() % issued);
      if (dice < 2 && issued < kIds - 2) ++issued;
      if (dice < 4 && dice >= 2 && id != 0) finished |= Set{1} << id;
      if (random() % 4 == 0) durable = finished;
      if (dice == 4) open.push_back({finished, snapshot_of(finished, issued), random() % 2 == 0});
      if (dice == 5 && !open.empty()) open.erase(open.begin() + static_cast<ptrdiff_t>(random() % open.size()));
    }
  }

  void publish(std::mt19937_64& random) {
    std::stable_sort(open.begin(), open.end(),
                     [](const Open& a, const Open& b) { return a.snapshot.base() < b.snapshot.base(); });
    listed = random() % (open.size() + 1);
    publication = {};
    publication.number = 7;
    publication.cm_epoch = 3;
    publication.later = snapshot_of(durable, issued);
    publication.young_open = listed < open.size();
    publication.floor = publication.later.base();
    if (publication.young_open) publication.floor = std::min(publication.floor, open[listed].snapshot.base());
    for (size_t i = 0; i < listed; ++i) publication.old.push_back({open[i].snapshot, open[i].read_write});
  }
};

/// Calls `f` for every set of ids that a later snapshot may see: all durable ids, and any subset of the others.
template <class F>
void for_each_later(Set durable, F f) {
  constexpr Set kAll = ((Set{1} << kIds) - 1) << 1;
  for (Set set = 0; set <= kAll; set += 2) {
    if ((set & durable) == durable) f(set);
  }
}

class PublicationModel : public ::testing::Test {
 protected:
  template <class F>
  void for_each_round(int rounds, F f) {
    std::random_device device;
    const uint64_t seed = device();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < rounds && !HasFatalFailure(); ++round) {
      Manager manager;
      manager.run(random);
      manager.publish(random);
      ASSERT_TRUE(manager.publication.check().ok()) << manager.publication.check().to_string();
      f(manager);
    }
  }
};

TEST_F(PublicationModel, GarbageIsInvisibleToEverySnapshot) {
  size_t collected = 0, kept_by_floor = 0;
  for_each_round(300, [&](const Manager& m) {
    for (unsigned from = 1; from < kIds; ++from) {
      for (unsigned to = from + 1; to <= kIds; ++to) {
        bool exact = true;
        for (const Open& o : m.open) exact = exact && !(sees(o.finished, from) && !sees(o.finished, to));
        for_each_later(m.durable, [&](Set later) { exact = exact && sees(later, to); });
        const bool garbage = m.publication.garbage(Version(from), Version(to));
        ASSERT_TRUE(!garbage || exact) << from << " to " << to << " is still seen";
        if (m.listed == m.open.size()) {
          ASSERT_EQ(garbage, exact) << from << " to " << to;
        }
        collected += garbage;
        kept_by_floor += exact && !garbage;
      }
    }
  });
  EXPECT_GT(collected, 100u);
  EXPECT_GT(kept_by_floor, 0u);
}

TEST_F(PublicationModel, TombstonesAreGarbageWhenEveryWriterSeesThem) {
  size_t collected = 0;
  for_each_round(1'000, [&](const Manager& m) {
    for (unsigned from = 1; from <= kIds; ++from) {
      bool exact = true;
      for (const Open& o : m.open) exact = exact && (!o.read_write || sees(o.finished, from));
      for_each_later(m.durable, [&](Set later) { exact = exact && sees(later, from); });
      const bool garbage = m.publication.tombstone_garbage(Version(from));
      ASSERT_TRUE(!garbage || exact) << from;
      if (m.listed == m.open.size()) {
        ASSERT_EQ(garbage, exact) << from;
      }
      collected += garbage;
    }
  });
  EXPECT_GT(collected, 100u);
}

TEST_F(PublicationModel, SeenByAllIsSeenByAll) {
  for_each_round(1'000, [&](const Manager& m) {
    const Version bound = m.publication.seen_by_all();
    for (unsigned v = 1; v <= bound.value; ++v) {
      for (const Open& o : m.open) ASSERT_TRUE(sees(o.finished, v));
      ASSERT_TRUE(sees(m.durable, v));
    }
    // No higher number has this property.
    bool next = sees(m.durable, static_cast<unsigned>(bound.value) + 1);
    for (const Open& o : m.open) next = next && sees(o.finished, static_cast<unsigned>(bound.value) + 1);
    ASSERT_FALSE(next);
  });
}

TEST_F(PublicationModel, EveryOpenAndLaterSnapshotIsCoveredAndMissesNoVersion) {
  size_t refused = 0;
  for_each_round(60, [&](const Manager& m) {
    for (const Open& o : m.open) ASSERT_TRUE(m.publication.covers(o.snapshot)) << o.snapshot.to_string();
    for_each_later(m.durable, [&](Set later) { ASSERT_TRUE(m.publication.covers(snapshot_of(later, kIds))); });
    // Every possible snapshot, open or not: if it is covered, it sees no version that counts as garbage.
    for (Set set = 0; set < (Set{1} << (kIds + 1)); set += 2) {
      const Snapshot snapshot = snapshot_of(set, kIds);
      if (!m.publication.covers(snapshot)) {
        ++refused;
        continue;
      }
      for (unsigned from = 1; from < kIds; ++from) {
        for (unsigned to = from + 1; to <= kIds; ++to) {
          const bool needed = sees(set, from) && !sees(set, to);
          ASSERT_FALSE(needed && m.publication.garbage(Version(from), Version(to))) << snapshot.to_string();
        }
      }
    }
  });
  EXPECT_GT(refused, 1'000u);
}

TEST_F(PublicationModel, Codec) {
  for_each_round(500, [&](const Manager& m) {
    Buffer buffer;
    ByteWriter out(buffer);
    m.publication.encode(out);
    ByteReader in(buffer);
    ASSERT_EQ(Publication::decode(in).value(), m.publication);
    ASSERT_TRUE(in.at_end());
    for (size_t size = 0; size < buffer.size(); ++size) {
      ByteReader truncated(Bytes(buffer).first(size));
      ASSERT_EQ(Publication::decode(truncated).code(), StatusCode::kMalformed) << size;
    }
  });
}

TEST(Publication, VersionsBetweenTwoOpenSnapshotsAreGarbage) {
  Publication p;
  p.later = Snapshot(Version(100));
  p.floor = Version(90);
  p.young_open = true;
  p.old.push_back({Snapshot(Version(10)), false});
  EXPECT_TRUE(p.garbage(Version(20), Version(30)));   // a long scan does not keep all later versions
  EXPECT_FALSE(p.garbage(Version(5), Version(30)));   // the scan sees this version
  EXPECT_FALSE(p.garbage(Version(20), Version(95)));  // a young snapshot may see it
  EXPECT_FALSE(p.garbage(Version(20), Version(101)));
  EXPECT_TRUE(p.tombstone_garbage(Version(20)));  // the scan is read-only
  p.old[0].read_write = true;
  EXPECT_FALSE(p.tombstone_garbage(Version(20)));
  EXPECT_EQ(p.seen_by_all(), Version(10));
}

TEST(Publication, CheckRefuses) {
  Publication p;
  p.later = Snapshot(Version(100));
  p.floor = Version(101);
  p.young_open = true;
  EXPECT_EQ(p.check().code(), StatusCode::kInvalidArgument);
  p.floor = Version(90);
  EXPECT_TRUE(p.check().ok());
  p.old.push_back({Snapshot(Version(102)), false});
  EXPECT_TRUE(p.check().ok()) << "an open snapshot may see commits that are not durable yet";
  p.young_open = false;
  EXPECT_EQ(p.check().code(), StatusCode::kInvalidArgument);
  Buffer buffer;
  ByteWriter out(buffer);
  p.encode(out);
  ByteReader in(buffer);
  EXPECT_EQ(Publication::decode(in).code(), StatusCode::kMalformed);
  p.young_open = true;
  p.old.assign(kMaxOldSnapshots + 1, {Snapshot(Version(5)), false});
  EXPECT_EQ(p.check().code(), StatusCode::kInvalidArgument);
}

TEST(Publication, OrderIsByEpochThenNumber) {
  Publication a, b;
  a.cm_epoch = 1;
  a.number = 9;
  b.cm_epoch = 2;
  b.number = 1;
  EXPECT_TRUE(b.newer_than(a));
  EXPECT_FALSE(a.newer_than(b));
  EXPECT_FALSE(a.newer_than(a));
}

}  // namespace
}  // namespace loam
