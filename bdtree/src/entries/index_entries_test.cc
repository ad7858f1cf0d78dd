#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/index_entries.h>

#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

using testing::Random;

Snapshot sees(uint64_t high, std::vector<Version> open = {}) {
  return Snapshot::make(Version(0), Version(high), open).value();
}

Status remove(IndexEntries& entries, Key key, TransactionId me, bool building = false) {
  return entries.remove(key, me, sees(me.value - 1), building);
}

TEST(IndexEntries, ValueIsGivenAndTaken) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(7), TransactionId(10), sees(9), true).ok());
  EXPECT_TRUE(entries.visible(sees(9)).empty());
  EXPECT_EQ(entries.visible(sees(10)), std::vector{Key(7)});
  ASSERT_TRUE(remove(entries, Key(7), TransactionId(12)).ok());
  EXPECT_EQ(entries.visible(sees(11)), std::vector{Key(7)});
  EXPECT_TRUE(entries.visible(sees(12)).empty());
  EXPECT_EQ(remove(entries, Key(8), TransactionId(12)).code(), StatusCode::kMalformed) << "the entry was lost";
}

TEST(IndexEntries, UniqueValueHasOneRecord) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), true).ok());
  EXPECT_EQ(entries.insert(Key(2), TransactionId(11), sees(9), true).code(), StatusCode::kConflict) << "10 is open";
  EXPECT_EQ(entries.insert(Key(2), TransactionId(12), sees(11), true).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(entries.insert(Key(2), TransactionId(10), sees(9), true).code(), StatusCode::kAlreadyExists)
      << "its own value at another record";
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(13)).ok());
  EXPECT_EQ(entries.insert(Key(2), TransactionId(14), sees(12), true).code(), StatusCode::kConflict) << "13 is open";
  EXPECT_TRUE(entries.insert(Key(2), TransactionId(13), sees(12), true).ok())
      << "the transaction itself took the value";
  EXPECT_EQ(entries.visible(sees(13)), std::vector{Key(2)});
  EXPECT_EQ(entries.visible(sees(12)), std::vector{Key(1)});
}

TEST(IndexEntries, ObsoleteAtReadsTheEncodedEntries) {
  for (const bool shared : {false, true}) {
    auto entries = IndexEntries::decode(std::nullopt, shared ? std::nullopt : std::optional(Key(1))).value();
    ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), false).ok());
    EXPECT_EQ(IndexEntries::obsolete_at(entries.encode(), shared), std::nullopt) << "it has the value";
    ASSERT_TRUE(remove(entries, Key(1), TransactionId(500)).ok());
    EXPECT_EQ(IndexEntries::obsolete_at(entries.encode(), shared), Version(500));
    ASSERT_TRUE(entries.insert(Key(1), TransactionId(600), sees(599), false).ok());
    EXPECT_EQ(IndexEntries::obsolete_at(entries.encode(), shared), std::nullopt);
    ASSERT_TRUE(remove(entries, Key(1), TransactionId(700)).ok());
    EXPECT_EQ(IndexEntries::obsolete_at(entries.encode(), shared), Version(700)) << "the highest end";
    EXPECT_EQ(IndexEntries::obsolete_at(entries.encode().substr(1), shared), std::nullopt) << "not entries";
  }
}

TEST(IndexEntries, GivingAgainAddsASeparateEntry) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), false).ok());
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(20), sees(19), false).ok());
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(20), sees(19), false).ok()) << "a repeated call";
  EXPECT_EQ(entries.entries().size(), 2u);
  IndexEntries old = entries;
  EXPECT_TRUE(old.collect(Version(25)));
  EXPECT_EQ(IndexEntries::decode(old.encode(), std::nullopt).value().entries(), old.entries()) << "two alike";
  entries.undo(Key(1), TransactionId(20));
  EXPECT_EQ(entries.visible(sees(30)), std::vector{Key(1)}) << "the undo removed another transaction's entry";
}

TEST(IndexEntries, UndoTouchesOnlyItsOwnMarks) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), true).ok());
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12)).ok());
  entries.undo(Key(1), TransactionId(11));
  EXPECT_TRUE(entries.visible(sees(12)).empty());
  entries.undo(Key(1), TransactionId(12));
  EXPECT_EQ(entries.visible(sees(12)), std::vector{Key(1)});
  entries.undo(Key(1), TransactionId(10));
  EXPECT_TRUE(entries.empty());
}

