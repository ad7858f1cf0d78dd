#include "storage-node/src/compact/compactor.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/src/compact/table_compactor.h"
#include "storage-node/src/version/chain.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

/// A table under a compactor with background work as the node does it, on one thread.
class CompactorTest : public ::testing::Test {
 protected:
  explicit CompactorTest(const FixtureOptions& options = {.writers = 2}) : fixture_(options) {
    compactor_.add(fixture_.table);
  }
  void put(uint64_t key, std::string_view row) {
    const EpochGuard guard(thread_);
    const auto t = manager_.begin();
    const bool there = table_.get(me_, Key(key), t.snapshot).code == StatusCode::kOk;
    const WriteOutcome outcome = there ? table_.update(me_, Key(key), t.snapshot, t.id, as_bytes(row))
                                       : table_.insert(me_, Key(key), t.snapshot, t.id, as_bytes(row));
    ASSERT_EQ(outcome.code, StatusCode::kOk);
    manager_.complete(t.id);
  }
  void remove(uint64_t key) {
    const EpochGuard guard(thread_);
    const auto t = manager_.begin();
    ASSERT_EQ(table_.remove(me_, Key(key), t.snapshot, t.id).code, StatusCode::kOk);
    manager_.complete(t.id);
  }
  std::string get(uint64_t key, const Snapshot& snapshot) {
    const EpochGuard guard(thread_);
    const ReadOutcome outcome = table_.get(me_, Key(key), snapshot);
    return outcome.code == StatusCode::kOk ? std::string(as_text(outcome.row)) : std::string(to_string(outcome.code));
  }
  std::map<uint64_t, std::string> scan(const Snapshot* snapshot) {
    const EpochGuard guard(thread_);
    return scan_all(table_, snapshot);
  }
  /// Steps until nothing is left to do, with publications as the manager would send them.
  void compact(int publications = 3) {
    for (int i = 0; i < publications; ++i) {
      compactor_.publish(manager_.publication());
      int idle = 0;
      for (int steps = 0; idle < 20; ++steps) {
        ASSERT_LT(steps, 100'000) << "the compactor finds no end";
        idle = compactor_.step(background_, 64) ? 0 : idle + 1;
        epochs_of_background_.collect(8);
      }
    }
  }
  size_t listed_bytes() {
    const EpochGuard guard(thread_);
    size_t bytes = 0;
    for (const Page* page : table_.pages().pages()) bytes += page->size_bytes();
    return bytes;
  }

  TableFixture fixture_;
  Table& table_ = *fixture_.table;
  EpochThread thread_{fixture_.epochs, "requests"};
  ThreadContext me_{thread_, 0};
  EpochThread epochs_of_background_{fixture_.epochs, "background"};
  ThreadContext background_{epochs_of_background_, 1};
  Compactor compactor_{CompactorOptions{}, *fixture_.pool, fixture_.epochs};
  ManagerModel manager_;
};

TEST_F(CompactorTest, FreesWhatNobodySees) {
  const std::string row(100, 'r');
  for (int round = 0; round < 30; ++round) {
    for (uint64_t key = 0; key < 100; ++key) put(key, row + std::to_string(round));
    compact();
  }
  // 100 entries of 160 B are live; head pages and a share of garbage come on top.
  EXPECT_LT(listed_bytes(), 5 * 16384u);
  EXPECT_LT(fixture_.pool->statistics().used_bytes, 6 * 16384u);
  const CompactorStatistics statistics = compactor_.statistics();
  EXPECT_GT(statistics.versions_collected, 2000u);
  EXPECT_GT(statistics.pages_freed, 10u);
  EXPECT_EQ(statistics.pages_waiting, 0u);
  const Snapshot now = manager_.now();
  for (uint64_t key = 0; key < 100; ++key) EXPECT_EQ(get(key, now), row + "29");
  EXPECT_EQ(scan(&now).size(), 100u);
}

TEST_F(CompactorTest, ALongSnapshotKeepsItsVersionsAndNoOthers) {
  for (uint64_t key = 0; key < 100; ++key) put(key, "old");
  uint64_t handle = 0;
  const Snapshot old = manager_.open_snapshot(handle);
  for (int round = 0; round < 50; ++round) {
    for (uint64_t key = 0; key < 100; ++key) put(key, "new " + std::to_string(round));
    compact();
  }
  size_t versions = 0;
  {
    const EpochGuard guard(thread_);
    table_.index().for_each([&](Entry* head) {
      for (Entry* e = head; e != nullptr; e = e->load_link().address) ++versions;
    });
  }
  // Interval rule: what lies between the snapshot's versions and the newest goes too.
  EXPECT_LE(versions, 100u * 6);
  EXPECT_GE(versions, 200u);
  const auto found = scan(&old);
  EXPECT_EQ(found.size(), 100u);
  for (uint64_t key = 0; key < 100; ++key) {
    EXPECT_EQ(get(key, old), "old");
    EXPECT_EQ(found.at(key), "old");
  }
  manager_.close_snapshot(handle);
  compact(40);
}

TEST_F(CompactorTest, RemovedKeysLeaveNothing) {
  for (int round = 0; round < 5; ++round) {
    for (uint64_t key = 0; key < 200; ++key) put(key, "row");
    for (uint64_t key = 0; key < 200; ++key) remove(key);
    compact(16);
  }
  // A tombstone goes with its own page; one whose page is not sealed yet is superseded by the next round's insert.
  EXPECT_GT(compactor_.statistics().tombstones_collected, 300u);
  EXPECT_LE(table_.keys(), 200u) << "at most those of the last round, whose pages are not sealed yet";
  EXPECT_LT(listed_bytes(), 4 * 16384u);
}

TEST_F(CompactorTest, WhatACollectedVersionSupersededIsUnlinkedBeforeItGoes) {
  const auto rewrite_others = [this](std::string_view row) {
    for (uint64_t key = 100; key < 500; ++key) put(key, row);
  };
  put(1, "first");
  rewrite_others("a");
  uint64_t early = 0;
  manager_.open_snapshot(early);  // keeps the first version, and the horizon below the second one
  put(1, "second");
  const auto between = manager_.begin();
  put(1, "third");
  uint64_t late = 0;
  manager_.open_snapshot(late);  // sees the second and the third: keeps the horizon between them
  manager_.complete(between.id);
  rewrite_others("b");
  rewrite_others("c");
  compact(10);
  {
    const EpochGuard guard(thread_);
    const Entry* const third = table_.index().find(Key(1)).head;
    const Entry* const first = third->load_link().address;
    ASSERT_NE(first, nullptr);
    ASSERT_LT(first->load_link().valid_to + 1, third->valid_from) << "the second version is collected";
  }
  manager_.close_snapshot(early);
  rewrite_others("d");
  compact(40);
  ASSERT_GT(table_.horizon().value, 0u);
  const EpochGuard guard(thread_);
  const Entry* const third = table_.index().find(Key(1)).head;
  EXPECT_GT(third->version(), table_.horizon());
  EXPECT_EQ(third->load_link().address, nullptr) << "the first version's memory is gone, and something leads to it";
  EXPECT_EQ(as_text(third->row()), "third");
}

TEST_F(CompactorTest, WhatIsCollectedAtTheHorizonLeadsNowhere) {
  for (const uint64_t key : {1, 2}) put(key, "first"), put(key, "second"), put(key, "third");
  const EpochGuard guard(thread_);
  const auto collected = [&](uint64_t key, bool at_the_horizon) {
    Entry* const second = table_.index().find(Key(key)).head->load_link().address;
    const Link link = second->load_link();
    EXPECT_NE(link.address, nullptr);
    const Version horizon = at_the_horizon ? second->version() : Version(second->valid_from - 1);
    table_.raise_horizon(Version(link.valid_to));  // for the checks at the end: nobody reads what is cut off here
    EXPECT_TRUE(Chain::kill_collected(second, link, horizon));
    return second->load_link();
  };
  EXPECT_NE(collected(2, false).address, nullptr) << "a version above the horizon leads on: readers pass over it";
  const Link dead = collected(1, true);
  EXPECT_EQ(dead.state, EntryState::kDead);
  EXPECT_EQ(dead.address, nullptr) << "a late revert of its successor would bring back what may be gone";
}

TEST_F(CompactorTest, ALateRevertBehindTheHorizonFollowsNothing) {
  for (uint64_t key = 0; key < 300; ++key) put(key, "first");
  const auto writer = manager_.begin();
  for (uint64_t key = 0; key < 300; ++key) {
    const EpochGuard guard(thread_);
    ASSERT_EQ(table_.update(me_, Key(key), writer.snapshot, writer.id, as_bytes("second")).code, StatusCode::kOk);
  }
  manager_.complete(writer.id);
  for (uint64_t key = 150; key < 300; ++key) put(key, "third");
  compact(10);
  const EpochGuard guard(thread_);
  ASSERT_GE(table_.horizon().value, writer.id.value);
  for (uint64_t key = 0; key < 300; ++key) {
    const StatusCode expected = key < 150 ? StatusCode::kConflict : StatusCode::kOk;  // standing, or gone
    EXPECT_EQ(table_.revert(me_, Key(key), writer.id).code, expected);
    EXPECT_EQ(as_text(table_.get(me_, Key(key), manager_.now()).row), key < 150 ? "second" : "third");
  }
}

TEST_F(CompactorTest, TheHorizonRisesWhileAJobGoesOn) {
  const std::string row(100, 'r');
  for (uint64_t key = 0; key < 300; ++key) put(key, row);
  for (uint64_t key = 0; key < 300; key += 4) put(key, row);
  compactor_.publish(manager_.publication());
  for (int steps = 0; steps < 20; ++steps) compactor_.step(background_, 1);
  ASSERT_EQ(table_.horizon(), Version()) << "too little garbage for a job";
  for (uint64_t key = 1; key < 300; key += 8) put(key, row);
  const auto step_until = [this](auto counter, uint64_t least) {
    for (int steps = 0; compactor_.statistics().*counter < least; ++steps) {
      ASSERT_LT(steps, 10'000);
      compactor_.step(background_, 1);
    }
  };
  step_until(&CompactorStatistics::entries_moved, 10);
  const Version at_begin = table_.horizon();
  for (uint64_t key = 0; key < 300; ++key) put(key, row);
  compactor_.publish(manager_.publication());
  step_until(&CompactorStatistics::pages_rewritten, 1);
  EXPECT_GT(table_.horizon(), at_begin);
  EXPECT_LT(compactor_.statistics().entries_moved, 50u) << "what was superseded after the job's begin is not copied";
  compact(10);
}

TEST_F(CompactorTest, ATombstoneStaysForWhoMustConflictWithIt) {
  put(1, "row");
  const auto early = manager_.begin();  // read-write, does not see the removal
  remove(1);
  for (uint64_t key = 100; key < 400; ++key) put(key, "x"), put(key, "y");
  compact();
  {
    const EpochGuard guard(thread_);
    EXPECT_EQ(table_.insert(me_, Key(1), early.snapshot, early.id, {}).code, StatusCode::kConflict);
  }
  EXPECT_EQ(get(1, early.snapshot), "row");
  manager_.complete(early.id);
}

TEST_F(CompactorTest, APinnedPageAndWhatItLeadsToStay) {
  for (uint64_t key = 0; key < 300; ++key) put(key, "first");
  uint64_t handle = 0;
  const Snapshot snapshot = manager_.open_snapshot(handle);
  PinnedPages pinned;
  {
    const EpochGuard guard(thread_);
    pinned = table_.pages().pin();
  }
  for (int round = 0; round < 20; ++round) {
    for (uint64_t key = 0; key < 300; ++key) put(key, "later");
    compact();
  }
  EXPECT_GT(compactor_.statistics().pages_waiting, 0u);
  // The scan goes on in its old pages, through forward pointers over several moves.
  size_t rows = 0;
  size_t moved = 0;
  for (size_t i = 0; i < pinned.size(); ++i) {
    pinned[i]->for_each([&](const Entry& entry) {
      moved += entry.load_link().state == EntryState::kMoved;
      if (!lifetime_of(entry).visible(snapshot, entry.valid_from)) return;
      ++rows;
      EXPECT_EQ(as_text(entry.row()), "first");
    });
    pinned.unpin(i);
  }
  EXPECT_EQ(rows, 300u);
  EXPECT_GT(moved, 0u);
  manager_.close_snapshot(handle);
  compact(10);
  EXPECT_EQ(compactor_.statistics().pages_waiting, 0u);
}

TEST_F(CompactorTest, AnOpenTransactionsClaimSurvivesTheMove) {
  for (uint64_t key = 0; key < 200; ++key) put(key, "committed");
  const auto writer = manager_.begin();
  {
    const EpochGuard guard(thread_);
    for (uint64_t key = 0; key < 200; key += 2) {
      ASSERT_EQ(table_.update(me_, Key(key), writer.snapshot, writer.id, as_bytes("mine")).code, StatusCode::kOk);
    }
  }
  for (int round = 0; round < 10; ++round) {
    for (uint64_t key = 1; key < 200; key += 2) put(key, "committed");
    compact();
  }
  EXPECT_GT(compactor_.statistics().entries_moved, 0u);
  {
    const EpochGuard guard(thread_);
    for (uint64_t key = 0; key < 200; key += 2) {
      ASSERT_EQ(table_.revert(me_, Key(key), writer.id).code, StatusCode::kOk);
    }
  }
  manager_.complete(writer.id);
  const Snapshot now = manager_.now();
  for (uint64_t key = 0; key < 200; ++key) EXPECT_EQ(get(key, now), "committed");
  EXPECT_EQ(scan(&now).size(), 200u);
}

TEST_F(CompactorTest, GetsAloneHaveLongChainsShortened) {
  put(1, "old");
  uint64_t handle = 0;
  const Snapshot old = manager_.open_snapshot(handle);
  for (int i = 0; i < 40; ++i) put(1, "new");
  for (uint64_t key = 100; key < 600; ++key) put(key, "row");
  compact();
  const auto hops_of = [&](int gets) {
    const uint64_t before = table_.counters().hops;
    for (int i = 0; i < gets; ++i) EXPECT_EQ(get(1, old), "old");
    return table_.counters().hops - before;
  };
  const uint64_t before = hops_of(1);
  ASSERT_GE(before, 40u) << "the table has little garbage: nothing else has it compacted";
  hops_of(300);
  compact();
  EXPECT_EQ(hops_of(1), before) << "too few gets, with those of put(), to say anything";
  hops_of(300);
  compact();
  EXPECT_LE(hops_of(1), CompactorOptions{}.max_mean_hops);
  manager_.close_snapshot(handle);
}

TEST_F(CompactorTest, WithoutAPublicationNothingIsGarbage) {
  for (int round = 0; round < 10; ++round) {
    for (uint64_t key = 0; key < 100; ++key) put(key, std::to_string(round));
  }
  for (int i = 0; i < 100; ++i) compactor_.step(background_, 64);
  EXPECT_EQ(compactor_.statistics().versions_collected, 0u);
  EXPECT_GT(compactor_.statistics().futile_walks, 0u);
  EXPECT_EQ(compactor_.statistics().pages_rewritten, 0u);
}

TEST_F(CompactorTest, ADroppedTableGivesItsMemoryBack) {
  for (uint64_t key = 0; key < 300; ++key) put(key, "row"), put(key, "again");
  PinnedPages pinned;
  {
    const EpochGuard guard(thread_);
    pinned = table_.pages().pin();
  }
  compactor_.publish(manager_.publication());
  for (int i = 0; i < 30; ++i) compactor_.step(background_, 16);  // in the midst of a job
  std::weak_ptr<Table> alive = fixture_.table;
  fixture_.table = Table::create({.id = TableId(2), .writers = 2}, {*fixture_.pool, fixture_.versions}).value();
  compactor_.drop(TableId(1));
  for (int i = 0; i < 50; ++i) compactor_.step(background_, 16);
  EXPECT_FALSE(alive.expired()) << "a scan reads it";
  pinned = PinnedPages();
  for (int i = 0; i < 50; ++i) {
    compactor_.step(background_, 16);
    epochs_of_background_.collect(8);
  }
  EXPECT_TRUE(alive.expired());
}

TEST_F(CompactorTest, AnEntryIsLookedAtOnceInEachPhaseHoweverSmallTheSteps) {
  constexpr uint64_t kPuts = 5'000;
  for (uint64_t i = 0; i < kPuts; ++i) put(i % 8, "a row");
  for (int publications = 0; publications < 8; ++publications) {
    compactor_.publish(manager_.publication());
    for (int idle = 0; idle < 20;) idle = compactor_.step(background_, 4) ? 0 : idle + 1;
  }
  EXPECT_GT(compactor_.statistics().versions_collected, kPuts / 2);
  EXPECT_GT(compactor_.statistics().entries_fetched, kPuts / 2);
  EXPECT_LE(compactor_.statistics().entries_fetched, 2 * kPuts);
}

class PlainCompactorTest : public CompactorTest {
 protected:
  PlainCompactorTest() : CompactorTest({.kind = TableKind::kNonTransactional, .writers = 2}) {}
  void SetUp() override { versions_.resize(100); }
  std::vector<Version> versions_;
};

TEST_F(PlainCompactorTest, SupersededVersionsAreGarbageAtOnce) {
  for (int round = 0; round < 50; ++round) {
    {
      const EpochGuard guard(thread_);
      for (uint64_t key = 0; key < 100; ++key) {
        const WriteOutcome outcome =
            table_.plain_put(me_, Key(key), versions_[key], as_bytes("row " + std::to_string(round)));
        ASSERT_EQ(outcome.code, StatusCode::kOk);
        versions_[key] = outcome.version;
        if (key % 5 == 0) {
          ASSERT_EQ(table_.plain_remove(me_, Key(key), versions_[key]).code, StatusCode::kOk);
          versions_[key] = Version();
        }
      }
    }
    for (int i = 0; i < 200; ++i) compactor_.step(background_, 64);  // no publication
  }
  EXPECT_LT(fixture_.pool->statistics().used_bytes, 8 * 16384u);
  EXPECT_GT(compactor_.statistics().pages_freed, 10u);
  EXPECT_EQ(compactor_.statistics().futile_walks, 0u);
  const auto found = scan(nullptr);
  EXPECT_EQ(found.size(), 80u);
  for (const auto& [key, row] : found) EXPECT_EQ(row, "row 49");
}

/// One job at a time on pages of 4 to 64 KiB: 1 to 4 with keys 0, 1, 2, … of a kilobyte each, then pages of 64 KiB.
class PageChoiceTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kKeys = 300;
  static constexpr CompactorOptions kOneFullPage{.dead_share = 0, .max_sources = 1};

  void TearDown() override {
    for (const auto& [block, bytes] : taken_) fixture_.pool->release(block, bytes);
  }
  bool take(size_t bytes) {
    std::byte* const block = fixture_.pool->allocate(bytes, Reserve::kCompactor);
    if (block != nullptr) taken_.emplace_back(block, bytes);
    return block != nullptr;
  }
  /// Takes all memory but 16 KiB.
  void take_nearly_all() {
    std::byte* const page = fixture_.pool->allocate(65536, Reserve::kCompactor);
    for (size_t bytes = 65536; bytes >= Page::kMinPageBytes; bytes /= 2) {
      while (take(bytes)) {
      }
    }
    fixture_.pool->release(page, 65536);
    ASSERT_TRUE(take(32768) && take(16384));
  }

  void SetUp() override {
    for (uint64_t key = 0; key < kKeys; ++key) put(key);
    ASSERT_EQ(sizes().front(), 4096u);
    ASSERT_EQ(sizes().back(), 65536u);
  }
  void put(uint64_t key) {
    const EpochGuard guard(thread_);
    const WriteOutcome outcome = fixture_.table->plain_put(me_, Key(key), versions_[key], std::vector<std::byte>(900));
    ASSERT_EQ(outcome.code, StatusCode::kOk);
    versions_[key] = outcome.version;
  }
  std::vector<size_t> sizes() {
    const EpochGuard guard(thread_);
    std::vector<size_t> all;
    for (const Page* page : fixture_.table->pages().pages()) all.push_back(page->size_bytes());
    return all;
  }
  bool listed(uint64_t number) {
    const EpochGuard guard(thread_);
    return std::ranges::any_of(fixture_.table->pages().pages(), [&](const Page* p) { return p->number() == number; });
  }
  /// Overwrites every other key that lies in a full page.
  void spoil_full_pages() {
    for (uint64_t key = 100; key < kKeys; key += 2) put(key);
  }
  void run_job(TableCompactor& compactor) {
    {
      const EpochGuard guard(thread_);
      EXPECT_GT(compactor.choose(1, 0), 0u);
    }
    compactor.begin(nullptr, fixture_.epochs.current());
    while (compactor.phase() != TableCompactor::Phase::kIdle) {
      compactor.step(me_, 100);
      fixture_.epochs.advance();
    }
  }
  CompactorStatistics run_one_job() {
    CompactorStatistics statistics;
    TableCompactor compactor(fixture_.table, kOneFullPage, statistics);
    run_job(compactor);
    for (int i = 0; i < 10; ++i) fixture_.epochs.advance();
    while (compactor.free_retired(fixture_.epochs)) {
    }
    const EpochGuard guard(thread_);
    EXPECT_EQ(fixture_.table->check_invariants(), "");
    EXPECT_EQ(compactor.choose(1, 0) > 0, statistics.jobs_without_room == 0) << "not again before the next turn";
    return statistics;
  }

  TableFixture fixture_{{.kind = TableKind::kNonTransactional, .pages = 64, .page_bytes = 65536}};
  EpochThread thread_{fixture_.epochs, "test"};
  ThreadContext me_{thread_, 0};
  std::vector<Version> versions_ = std::vector<Version>(kKeys);
  std::vector<std::pair<std::byte*, size_t>> taken_;
};

TEST_F(PageChoiceTest, TheMoreRoomThereIsTheMoreGarbageMakesAPageWorthIt) {
  const CompactorOptions options;
  CompactorStatistics statistics;
  TableCompactor compactor(fixture_.table, options, statistics);
  uint64_t turn = 0;
  const auto chooses = [&](double hurry) {
    const EpochGuard guard(thread_);
    return compactor.choose(++turn, hurry) > 0;
  };
  const auto spoil_one_of = [&](uint64_t one_of) {
    for (uint64_t key = 0; key < kKeys; key += one_of) put(key);
  };
  EXPECT_FALSE(chooses(1)) << "there is no garbage";
  spoil_one_of(7);
  EXPECT_FALSE(chooses(0)) << "the table has less than a quarter";
  spoil_one_of(10);
  EXPECT_FALSE(chooses(0.01)) << "no page is half garbage";
  spoil_one_of(13);
  EXPECT_FALSE(chooses(0.7)) << "there is still room to wait in";
  for (double hurry = 0.7; hurry < 1; hurry += 0.001) static_cast<void>(chooses(hurry));
  EXPECT_TRUE(chooses(1)) << "for want of better; nothing has changed but that others have taken the room";
}

TEST_F(PageChoiceTest, WhatIsGarbageThroughoutGoesFirst) {
  for (uint64_t key = 0; key < 30; ++key) put(key);  // pages 1 to 3: 4, 8 and 16 KiB
  spoil_full_pages();
  run_one_job();
  for (uint64_t number = 1; number <= 3; ++number) EXPECT_FALSE(listed(number)) << number;
}

TEST_F(PageChoiceTest, SmallPagesComeAlong) {
  spoil_full_pages();
  const size_t before = sizes().size();
  run_one_job();
  EXPECT_FALSE(listed(1));
  EXPECT_FALSE(listed(2));
  EXPECT_TRUE(listed(3)) << "16 KiB are not small, and nothing in it is garbage";
  EXPECT_LT(sizes().size(), before);
}

TEST_F(PageChoiceTest, RemaindersAreNotRewrittenForThemselvesWhenThereIsNoRoomForMore) {
  spoil_full_pages();
  take_nearly_all();
  EXPECT_EQ(run_one_job().jobs_without_room, 1u);
  EXPECT_TRUE(listed(1));
  EXPECT_TRUE(listed(2));
}

TEST_F(PageChoiceTest, NothingMovesBeforeItsWriterCanHaveLinkedIt) {
  EpochThread background_epochs(fixture_.epochs, "background");
  ThreadContext background(background_epochs, 0);
  CompactorStatistics statistics;
  TableCompactor compactor(fixture_.table, kOneFullPage, statistics);
  const auto steps = [&] {
    for (int i = 0; i < 50; ++i) {
      compactor.step(background, 1'000);
      fixture_.epochs.advance();
    }
  };
  {
    // A batch appends an entry, and more until the page is full and the next one is opened, and has linked none yet.
    const EpochGuard guard(thread_);
    const std::vector<std::byte> row(900);
    std::vector<Entry*> appended;
    do {
      const Link pending{kPending, nullptr, EntryState::kLive};
      appended.push_back(fixture_.table->log().append(me_, {EntryKind::kPut, Key(5'000), Version(9), 1, pending, {row}},
                                                      Reserve::kWrite));
    } while (!Page::of(appended.front())->sealed());
    Page::of(appended.front())->add_garbage(60'000);
    {
      const EpochGuard own(background_epochs);
      ASSERT_GT(compactor.choose(1, 1), 0u);
    }
    compactor.begin(nullptr, fixture_.epochs.current());
    steps();
    for (Entry* const entry : appended) {
      EXPECT_TRUE(entry->load_link().live()) << "its writer would link what is not the record's any more";
      Chain::kill_unlinked(entry);
      Page::of(entry)->add_garbage(*entry);
    }
    EXPECT_NE(compactor.phase(), TableCompactor::Phase::kIdle);
  }
  steps();
  EXPECT_EQ(compactor.phase(), TableCompactor::Phase::kIdle);
  EXPECT_GE(statistics.pages_rewritten, 1u);
}

TEST_F(PageChoiceTest, AJobWithoutRoomIsTriedAgainWhenPagesComeFree) {
  spoil_full_pages();
  take_nearly_all();
  CompactorStatistics statistics;
  TableCompactor compactor(fixture_.table, kOneFullPage, statistics);
  run_job(compactor);
  ASSERT_EQ(statistics.jobs_without_room, 1u);
  const EpochGuard guard(thread_);
  EXPECT_EQ(compactor.choose(1, 1), 0u) << "not at once: it would be in vain again";
  ++statistics.pages_freed;  // of another table; no publication has come, and nobody has written here
  EXPECT_GT(compactor.choose(1, 1), 0u);
}

}  // namespace
}  // namespace loam::storage
