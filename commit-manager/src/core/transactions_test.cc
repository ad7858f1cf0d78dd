#include "commit-manager/src/core/transactions.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using Outcome = wire::Complete::Outcome;

constexpr uint64_t kMs = 1'000'000;

/// Sets of numbers instead of bases and bitmaps: slow and obviously right.
struct Model {
  struct OpenSnapshot {
    std::set<uint64_t> sees;
    Snapshot given;
    bool read_write = false;
  };
  struct Client {
    SessionId id;
    SessionLoad load;
    std::map<uint64_t, OpenSnapshot> transactions;  // open ones
    std::map<uint64_t, OpenSnapshot> readers;       // registered, by number; read_write: upgradable
    std::map<uint64_t, bool> complete;              // not cleared
  };

  uint64_t last_id = 0;
  std::set<uint64_t> finished;
  std::vector<Client> clients;
  std::map<uint64_t, OpenSnapshot> orphans;  // open ones of clients that were lost
  std::map<uint64_t, bool> orphans_complete;
  std::map<SessionId, std::map<uint64_t, OpenSnapshot>> unfenced;  // readers of clients that were lost

  void for_each_open(const std::function<void(const OpenSnapshot&)>& visit) const {
    for (const Client& client : clients) {
      for (const auto& [id, snapshot] : client.transactions) visit(snapshot);
      for (const auto& [number, snapshot] : client.readers) visit(snapshot);
    }
    for (const auto& [id, snapshot] : orphans) visit(snapshot);
    for (const auto& [session, readers] : unfenced) {
      for (const auto& [number, snapshot] : readers) visit(snapshot);
    }
  }
};

void expect_sees(const Snapshot& snapshot, const std::set<uint64_t>& sees, uint64_t last_id) {
  for (uint64_t id = 1; id <= last_id + 2; ++id) {
    ASSERT_EQ(snapshot.visible(Version(id)), sees.contains(id)) << id << " in " << snapshot.to_string();
  }
}

class TransactionsModelTest : public ::testing::TestWithParam<int> {
 protected:
  static CoreOptions options(Random& random) {
    CoreOptions options;
    options.young_ns = random.one_in(3) ? 0 : 20 * kMs;
    if (random.one_in(3)) options.max_publication_bytes = 40;  // only a few are listed exactly
    return options;
  }

  void begin(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    const auto count = static_cast<uint32_t>(random.below(5));
    wire::Begin asked{count, random.one_in(4), random.one_in(4), {}};
    for (const auto& [number, snapshot] : client.readers) {
      if (snapshot.read_write && random.one_in(3)) asked.upgrades.push_back(number);
    }
    const bool upgrades_only = count == 0 && !asked.read_only && !asked.upgradable;
    if (upgrades_only && asked.upgrades.empty()) asked.read_only = true;
    Transactions::Begun begun;
    ASSERT_TRUE(transactions->begin(client.id, client.load, asked, now_ns, begun).ok());
    if (!upgrades_only || asked.read_only) expect_sees(*begun.snapshot, model.finished, model.last_id);
    const Model::OpenSnapshot open{model.finished, *begun.snapshot, true};
    if (count + asked.upgrades.size() > 0) {
      ASSERT_EQ(begun.first.value, model.last_id + 1) << "ids are dense (R12)";
      ASSERT_GT(begun.first.value, begun.snapshot->high().value);
    }
    for (uint32_t i = 0; i < count; ++i) client.transactions.emplace(++model.last_id, open);
    for (const uint64_t number : asked.upgrades) {
      const Model::OpenSnapshot& begun_with = client.readers.at(number);
      ASSERT_GT(model.last_id + 1, begun_with.given.high().value);
      client.transactions.emplace(++model.last_id, begun_with);
    }
    ASSERT_EQ(begun.snapshot_number != 0, asked.read_only);
    ASSERT_EQ(begun.upgradable_number != 0, asked.upgradable);
    if (asked.read_only) {
      ASSERT_TRUE(numbers.insert(begun.snapshot_number).second);
      client.readers.emplace(begun.snapshot_number, Model::OpenSnapshot{model.finished, *begun.snapshot, false});
    }
    if (asked.upgradable) {
      ASSERT_TRUE(numbers.insert(begun.upgradable_number).second);
      client.readers.emplace(begun.upgradable_number, Model::OpenSnapshot{model.finished, *begun.snapshot, true});
    }
    if (published) {
      ASSERT_TRUE(publication.covers(*begun.snapshot)) << "what begins after a publication is covered by it (R13)";
    }
    model.for_each_open([&](const Model::OpenSnapshot& other) {
      ASSERT_LE(begun.seen_by_all, other.given.base()) << "every open snapshot sees up to the mark (R27)";
    });
  }