// The records may be reverted before the undo can reach the tree node of the index (R9, leases of storage nodes).
TEST(IndexEntries, RemovalOfAbortedTransactionConflictsUntilUndone) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), false).ok());
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12)).ok());
  const Snapshot open = sees(13, {Version(12)});
  EXPECT_EQ(entries.remove(Key(1), TransactionId(14), open, false).code(), StatusCode::kConflict);
  entries.undo(Key(1), TransactionId(12));
  EXPECT_TRUE(entries.remove(Key(1), TransactionId(14), open, false).ok());
}

// During a build a transaction may take a value that has no entry yet; the build enters it later (R29, index
// creation).
TEST(IndexEntries, BuildEntersRecordsWithoutAnEntry) {
  IndexEntries entries;
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12), true).ok());
  ASSERT_TRUE(entries.backfill(Key(1), sees(11), true).ok());
  EXPECT_EQ(entries.visible(sees(11)), std::vector{Key(1)});
  EXPECT_TRUE(entries.visible(sees(12)).empty()) << "its end stays";
  ASSERT_TRUE(entries.backfill(Key(2), sees(13), true).ok());
  ASSERT_TRUE(entries.backfill(Key(2), sees(14), true).ok()) << "twice";
  EXPECT_EQ(entries.visible(sees(14)), std::vector{Key(2)});
  EXPECT_EQ(entries.entries().size(), 2u);
}

// Transactions that do not know the index change records until the build takes its snapshot. So an entry that an undo
// left behind would never end.
TEST(IndexEntries, UndoneRemovalBeforeTheBuildLeavesNoEntry) {
  IndexEntries entries;
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12), true).ok());
  entries.undo(Key(1), TransactionId(12));
  EXPECT_TRUE(entries.empty());
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(14), true).ok());
  EXPECT_EQ(entries.remove(Key(1), TransactionId(15), sees(13), true).code(), StatusCode::kConflict);
  ASSERT_TRUE(entries.backfill(Key(1), sees(13), true).ok());
  entries.undo(Key(1), TransactionId(14));
  EXPECT_EQ(entries.visible(sees(15)), std::vector{Key(1)}) << "the build entered it";
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(16), true).ok());
  EXPECT_EQ(entries.entries().size(), 1u);
}

TEST(IndexEntries, BuildOfUniqueIndexFindsDuplicates) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), true).ok());
  EXPECT_EQ(entries.backfill(Key(2), sees(9), true).code(), StatusCode::kConflict) << "10 may still fail";
  EXPECT_EQ(entries.backfill(Key(2), sees(10), true).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(entries.backfill(Key(2), sees(10), false).ok()) << "the index is not unique";
}

TEST(IndexEntries, BuildFindsDuplicateAfterUndoneRemoval) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(2), TransactionId(10), sees(9), true).ok()) << "record 1 has not been entered yet";
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12), true).ok());
  EXPECT_EQ(entries.backfill(Key(1), sees(9), true).code(), StatusCode::kConflict) << "10 and 12 may still fail";
  entries.undo(Key(1), TransactionId(12));
  EXPECT_EQ(entries.backfill(Key(1), sees(13), true).code(), StatusCode::kAlreadyExists);
  // After the value has moved on, only the record that has it keeps an entry.
  ASSERT_TRUE(remove(entries, Key(2), TransactionId(14), true).ok());
  EXPECT_TRUE(entries.backfill(Key(1), sees(14), true).ok());
  EXPECT_TRUE(entries.backfill(Key(2), sees(14), true).ok());
  EXPECT_EQ(entries.visible(sees(14)), std::vector{Key(1)});
}

TEST(IndexEntries, CollectsEntriesThatNoSnapshotSees) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), true).ok());
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12)).ok());
  ASSERT_TRUE(entries.insert(Key(2), TransactionId(14), sees(13), true).ok());
  EXPECT_TRUE(entries.collect(Version(11))) << "valid_from becomes 0";
  EXPECT_FALSE(entries.collect(Version(11)));
  EXPECT_EQ(entries.visible(sees(11)), std::vector{Key(1)});
  EXPECT_TRUE(entries.collect(Version(13)));
  EXPECT_EQ(entries.entries(), (std::vector{IndexEntry{Key(2), Version(14), Version()}}));
}

