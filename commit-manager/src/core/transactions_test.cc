// Single rules of transactions: ids, outcomes, limits and publications (transactions_model_test.cc has the model).
#include "commit-manager/src/core/transactions.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using Completion = wire::Complete::Completion;

struct TransactionsTest : ::testing::Test {
  static constexpr uint64_t kMs = 1'000'000;

  Transactions::BeginResult begin(uint32_t count, bool read_only = false, uint64_t now_ns = 0) {
    Transactions::BeginResult begun;
    const Status status = transactions().begin(session, usage, {count, read_only}, now_ns, begun);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return begun;
  }
  StatusCode begin_code(uint32_t count, bool read_only = false) {
    Transactions::BeginResult begun;
    return transactions().begin(session, usage, {count, read_only}, 0, begun).code();
  }
  /// Commits are seen, and on the disk, at once.
  Status complete(std::vector<Completion> outcomes) {
    accepted.clear();
    LOAM_RETURN_IF_ERROR(accept(outcomes));
    transactions().finish_commits(accepted, false);
    return ok_status();
  }
  Status accept(std::vector<Completion> outcomes, TransactionId lost = {}) {
    accepted.clear();
    refused.clear();
    return transactions().complete(session, usage, outcomes, lost, accepted, refused);
  }
  Transactions& transactions() {
    if (!made) made.emplace(options);
    return *made;
  }

  CoreOptions options;
  SessionId session{7};
  SessionUsage usage;
  std::vector<TransactionId> accepted, refused;
  std::optional<Transactions> made;
};

TEST_F(TransactionsTest, ReportsTheAgesOfTheOldestSnapshots) {
  const auto ages = [&](uint64_t now_ns) {
    Statistics statistics;
    transactions().report_ages(now_ns, statistics);
    return std::pair(statistics.oldest_snapshot_age_ns / kMs, statistics.oldest_writer_age_ns / kMs);
  };
  EXPECT_EQ(ages(5 * kMs), std::pair(uint64_t{0}, uint64_t{0})) << "no snapshot is open";
  const Transactions::BeginResult reader = begin(0, true, 10 * kMs);
  EXPECT_EQ(ages(15 * kMs), std::pair(uint64_t{5}, uint64_t{0})) << "no transaction may write";
  const Transactions::BeginResult writer = begin(1, false, 20 * kMs);
  ASSERT_TRUE(complete({{begin(1, false, 25 * kMs).first, true}}).ok()) << "a later snapshot sees more";
  const Transactions::BeginResult later = begin(1, false, 30 * kMs);
  EXPECT_EQ(ages(50 * kMs).first, 40u);
  EXPECT_GE(ages(50 * kMs).second, 30u) << "the snapshot of the first writer";
  transactions().release(session, usage, std::vector<uint64_t>{reader.snapshot_number});
  ASSERT_TRUE(complete({{writer.first, false}}).ok());
  EXPECT_EQ(ages(50 * kMs), std::pair(uint64_t{20}, uint64_t{20})) << "the snapshot of the last writer";
  ASSERT_TRUE(complete({{later.first, false}}).ok());
  EXPECT_EQ(ages(50 * kMs), std::pair(uint64_t{0}, uint64_t{0}));
}

TEST_F(TransactionsTest, AnUpgradableSnapshotGetsAnIdAboveAllThatItSees) {
  const Transactions::BeginResult other = begin(1);
  Transactions::BeginResult upgradable;
  ASSERT_TRUE(transactions().begin(session, usage, {0, false, true, {}}, 0, upgradable).ok());
  EXPECT_EQ(upgradable.first, TransactionId()) << "no id yet";
  const Snapshot snapshot = *upgradable.snapshot;
  ASSERT_TRUE(complete({{other.first, true}}).ok());
  Transactions::BeginResult upgraded;
  ASSERT_TRUE(
      transactions().begin(session, usage, {0, false, false, {upgradable.upgradable_number}}, 0, upgraded).ok());
  EXPECT_EQ(*upgraded.snapshot, snapshot) << "the transaction keeps its snapshot";
  EXPECT_FALSE(upgraded.snapshot->visible(Version(other.first.value))) << "so it conflicts with what came between";
  EXPECT_GT(upgraded.first, other.first);
  EXPECT_EQ(usage.open, 1u);
  // The snapshot is held by both: a publication covers it until both have let go.
  Publication publication;
  transactions().release(session, usage, std::vector<uint64_t>{upgradable.upgradable_number});
  transactions().publish(0, publication);
  EXPECT_TRUE(publication.covers(snapshot));
  ASSERT_TRUE(complete({{upgraded.first, false}}).ok());
  transactions().publish(0, publication);
  EXPECT_FALSE(publication.covers(snapshot));
  transactions().check_invariants();
}