  void complete(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    std::vector<Outcome> outcomes;
    for (const auto& [id, snapshot] : client.transactions) {
      if (random.one_in(2)) outcomes.push_back({TransactionId(id), random.one_in(2)});
    }
    for (const auto& [id, committed] : client.complete) {
      if (random.one_in(8)) outcomes.push_back({TransactionId(id), committed});  // again
    }
    std::shuffle(outcomes.begin(), outcomes.end(), random);
    ASSERT_TRUE(transactions->complete(client.id, client.load, outcomes).ok());
    for (const Outcome& outcome : outcomes) {
      client.transactions.erase(outcome.id.value);
      client.complete.emplace(outcome.id.value, outcome.committed);
      model.finished.insert(outcome.id.value);
    }
  }

  void clear_and_release(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    std::vector<TransactionId> ids;
    std::erase_if(client.complete, [&](const auto& entry) {
      if (!random.one_in(2)) return false;
      ids.emplace_back(entry.first);
      return true;
    });
    ids.emplace_back(0);
    ids.emplace_back(model.last_id + 7);
    if (!client.transactions.empty()) ids.emplace_back(client.transactions.begin()->first);  // open: passed over
    transactions->clear(client.id, client.load, ids);
    std::vector<uint64_t> released = {0, 1u << 30};
    std::erase_if(client.readers, [&](const auto& entry) {
      if (!random.one_in(2)) return false;
      released.push_back(entry.first);
      return true;
    });
    transactions->release(client.id, client.load, released);
    transactions->release(client.id, client.load, released);
  }

  void lose_clients(Random& random) {
    std::vector<SessionId> lost;
    std::set<uint64_t> open, complete;
    for (Model::Client& client : model.clients) {
      if (!random.one_in(3)) continue;
      lost.push_back(client.id);
      for (const auto& [id, snapshot] : client.transactions) open.insert(id);
      for (const auto& [id, committed] : client.complete) complete.insert(id);
      model.orphans.merge(client.transactions);
      model.orphans_complete.merge(client.complete);
      model.unfenced[client.id] = std::move(client.readers);
      client = {};
      client.id = SessionId(++last_session);
    }
    std::sort(lost.begin(), lost.end());
    transactions->end_sessions(lost, [&](SessionId session, TransactionId id, bool is_open) {
      EXPECT_TRUE(std::binary_search(lost.begin(), lost.end(), session));
      EXPECT_EQ((is_open ? open : complete).erase(id.value), 1u) << id.value;
    });
    EXPECT_TRUE(open.empty() && complete.empty()) << "every transaction of a lost client is an orphan";
  }

  void fence(Random& random) {
    std::vector<SessionId> fenced;
    std::erase_if(model.unfenced, [&](const auto& session) {
      if (!random.one_in(2)) return false;
      fenced.push_back(session.first);
      return true;
    });
    transactions->drop_snapshots(fenced);
  }

  void recover(Random& random) {
    const TransactionId any(random.between(1, model.last_id + 2));
    const bool orphaned = model.orphans.contains(any.value);
    const bool committed = random.one_in(2);
    ASSERT_EQ(transactions->orphan_of(any).value != 0, orphaned || model.orphans_complete.contains(any.value));
    ASSERT_EQ(transactions->recover(any, committed), orphaned) << "nobody else's transaction is completed (R8)";
    if (orphaned) {
      model.orphans.erase(any.value);
      model.finished.insert(any.value);
      model.orphans_complete.emplace(any.value, committed);
      ASSERT_EQ(transactions->outcome(any), committed ? wire::Outcome::kCommitted : wire::Outcome::kAborted);
    }
    const TransactionId other(random.between(1, model.last_id + 2));
    const auto at = model.orphans_complete.find(other.value);
    const std::optional<bool> outcome = transactions->forget_orphan(other);
    ASSERT_EQ(outcome.has_value(), at != model.orphans_complete.end());
    if (!outcome.has_value()) return;
    ASSERT_EQ(*outcome, at->second);
    model.orphans_complete.erase(at);
    ASSERT_EQ(transactions->outcome(other), wire::Outcome::kForgotten);
  }