TEST(IndexEntries, RejectsTooManyEntries) {
  IndexEntries entries;
  uint64_t id = 1;
  Status status;
  while (status.ok() && id < 1'000) {
    status = entries.insert(Key(1), TransactionId(id), sees(id - 1), true);
    if (status.ok()) status = remove(entries, Key(1), TransactionId(id + 1));
    id += 2;
  }
  EXPECT_EQ(status.code(), StatusCode::kOverloaded);
  EXPECT_EQ(entries.entries().size(), IndexEntries::kMaxEntries);
  EXPECT_LE(entries.encode().size(), 4'096u) << "the payload of a tree";
  EXPECT_TRUE(entries.collect(Version(id)));
  EXPECT_TRUE(entries.insert(Key(1), TransactionId(id), sees(id - 1), true).ok());
}

// A snapshot from before the first change stays open, so nothing is collected.
TEST(IndexEntries, TogglingRecordKeepsFewEntries) {
  IndexEntries entries = IndexEntries::decode(std::nullopt, Key(1)).value();
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), false).ok());
  const Snapshot old = sees(10);
  uint64_t id = 11;
  for (int toggle = 0; toggle < 5'000; ++toggle) {
    for (const bool takes : {true, false}) {
      const TransactionId me(id);
      const Snapshot now = sees(id - 1);
      entries.coalesce(now, now.high());
      ASSERT_TRUE((takes ? entries.remove(Key(1), me, now, false) : entries.insert(Key(1), me, now, false)).ok())
          << toggle;
      if (toggle % 7 == 3) {  // an aborted change; its undo restores the entries
        const Snapshot later = sees(id);
        entries.undo(Key(1), me);
        EXPECT_EQ(!entries.visible(later).empty(), takes) << toggle;
        ++id;
        const TransactionId again(id);
        const Snapshot then = sees(id - 1);
        ASSERT_TRUE((takes ? remove(entries, Key(1), again) : entries.insert(Key(1), again, then, false)).ok());
      }
      ++id;
      ASSERT_LE(entries.entries().size(), 3u) << toggle;
    }
    ASSERT_EQ(entries.visible(old), std::vector{Key(1)}) << "the old snapshot sees it";
    ASSERT_EQ(entries.visible(sees(id)), std::vector{Key(1)});
  }
}

TEST(IndexEntries, MergesOnlyFinalEntries) {
  IndexEntries entries;
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), false).ok());
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(12)).ok());
  ASSERT_TRUE(entries.insert(Key(1), TransactionId(14), sees(13), false).ok());
  ASSERT_TRUE(remove(entries, Key(1), TransactionId(16)).ok());
  ASSERT_TRUE(entries.insert(Key(2), TransactionId(17), sees(16), false).ok());
  EXPECT_FALSE(entries.coalesce(sees(15), Version(15))) << "16 may be undone";
  EXPECT_FALSE(entries.coalesce(sees(20, {Version(14)}), Version(20))) << "14 is open";
  EXPECT_FALSE(entries.coalesce(sees(20), Version(15))) << "a power failure may take 16 back";
  EXPECT_TRUE(entries.coalesce(sees(16), Version(16)));
  EXPECT_EQ(entries.entries(),
            (std::vector{IndexEntry{Key(1), Version(10), Version(16)}, IndexEntry{Key(2), Version(17), Version()}}));
  EXPECT_FALSE(entries.coalesce(sees(20), Version(20))) << "an entry of another record, and one that has not ended";
  IndexEntries none;
  EXPECT_FALSE(none.coalesce(sees(1), Version(1)));
}

// A transaction with an old snapshot gets kConflict for changes that it does not see, and never kAlreadyExists.
TEST(IndexEntries, MergedEntriesKeepConflictsOfUniqueValues) {
  for (const bool ended : {false, true}) {
    IndexEntries entries;
    ASSERT_TRUE(entries.insert(Key(1), TransactionId(10), sees(9), true).ok());
    ASSERT_TRUE(remove(entries, Key(1), TransactionId(12)).ok());
    const Snapshot free = sees(13);
    ASSERT_TRUE(entries.insert(Key(1), TransactionId(14), sees(13), true).ok());
    ASSERT_TRUE(remove(entries, Key(1), TransactionId(16)).ok());
    if (!ended) {
      ASSERT_TRUE(entries.insert(Key(1), TransactionId(18), sees(17), true).ok());
    }
    ASSERT_TRUE(entries.coalesce(sees(18), Version(18)));
    EXPECT_EQ(entries.insert(Key(2), TransactionId(20), free, true).code(), StatusCode::kConflict);
    EXPECT_EQ(entries.insert(Key(2), TransactionId(21), sees(18), true).code(),
              ended ? StatusCode::kOk : StatusCode::kAlreadyExists);
  }
}