TEST_F(TransactionsTest, OnlyUpgradableSnapshotsOfTheSessionAreUpgraded) {
  const Transactions::BeginResult reader = begin(0, true);
  Transactions::BeginResult begun;
  const auto code = [&](SessionId by, uint64_t number) {
    SessionUsage other;
    return transactions().begin(by, other, {1, false, false, {number}}, 0, begun).code();
  };
  EXPECT_EQ(code(session, reader.snapshot_number), StatusCode::kInvalidArgument) << "a read-only one";
  ASSERT_TRUE(transactions().begin(session, usage, {0, false, true, {}}, 0, begun).ok());
  const uint64_t number = begun.upgradable_number;
  EXPECT_EQ(code(SessionId(8), number), StatusCode::kInvalidArgument) << "another session's";
  EXPECT_EQ(code(session, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(session, number + 1), StatusCode::kInvalidArgument);
  transactions().release(session, usage, std::vector<uint64_t>{number});
  EXPECT_EQ(code(session, number), StatusCode::kInvalidArgument) << "a released one";
  EXPECT_EQ(transactions().last_id(), TransactionId()) << "all or nothing: no id was drawn";
  const std::vector<uint64_t> many(wire::kMaxBegins, 1);
  EXPECT_EQ(transactions().begin(session, usage, {1, false, false, many}, 0, begun).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TransactionsTest, StartsAboveTheIdsOfEarlierEpochs) {
  options.first_transaction = TransactionId(1'000);
  const Transactions::BeginResult begun = begin(2);
  EXPECT_EQ(begun.first, TransactionId(1'000));
  EXPECT_EQ(*begun.snapshot, Snapshot(Version(999)));
  EXPECT_EQ(begun.seen_by_all, Version(999));
}

TEST_F(TransactionsTest, RefusesTransactionsOfOtherSessions) {
  begin(1);
  SessionUsage other;
  const std::vector<Completion> outcomes = {{TransactionId(1), true}};
  const Status status = transactions().complete(SessionId(8), other, outcomes, {}, accepted, refused);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("another session"), std::string_view::npos);
}

TEST_F(TransactionsTest, CompletesAllOrNothing) {
  begin(3);
  EXPECT_EQ(complete({{TransactionId(1), true}, {TransactionId(9), true}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(complete({{TransactionId(1), true}, {TransactionId(1), true}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(complete({{TransactionId(0), true}}).code(), StatusCode::kInvalidArgument);
  transactions().check_invariants();
  EXPECT_EQ(usage.open, 3u);
  EXPECT_TRUE(complete({{TransactionId(1), true}, {TransactionId(3), false}}).ok());
  EXPECT_EQ(usage.open, 1u);
}

TEST_F(TransactionsTest, NeverChangesAnOutcome) {
  begin(3);
  ASSERT_TRUE(complete({{TransactionId(1), true}, {TransactionId(2), false}}).ok());
  for (const uint64_t id : {1u, 2u}) {
    for (const bool committed : {true, false}) {
      EXPECT_EQ(complete({{TransactionId(id), committed}}).code(), StatusCode::kInvalidArgument);
    }
  }
  ASSERT_TRUE(accept({{TransactionId(3), true}}).ok());
  const std::vector<TransactionId> waiting = accepted;
  EXPECT_EQ(accept({{TransactionId(3), false}}).code(), StatusCode::kInvalidArgument) << "it is in the commit log";
  EXPECT_EQ(accept({{TransactionId(3), true}}).code(), StatusCode::kInvalidArgument);
  transactions().check_invariants();
  transactions().finish_commits(waiting, false);
  EXPECT_EQ(transactions().base(), Version(3));
}

TEST_F(TransactionsTest, CommitBecomesVisibleWhenTheLogAcceptsIt) {
  begin(2);
  ASSERT_TRUE(accept({{TransactionId(2), true}, {TransactionId(1), false}}).ok());
  const std::vector<TransactionId> commit = accepted;
  EXPECT_EQ(commit, std::vector{TransactionId(2)});
  EXPECT_EQ(usage.open, 0u) << "its session is done with it";
  EXPECT_EQ(transactions().owner(TransactionId(2)), session);
  EXPECT_FALSE(begin(1).snapshot->visible(Version(2)));
  transactions().finish_commits(commit, true);
  EXPECT_EQ(transactions().owner(TransactionId(2)), SessionId());
  EXPECT_TRUE(begin(1).snapshot->visible(Version(2)));
  ASSERT_TRUE(complete({{TransactionId(3), false}}).ok());
  EXPECT_EQ(begin(1).seen_by_all, Version(1)) << "a power cut takes it back";
  Publication publication;
  transactions().publish(0, publication);
  EXPECT_FALSE(publication.later.visible(Version(2)));
  EXPECT_TRUE(publication.later.visible(Version(3)));
  transactions().flush(commit);
  EXPECT_TRUE(transactions().changed());
  transactions().publish(0, publication);
  EXPECT_TRUE(publication.later.visible(Version(2)));
  transactions().check_invariants();
}

TEST_F(TransactionsTest, RefusesCommitsUpToTheLastAcceptedLoss) {
  begin(4);
  ASSERT_TRUE(
      accept({{TransactionId(3), true}, {TransactionId(1), true}, {TransactionId(2), false}}, TransactionId(2)).ok());
  EXPECT_EQ(accepted, std::vector{TransactionId(3)});
  EXPECT_EQ(refused, std::vector{TransactionId(1)});
  transactions().finish_commits(accepted, false);
  EXPECT_EQ(usage.open, 2u) << "the refused one stays open until it is undone";
  EXPECT_FALSE(begin(1).snapshot->visible(Version(1)));
  ASSERT_TRUE(accept({{TransactionId(1), false}}, TransactionId(2)).ok());
  EXPECT_TRUE(begin(1).snapshot->visible(Version(1)));
  transactions().check_invariants();
}

TEST_F(TransactionsTest, ReleasesOnlyItsOwn) {
  const uint64_t number = begin(0, true).snapshot_number;
  SessionUsage other;
  transactions().release(SessionId(8), other, std::vector<uint64_t>{number});
  transactions().check_invariants();
  EXPECT_EQ(usage.snapshots, 1u);
  EXPECT_EQ(other.snapshots, 0u);
  Statistics statistics;
  transactions().report(statistics);
  EXPECT_EQ(statistics.read_only_snapshots, 1u);
}

TEST_F(TransactionsTest, LimitsBegins) {
  EXPECT_EQ(begin_code(0), StatusCode::kInvalidArgument);
  EXPECT_EQ(begin_code(wire::kMaxBegins + 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(begin_code(wire::kMaxBegins), StatusCode::kOk);
}

TEST_F(TransactionsTest, LimitsOpenTransactionsOfASession) {
  options.max_open_per_session = 4;
  begin(3);
  EXPECT_EQ(begin_code(2), StatusCode::kOverloaded);
  begin(1);
  EXPECT_EQ(begin_code(1), StatusCode::kOverloaded);
  ASSERT_TRUE(complete({{TransactionId(2), true}}).ok());
  EXPECT_EQ(begin(1).first, TransactionId(5)) << "a refused begin takes no id";
}

TEST_F(TransactionsTest, LimitsOpenTransactionsOfTheCluster) {
  options.max_open = 4;
  begin(3);
  EXPECT_EQ(begin_code(2), StatusCode::kOverloaded);
  EXPECT_EQ(begin_code(1), StatusCode::kOk);
}

TEST_F(TransactionsTest, LimitsCommitsThatAreNotOnTheDisk) {
  options.max_unflushed_commits = 3;
  begin(4);
  ASSERT_TRUE(accept({{TransactionId(1), true}, {TransactionId(2), true}}).ok());
  const std::vector<TransactionId> first = accepted;
  EXPECT_EQ(begin_code(1), StatusCode::kOk);
  ASSERT_TRUE(accept({{TransactionId(3), true}}).ok());
  EXPECT_EQ(begin_code(1), StatusCode::kOverloaded) << "three are not written";
  transactions().finish_commits(first, true);
  EXPECT_EQ(begin_code(1), StatusCode::kOverloaded) << "two are written and not flushed";
  EXPECT_EQ(begin_code(0, true), StatusCode::kOk) << "a reader adds none";
  transactions().flush(std::span(first).first(1));
  EXPECT_EQ(begin_code(1), StatusCode::kOk);
  transactions().check_invariants();
}

/// The disk stalls: more commits are not flushed than a snapshot can name.
TEST_F(TransactionsTest, APublicationNamesNoMoreUnflushedCommitsThanASnapshotMay) {
  options.max_open_per_session = SIZE_MAX;
  begin(1);  // stays open
  std::vector<TransactionId> unflushed;
  Publication publication, before;
  const auto commit = [&](uint64_t count) {
    std::vector<Completion> outcomes;
    for (uint64_t left = count; left > 0;) {
      const auto now = static_cast<uint32_t>(std::min<uint64_t>(left, wire::kMaxBegins));
      const TransactionId first = begin(now).first;
      for (uint32_t i = 0; i < now; ++i) outcomes.push_back({TransactionId(first.value + i), true});
      left -= now;
    }
    ASSERT_TRUE(accept(outcomes).ok());
    transactions().finish_commits(accepted, true);
    unflushed.insert(unflushed.end(), accepted.begin(), accepted.end());
  };
  commit(kMaxOpenIds / 2);
  transactions().publish(0, before);
  commit(kMaxOpenIds / 2);
  ASSERT_TRUE(complete({{begin(1).first, false}}).ok());
  commit(10);
  for (int i = 0; i < 3; ++i) {
    transactions().publish(0, publication);
    ASSERT_TRUE(publication.check().ok());
    EXPECT_TRUE(publication.later.sees_all_of(before.later)) << "no publication takes back what one before has said";
    EXPECT_TRUE(publication.covers(*begin(1).snapshot));
    for (const TransactionId id : unflushed) ASSERT_FALSE(publication.later.visible(Version(id.value)));
    before = publication;
    transactions().flush(std::span(unflushed).first(5));
    unflushed.erase(unflushed.begin(), unflushed.begin() + 5);
  }
  transactions().flush(unflushed);
  transactions().publish(0, publication);
  EXPECT_EQ(publication.later.open().size(), 1u);
  EXPECT_TRUE(publication.later.visible(Version(unflushed.back().value)));
  transactions().check_invariants();
}

TEST_F(TransactionsTest, LimitsReadOnlySnapshots) {
  options.max_snapshots_per_session = 2;
  const uint64_t number = begin(0, true).snapshot_number;
  begin(1, true);
  EXPECT_EQ(begin_code(0, true), StatusCode::kOverloaded);
  EXPECT_EQ(begin_code(1, true), StatusCode::kOverloaded);
  EXPECT_EQ(begin_code(1), StatusCode::kOk);
  transactions().release(session, usage, std::vector<uint64_t>{number});
  EXPECT_EQ(begin_code(0, true), StatusCode::kOk);
}

TEST_F(TransactionsTest, LimitsTheMemoryOfSnapshots) {
  options.max_snapshot_bytes = 10 * sizeof(Version);
  begin(8);
  ASSERT_TRUE(complete({{TransactionId(8), true}}).ok());
  const uint64_t number = begin(0, true).snapshot_number;  // seven open ids
  begin(1);
  ASSERT_TRUE(complete({{TransactionId(9), true}}).ok());
  EXPECT_EQ(begin_code(0, true), StatusCode::kOverloaded);
  transactions().check_invariants();
  transactions().release(session, usage, std::vector<uint64_t>{number});
  EXPECT_EQ(begin_code(0, true), StatusCode::kOk) << "released memory is used again";
  transactions().check_invariants();
}

TEST_F(TransactionsTest, SnapshotsStaySmallWhileOneTransactionStaysOpen) {
  // 64 clients with one transaction each; the first transaction of all stays open for a million others.
  constexpr size_t kClients = 64;
  Random random(testing::test_seed(1));
  begin(1);
  std::vector<uint64_t> open;
  std::vector<size_t> sizes;
  for (int i = 0; i < 1'000'000; ++i) {
    const Transactions::BeginResult begun = begin(1);
    open.push_back(begun.first.value);
    if (i % 64 == 0) {
      Buffer bytes;
      ByteWriter writer(bytes);
      begun.snapshot->encode(writer);
      sizes.push_back(bytes.size());
    }
    if (open.size() < kClients) continue;
    std::swap(open[random.below(open.size())], open.back());
    const TransactionId id(open.back());
    open.pop_back();
    ASSERT_TRUE(complete({{id, true}}).ok());
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_LE(sizes[sizes.size() * 99 / 100], 256u);
  Statistics statistics;
  transactions().report(statistics);
  EXPECT_LE(statistics.snapshot_memory_bytes, 256u * 1024);
}

TEST_F(TransactionsTest, PublishesTheYoungAsAFloorAndTheOldExactly) {
  options.young_ns = 10 * kMs;
  Publication publication;
  begin(2, false, 0);
  ASSERT_TRUE(complete({{TransactionId(1), true}}).ok());
  const uint64_t number = begin(0, true, 1 * kMs).snapshot_number;
  ASSERT_TRUE(complete({{TransactionId(2), true}}).ok());
  begin(1, false, 2 * kMs);
  ASSERT_TRUE(complete({{TransactionId(3), true}}).ok());
  transactions().publish(5 * kMs, publication);
  EXPECT_TRUE(publication.young_open);
  EXPECT_EQ(publication.floor, Version(1));
  EXPECT_TRUE(publication.old.empty());
  EXPECT_FALSE(transactions().changed());
  EXPECT_TRUE(transactions().floor_may_rise());
  transactions().publish(11 * kMs, publication);
  EXPECT_FALSE(publication.young_open);
  ASSERT_EQ(publication.old.size(), 1u);
  EXPECT_FALSE(publication.old[0].read_write);
  EXPECT_EQ(publication.old[0].snapshot, Snapshot(Version(1)));
  EXPECT_TRUE(publication.garbage(Version(2), Version(3))) << "between two snapshots";
  transactions().release(session, usage, std::vector<uint64_t>{number});
  transactions().publish(12 * kMs, publication);
  EXPECT_TRUE(publication.old.empty());
  EXPECT_TRUE(publication.garbage(Version(1), Version(2)));
}

TEST_F(TransactionsTest, PublicationsAreBounded) {
  options.young_ns = 0;
  options.max_publication_bytes = 2'000;
  for (uint64_t id = 1; id <= 1'000; ++id) {
    begin(1, true, id * kMs);  // a different snapshot each, and all stay open
    if (id > 100) {
      ASSERT_TRUE(complete({{TransactionId(id - 100), true}}).ok());
    }
  }
  Publication publication;
  transactions().publish(5'000 * kMs, publication);
  EXPECT_TRUE(publication.check().ok());
  EXPECT_TRUE(publication.young_open) << "the floor stands for the rest";
  EXPECT_GT(publication.old.size(), 5u);
  Buffer encoded;
  ByteWriter writer(encoded);
  publication.encode(writer);
  EXPECT_LE(encoded.size(), 2'000u + 2 * 100 + 64) << "the limit, `later` and the rest";
}

TEST_F(TransactionsTest, AnOldOpenTransactionDoesNotHoldTheFloorDown) {
  options.young_ns = 10 * kMs;
  Publication publication;
  begin(1, false, 0);  // stays open
  for (uint64_t id = 2; id < 50; ++id) {
    const uint64_t now = id * 2 * kMs;
    begin(1, false, now);
    ASSERT_TRUE(complete({{TransactionId(id), true}}).ok());
    if (id % 2 == 0) transactions().publish(now, publication);
  }
  begin(1, false, 100 * kMs);  // id 50: a young snapshot whose base is held down to 0 by id 1
  ASSERT_TRUE(complete({{TransactionId(50), true}}).ok());
  begin(1, false, 101 * kMs);
  begin(1, false, 101 * kMs);
  ASSERT_TRUE(complete({{TransactionId(52), true}}).ok());
  transactions().publish(102 * kMs, publication);
  EXPECT_FALSE(publication.young_open) << "its base says nothing: it is listed exactly";
  EXPECT_TRUE(publication.garbage(Version(20), Version(21)));
  EXPECT_EQ(publication.seen_by_all(), Version(0));
}

}  // namespace
}  // namespace loam::commit