  void keep_only(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    const uint64_t newest = random.one_in(3) ? UINT64_MAX : random.below(numbers.size() + 2);
    std::vector<uint64_t> held;
    std::erase_if(client.readers, [&](const auto& entry) {
      const bool kept = random.one_in(2);
      if (kept) held.push_back(entry.first);
      return !kept && entry.first <= newest;
    });
    transactions->keep_only(client.id, client.load, newest, held);
    ASSERT_EQ(client.load.snapshots, client.readers.size());
  }

  void publish(Random& random) {
    transactions->publish(now_ns, publication);
    published = true;
    ASSERT_TRUE(publication.check().ok()) << publication.check().to_string();
    ASSERT_EQ(publication.number, ++publications);
    expect_sees(publication.later, model.finished, model.last_id);
    model.for_each_open([&](const Model::OpenSnapshot& open) { ASSERT_TRUE(publication.covers(open.given)); });
    for (int i = 0; i < 60; ++i) {
      const uint64_t from = random.between(1, model.last_id + 1);
      const uint64_t to = random.between(from + 1, model.last_id + 2);
      bool needed = !model.finished.contains(to);
      bool tombstone_needed = !model.finished.contains(from);
      model.for_each_open([&](const Model::OpenSnapshot& open) {
        needed |= open.sees.contains(from) && !open.sees.contains(to);
        tombstone_needed |= open.read_write && !open.sees.contains(from);
      });
      const bool garbage = publication.garbage(Version(from), Version(to));
      ASSERT_FALSE(garbage && needed) << "a version that an open or later snapshot sees: " << from << ", " << to;
      if (!publication.young_open) {
        ASSERT_EQ(garbage, !needed) << from << ", " << to;
      }
      ASSERT_FALSE(publication.tombstone_garbage(Version(from)) && tombstone_needed);
    }
  }

  uint64_t now_ns = 1'000 * kMs;
  Model model;
  std::set<uint64_t> numbers;
  std::unique_ptr<Transactions> transactions;
  Publication publication;
  bool published = false;
  uint64_t publications = 0;
  uint64_t last_session = 0;
};