TEST(IndexEntries, DecodesAnyBytesSafely) {
  Random random(testing::test_seed(1));
  for (const bool named : {false, true}) {
    IndexEntries entries = IndexEntries::decode(std::nullopt, named ? std::optional(Key(5)) : std::nullopt).value();
    for (uint64_t id = 1; id < 9; ++id) {
      ASSERT_TRUE(
          entries.insert(named ? Key(5) : Key(id % 3), TransactionId(id << (8 * (id - 1))), sees(id), false).ok());
    }
    const std::string bytes = entries.encode();
    const auto record = named ? std::optional(Key(5)) : std::nullopt;
    EXPECT_EQ(IndexEntries::decode(bytes, record).value().entries(), entries.entries());
    for (int i = 0; i < 5'000; ++i) {
      std::string bad = bytes.substr(0, random.below(bytes.size() + 1));
      if (!bad.empty()) bad[random.below(bad.size())] = static_cast<char>(random());
      const auto decoded = IndexEntries::decode(bad, record);
      if (!decoded.ok()) {
        EXPECT_EQ(decoded.code(), StatusCode::kMalformed);
      }
    }
  }
}

/// Concurrent transactions that move records between values; some of them abort. The claim of a record decides
/// between writers, as at a storage node. In every snapshot the index must agree with the records.
struct IndexModelCase {
  bool unique = false;
  /// Writers merge entries, as a commit does. Lookups then find additional records, which the check of the record
  /// drops.
  bool collapses = false;
};

class IndexModel : public ::testing::TestWithParam<IndexModelCase> {
 protected:
  static constexpr uint64_t kRecords = 12;
  static constexpr uint64_t kValues = 5;

  struct Transaction {
    TransactionId id;
    Snapshot snapshot;
    std::map<Key, std::pair<int, int>> writes;  // value taken and given; -1: none
    bool failed = false;
  };
  struct Versions {
    std::map<uint64_t, int> values;  // by transaction, without aborted ones
    uint64_t claimed_by = 0;
  };

  Snapshot now() const {
    std::vector<Version> open;
    for (const Transaction& t : open_) open.push_back(version_of(t.id));
    return Snapshot::make(Version(open.empty() ? next_ - 1 : open.front().value - 1), Version(next_ - 1), open).value();
  }
  int value_in(Key key, const Snapshot& snapshot) const {
    int value = -1;
    for (const auto& [version, v] : records_[key.value].values) {
      if (snapshot.visible(Version(version))) value = v;
    }
    return value;
  }
  Version seen_by_all() const {
    uint64_t seen = next_ - 1;
    for (const Transaction& t : open_) seen = std::min({seen, t.id.value - 1, t.snapshot.base().value});
    return Version(seen);
  }
  IndexEntries& place(int value, Key key) { return index_[{value, unique_ ? Key() : key}]; }

  void write(Transaction& t, Key key, int value) {
    Versions& record = records_[key.value];
    const bool newest_seen = record.values.empty() || t.snapshot.visible(Version(record.values.rbegin()->first));
    if (t.writes.contains(key) || record.claimed_by != 0 || !newest_seen) return;
    const int old = value_in(key, t.snapshot);
    if (old == value) return;
    record.claimed_by = t.id.value;
    t.writes[key] = {old, value};
    if (old >= 0) {
      IndexEntries& entries = place(old, key);
      if (collapses_) entries.coalesce(t.snapshot, t.snapshot.high());
      ASSERT_TRUE(entries.remove(key, t.id, t.snapshot, false).ok());
      if (random_.one_in(3)) {
        const auto end = IndexEntries::obsolete_at(entries.encode(), true);
        const bool all_ended = end && *end <= seen_by_all();
        entries.collect(seen_by_all());
        EXPECT_EQ(entries.empty(), all_ended) << "the tree drops the key by itself";
      }
      if (random_.one_in(5)) {
        ASSERT_TRUE(entries.remove(key, t.id, t.snapshot, false).ok());
      }
    }
    if (value < 0) return;
    if (collapses_) place(value, key).coalesce(t.snapshot, t.snapshot.high());
    const Status given = place(value, key).insert(key, t.id, t.snapshot, unique_);
    if (!given.ok()) {
      EXPECT_TRUE(unique_) << given.to_string();
      // A violation that the snapshot shows must be one.
      if (given.code() == StatusCode::kAlreadyExists) {
        bool there = false;
        for (uint64_t other = 0; other < kRecords; ++other) {
          const auto own = t.writes.find(Key(other));
          const int has = own != t.writes.end() ? own->second.second : value_in(Key(other), t.snapshot);
          there |= other != key.value && has == value;
        }
        EXPECT_TRUE(there) << "no other record has the value";
      }
      t.failed = true;
    }
  }
  void end(Transaction& t, bool commit) {
    for (const auto& [key, values] : t.writes) {
      Versions& record = records_[key.value];
      record.claimed_by = 0;
      if (commit) record.values[t.id.value] = values.second;
      if (commit) continue;
      if (values.first >= 0) place(values.first, key).undo(key, t.id);
      if (values.second >= 0) place(values.second, key).undo(key, t.id);
    }
  }
  void check(const Snapshot& snapshot) {
    for (int value = 0; value < static_cast<int>(kValues); ++value) {
      std::set<Key> found;
      for (auto& [at, entries] : index_) {
        if (at.first != value) continue;
        for (const Key key : entries.visible(snapshot)) {
          if (!collapses_ || value_in(key, snapshot) == value) found.insert(key);
        }
      }
      std::set<Key> expected;
      for (uint64_t key = 0; key < kRecords; ++key) {
        if (value_in(Key(key), snapshot) == value) expected.insert(Key(key));
      }
      ASSERT_EQ(found.size(), expected.size()) << "value " << value << " in " << snapshot.to_string();
      ASSERT_TRUE(found == expected);
      if (unique_) {
        ASSERT_LE(found.size(), 1u) << "two records have value " << value;
      }
    }
  }

  const bool unique_ = GetParam().unique;
  const bool collapses_ = GetParam().collapses;
  Random random_{testing::test_seed(1)};
  std::vector<Versions> records_{kRecords};
  std::map<std::pair<int, Key>, IndexEntries> index_;
  std::vector<Transaction> open_;  // rising
  uint64_t next_ = 1;
};

TEST_P(IndexModel, AgreesWithTheRecordsInEverySnapshot) {
  uint64_t committed = 0;
  for (int step = 0; step < 20'000 && !HasFailure(); ++step) {
    const uint64_t what = random_.below(10);
    if (open_.size() < 6 && (what < 2 || open_.empty())) {
      const Snapshot snapshot = now();
      open_.push_back({TransactionId(next_++), snapshot, {}, false});
      continue;
    }
    const size_t i = random_.below(open_.size());
    Transaction& t = open_[i];
    if (what < 7 && !t.failed) {
      write(t, Key(random_.below(kRecords)), static_cast<int>(random_.below(kValues + 1)) - 1);
    } else {
      const bool commit = !t.failed && !random_.one_in(4);
      end(t, commit);
      committed += commit && !t.writes.empty();
      open_.erase(open_.begin() + static_cast<ptrdiff_t>(i));
      check(now());
      for (const Transaction& other : open_) check(other.snapshot);
    }
  }
  EXPECT_GT(committed, 200u);
  while (!open_.empty()) {
    end(open_.back(), !open_.back().failed);
    open_.pop_back();
  }
  for (auto& [at, entries] : index_) {
    const auto end = IndexEntries::obsolete_at(entries.encode(), true);
    const bool all_ended = end && *end <= seen_by_all();
    entries.collect(seen_by_all());
    EXPECT_EQ(entries.empty(), all_ended) << "the tree drops the key by itself";
    EXPECT_LE(entries.entries().size(), 1u) << "entries that no snapshot sees stay";
  }
  check(now());
}

INSTANTIATE_TEST_SUITE_P(, IndexModel,
                         ::testing::Values(IndexModelCase{false, false}, IndexModelCase{true, false},
                                           IndexModelCase{false, true}, IndexModelCase{true, true}),
                         [](const auto& instance) {
                           return std::string(instance.param.unique ? "Unique" : "NonUnique") +
                                  (instance.param.collapses ? "Collapsed" : "");
                         });

}  // namespace
}  // namespace loam::bdtree