TEST_P(TransactionsModelTest, AgreesWithSets) {
  const uint64_t seed = testing::test_seed(static_cast<uint64_t>(GetParam()));
  Random random(seed);
  const CoreOptions chosen = options(random);
  transactions = std::make_unique<Transactions>(chosen);
  for (int i = 0; i < 5; ++i) model.clients.push_back({SessionId(++last_session), {}, {}, {}, {}});
  for (int step = 0; step < 400 && !HasFatalFailure(); ++step) {
    now_ns += random.below(5 * kMs);
    const uint64_t action = random.below(20);
    if (action < 8) {
      begin(random);
    } else if (action < 14) {
      complete(random);
    } else if (action < 17) {
      clear_and_release(random);
    } else if (action < 19) {
      publish(random);
    } else if (random.one_in(4)) {
      lose_clients(random);
    } else {
      keep_only(random);
      fence(random);
      for (int i = 0; i < 10; ++i) recover(random);
    }
    transactions->check_invariants();
  }
  Statistics statistics;
  transactions->report(statistics);
  EXPECT_EQ(statistics.last_transaction, model.last_id);
  EXPECT_EQ(statistics.commits + statistics.aborts, model.finished.size());
  EXPECT_EQ(statistics.orphaned_open, model.orphans.size());
  EXPECT_EQ(transactions->orphans().size(), model.orphans.size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, TransactionsModelTest, ::testing::Range(1, 61));

// ---- single rules ---------------------------------------------------------------------------------------------------

struct TransactionsTest : ::testing::Test {
  Transactions::Begun begin(uint32_t count, bool read_only = false, uint64_t now_ns = 0) {
    Transactions::Begun begun;
    const Status status = transactions().begin(session, load, {count, read_only}, now_ns, begun);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return begun;
  }
  StatusCode begin_code(uint32_t count, bool read_only = false) {
    Transactions::Begun begun;
    return transactions().begin(session, load, {count, read_only}, 0, begun).code();
  }
  Status complete(std::vector<Outcome> outcomes) { return transactions().complete(session, load, outcomes); }
  Transactions& transactions() {
    if (!made) made.emplace(options);
    return *made;
  }

  CoreOptions options;
  SessionId session{7};
  SessionLoad load;
  std::optional<Transactions> made;
};

TEST_F(TransactionsTest, AnUpgradableSnapshotGetsAnIdAboveAllThatItSees) {
  const Transactions::Begun other = begin(1);
  Transactions::Begun upgradable;
  ASSERT_TRUE(transactions().begin(session, load, {0, false, true, {}}, 0, upgradable).ok());
  EXPECT_EQ(upgradable.first, TransactionId()) << "no id yet";
  const Snapshot snapshot = *upgradable.snapshot;
  ASSERT_TRUE(complete({{other.first, true}}).ok());
  Transactions::Begun upgraded;
  ASSERT_TRUE(transactions().begin(session, load, {0, false, false, {upgradable.upgradable_number}}, 0, upgraded).ok());
  EXPECT_EQ(*upgraded.snapshot, snapshot) << "the transaction keeps its snapshot";
  EXPECT_FALSE(upgraded.snapshot->visible(Version(other.first.value))) << "so it conflicts with what came between";
  EXPECT_GT(upgraded.first, other.first);
  EXPECT_EQ(load.open, 1u);
  // The snapshot is held by both: a publication covers it until both have let go.
  Publication publication;
  transactions().release(session, load, std::vector<uint64_t>{upgradable.upgradable_number});
  transactions().publish(0, publication);
  EXPECT_TRUE(publication.covers(snapshot));
  ASSERT_TRUE(complete({{upgraded.first, false}}).ok());
  transactions().publish(0, publication);
  EXPECT_FALSE(publication.covers(snapshot));
  transactions().check_invariants();
}

TEST_F(TransactionsTest, OnlyUpgradableSnapshotsOfTheSessionAreUpgraded) {
  const Transactions::Begun reader = begin(0, true);
  Transactions::Begun begun;
  const auto code = [&](SessionId by, uint64_t number) {
    SessionLoad other;
    return transactions().begin(by, other, {1, false, false, {number}}, 0, begun).code();
  };
  EXPECT_EQ(code(session, reader.snapshot_number), StatusCode::kInvalidArgument) << "a read-only one";
  ASSERT_TRUE(transactions().begin(session, load, {0, false, true, {}}, 0, begun).ok());
  const uint64_t number = begun.upgradable_number;
  EXPECT_EQ(code(SessionId(8), number), StatusCode::kInvalidArgument) << "another session's";
  EXPECT_EQ(code(session, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(session, number + 1), StatusCode::kInvalidArgument);
  transactions().release(session, load, std::vector<uint64_t>{number});
  EXPECT_EQ(code(session, number), StatusCode::kInvalidArgument) << "a released one";
  EXPECT_EQ(transactions().last_id(), TransactionId()) << "all or nothing: no id was drawn";
  const std::vector<uint64_t> many(wire::kMaxBegins, 1);
  EXPECT_EQ(transactions().begin(session, load, {1, false, false, many}, 0, begun).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TransactionsTest, StartsAboveTheIdsOfEarlierEpochs) {
  options.first_transaction = TransactionId(1'000);
  const Transactions::Begun begun = begin(2);
  EXPECT_EQ(begun.first, TransactionId(1'000));
  EXPECT_EQ(*begun.snapshot, Snapshot(Version(999)));
  EXPECT_EQ(begun.seen_by_all, Version(999));
}

TEST_F(TransactionsTest, RefusesWhatOthersBegan) {
  begin(1);
  SessionLoad other;
  const Status status = transactions().complete(SessionId(8), other, std::vector<Outcome>{{TransactionId(1), true}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("another session"), std::string_view::npos);
}

TEST_F(TransactionsTest, CompletesAllOrNothing) {
  begin(3);
  EXPECT_EQ(complete({{TransactionId(1), true}, {TransactionId(9), true}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(complete({{TransactionId(1), true}, {TransactionId(1), true}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(complete({{TransactionId(0), true}}).code(), StatusCode::kInvalidArgument);
  transactions().check_invariants();
  EXPECT_EQ(load.open, 3u);
  EXPECT_TRUE(complete({{TransactionId(1), true}, {TransactionId(3), false}}).ok());
  EXPECT_EQ(load.open, 1u);
  EXPECT_EQ(load.uncleared, 2u);
}

TEST_F(TransactionsTest, NeverChangesAnOutcome) {
  begin(2);
  ASSERT_TRUE(complete({{TransactionId(1), true}, {TransactionId(2), false}}).ok());
  EXPECT_TRUE(complete({{TransactionId(1), true}, {TransactionId(2), false}}).ok()) << "repeating is harmless";
  EXPECT_EQ(complete({{TransactionId(1), false}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(complete({{TransactionId(2), true}}).code(), StatusCode::kInvalidArgument);
  transactions().clear(session, load, std::vector<TransactionId>{TransactionId(1)});
  EXPECT_EQ(complete({{TransactionId(1), true}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(load.uncleared, 1u);
}

TEST_F(TransactionsTest, ClearsOnlyItsOwn) {
  begin(1);
  ASSERT_TRUE(complete({{TransactionId(1), true}}).ok());
  SessionLoad other;
  transactions().clear(SessionId(8), other, std::vector<TransactionId>{TransactionId(1)});
  EXPECT_EQ(load.uncleared, 1u);
  EXPECT_EQ(other.uncleared, 0u);
}

TEST_F(TransactionsTest, ReleasesOnlyItsOwn) {
  const uint64_t number = begin(0, true).snapshot_number;
  SessionLoad other;
  transactions().release(SessionId(8), other, std::vector<uint64_t>{number});
  transactions().check_invariants();
  EXPECT_EQ(load.snapshots, 1u);
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

TEST_F(TransactionsTest, LimitsUnclearedTransactions) {
  options.max_uncleared_per_session = 4;
  begin(4);
  ASSERT_TRUE(complete({{TransactionId(1), true}, {TransactionId(2), true}}).ok());
  EXPECT_EQ(begin_code(1), StatusCode::kOverloaded);
  transactions().clear(session, load, std::vector<TransactionId>{TransactionId(1)});
  EXPECT_EQ(begin_code(1), StatusCode::kOk);
}

TEST_F(TransactionsTest, LimitsWhatTheClusterRemembers) {
  options.max_transactions = 4;
  begin(4);
  transactions().end_sessions(std::vector<SessionId>{session}, [](SessionId, TransactionId, bool) {});
  EXPECT_EQ(begin_code(1), StatusCode::kOverloaded) << "orphans count";
}

TEST_F(TransactionsTest, LimitsReadOnlySnapshots) {
  options.max_snapshots_per_session = 2;
  const uint64_t number = begin(0, true).snapshot_number;
  begin(1, true);
  EXPECT_EQ(begin_code(0, true), StatusCode::kOverloaded);
  EXPECT_EQ(begin_code(1, true), StatusCode::kOverloaded);
  EXPECT_EQ(begin_code(1), StatusCode::kOk);
  transactions().release(session, load, std::vector<uint64_t>{number});
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
  transactions().release(session, load, std::vector<uint64_t>{number});
  EXPECT_EQ(begin_code(0, true), StatusCode::kOk) << "what was released is used again";
  transactions().check_invariants();
}

TEST_F(TransactionsTest, DescriptorsStaySmallWhileOneTransactionStaysOpen) {
  // 64 clients with one transaction each; the first transaction of all stays open for a million others.
  constexpr size_t kClients = 64;
  Random random(testing::test_seed(1));
  begin(1);
  std::vector<uint64_t> open;
  std::vector<size_t> sizes;
  for (int i = 0; i < 1'000'000; ++i) {
    const Transactions::Begun begun = begin(1);
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
    transactions().clear(session, load, std::vector<TransactionId>{id});
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
  transactions().release(session, load, std::vector<uint64_t>{number});
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
