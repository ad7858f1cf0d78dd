// Compares transactions, snapshots and publications with plain sets of numbers, over random operations of clients.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/core/transactions.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using Completion = wire::Complete::Completion;

/// The model: sets of numbers instead of bases and bitmaps, slow and obviously right.
struct Model {
  struct OpenSnapshot {
    std::set<uint64_t> sees;
    Snapshot given;
    bool read_write = false;
  };
  struct Client {
    SessionId id;
    SessionUsage usage;
    std::map<uint64_t, OpenSnapshot> transactions;  // open ones
    std::map<uint64_t, OpenSnapshot> readers;       // registered, by number; read_write: upgradable
  };

  uint64_t last_id = 0;
  std::set<uint64_t> finished;
  std::set<uint64_t> unflushed;  // of finished: a power cut takes them back
  std::vector<Client> clients;
  std::map<uint64_t, OpenSnapshot> orphans;                        // open ones of clients that were lost
  std::vector<std::pair<uint64_t, OpenSnapshot>> accepted;         // commits that are not visible yet, in their order
  std::map<uint64_t, SessionId> owners;                            // of accepted ones
  std::map<SessionId, std::map<uint64_t, OpenSnapshot>> unfenced;  // readers of clients that were lost

  /// The versions that every later snapshot sees, even after a power cut.
  std::set<uint64_t> durable() const {
    std::set<uint64_t> ids;
    std::set_difference(finished.begin(), finished.end(), unflushed.begin(), unflushed.end(),
                        std::inserter(ids, ids.end()));
    return ids;
  }

  void for_each_open(const std::function<void(const OpenSnapshot&)>& visit) const {
    for (const Client& client : clients) {
      for (const auto& [id, snapshot] : client.transactions) visit(snapshot);
      for (const auto& [number, snapshot] : client.readers) visit(snapshot);
    }
    for (const auto& [id, snapshot] : orphans) visit(snapshot);
    for (const auto& [id, snapshot] : accepted) visit(snapshot);
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
  static constexpr uint64_t kMs = 1'000'000;

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
    Transactions::BeginResult begun;
    ASSERT_TRUE(transactions->begin(client.id, client.usage, asked, now_ns, begun).ok());
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
    uint64_t seen = 0;  // by everybody, for good
    for (const std::set<uint64_t> durable = model.durable(); durable.contains(seen + 1);) ++seen;
    model.for_each_open([&](const Model::OpenSnapshot& other) { seen = std::min(seen, other.given.base().value); });
    ASSERT_EQ(begun.seen_by_all, Version(seen)) << "every open and later snapshot sees up to the mark (R27)";
  }

  void complete(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    std::vector<Completion> outcomes;
    for (const auto& [id, snapshot] : client.transactions) {
      if (random.one_in(2)) outcomes.push_back({TransactionId(id), random.one_in(2)});
    }
    std::shuffle(outcomes.begin(), outcomes.end(), random);
    const TransactionId lost(random.one_in(4) ? random.below(model.last_id + 1) : 0);
    std::vector<TransactionId> accepted, refused, expect_accepted, expect_refused;
    const SessionUsage before = client.usage;
    if (random.one_in(4)) {  // one that may not be completed here
      std::vector<Completion> bad = outcomes;
      const TransactionId id(random.below(model.last_id + 3));
      if (!client.transactions.contains(id.value) || std::ranges::count(bad, id, &Completion::id) != 0) {
        bad.insert(bad.begin() + static_cast<ptrdiff_t>(random.below(bad.size() + 1)), {id, random.one_in(2)});
        ASSERT_EQ(transactions->complete(client.id, client.usage, bad, lost, accepted, refused).code(),
                  StatusCode::kInvalidArgument);
        ASSERT_TRUE(accepted.empty() && refused.empty() && client.usage.open == before.open);
      }
    }
    ASSERT_TRUE(transactions->complete(client.id, client.usage, outcomes, lost, accepted, refused).ok());
    for (const Completion& outcome : outcomes) {
      if (outcome.committed && outcome.id <= lost) {
        expect_refused.push_back(outcome.id);
        continue;
      }
      const auto at = client.transactions.find(outcome.id.value);
      if (outcome.committed) {
        expect_accepted.push_back(outcome.id);
        model.accepted.emplace_back(outcome.id.value, at->second);
        model.owners[outcome.id.value] = client.id;
      } else {
        model.finished.insert(outcome.id.value);
      }
      client.transactions.erase(at);
    }
    ASSERT_EQ(accepted, expect_accepted);
    ASSERT_EQ(refused, expect_refused) << "they stay open (R9)";
    ASSERT_EQ(client.usage.open, client.transactions.size());
  }

  /// Lets the commit log accept some more commits and flush a prefix of them.
  void accept(Random& random) {
    const size_t count = random.below(model.accepted.size() + 1);
    std::vector<TransactionId> ids;
    for (size_t i = 0; i < count; ++i) {
      const TransactionId id(model.accepted[i].first);
      ASSERT_EQ(transactions->owner(id), model.owners.at(id.value));
      ids.push_back(id);
    }
    const size_t on_disk = model.unflushed.empty() ? random.below(count + 1) : 0;
    const std::span<const TransactionId> all(ids);
    transactions->finish_commits(all.first(on_disk), false);
    transactions->finish_commits(all.subspan(on_disk), true);
    model.accepted.erase(model.accepted.begin(), model.accepted.begin() + static_cast<ptrdiff_t>(count));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(transactions->owner(ids[i]), SessionId());
      model.finished.insert(ids[i].value);
      if (i >= on_disk) {
        model.unflushed.insert(ids[i].value);
        flush_order.push_back(ids[i]);
      }
    }
  }

  void flush(Random& random) {
    const size_t count = random.below(flush_order.size() + 1);
    transactions->flush(std::span(flush_order).first(count));
    for (size_t i = 0; i < count; ++i) model.unflushed.erase(flush_order[i].value);
    flush_order.erase(flush_order.begin(), flush_order.begin() + static_cast<ptrdiff_t>(count));
    ASSERT_EQ(transactions->unflushed(), model.unflushed.size());
  }

  void release(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    std::vector<uint64_t> released = {0, 1u << 30};
    std::erase_if(client.readers, [&](const auto& entry) {
      if (!random.one_in(2)) return false;
      released.push_back(entry.first);
      return true;
    });
    transactions->release(client.id, client.usage, released);
    transactions->release(client.id, client.usage, released);
  }

  void lose_clients(Random& random) {
    std::vector<SessionId> lost;
    std::set<uint64_t> open;
    for (Model::Client& client : model.clients) {
      if (!random.one_in(3)) continue;
      lost.push_back(client.id);
      for (const auto& [id, snapshot] : client.transactions) open.insert(id);
      model.orphans.merge(client.transactions);
      model.unfenced[client.id] = std::move(client.readers);
      client = {};
      client.id = SessionId(++last_session);
    }
    std::sort(lost.begin(), lost.end());
    transactions->end_sessions(lost, [&](SessionId session, TransactionId id) {
      EXPECT_TRUE(std::binary_search(lost.begin(), lost.end(), session));
      EXPECT_EQ(open.erase(id.value), 1u) << id.value;
    });
    EXPECT_TRUE(open.empty()) << "every open transaction of a lost client is an orphan, and accepted commits are not";
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
    std::vector<TransactionId> undone;
    std::erase_if(model.orphans, [&](const auto& orphan) {
      if (!random.one_in(2)) return false;
      undone.emplace_back(orphan.first);
      return true;
    });
    for (const TransactionId id : undone) {
      ASSERT_EQ(transactions->owner(id), SessionId()) << "the transaction has no owner";
      model.finished.insert(id.value);
    }
    transactions->abort_orphans(undone);
  }

  void release_all_except(Random& random) {
    Model::Client& client = model.clients[random.below(model.clients.size())];
    const uint64_t newest = random.one_in(3) ? UINT64_MAX : random.below(numbers.size() + 2);
    std::vector<uint64_t> held;
    std::erase_if(client.readers, [&](const auto& entry) {
      const bool kept = random.one_in(2);
      if (kept) held.push_back(entry.first);
      return !kept && entry.first <= newest;
    });
    transactions->release_all_except(client.id, client.usage, newest, held);
    ASSERT_EQ(client.usage.snapshots, client.readers.size());
  }

  void publish(Random& random) {
    transactions->publish(now_ns, publication);
    published = true;
    ASSERT_TRUE(publication.check().ok()) << publication.check().to_string();
    ASSERT_EQ(publication.number, ++publications);
    const std::set<uint64_t> durable = model.durable();
    expect_sees(publication.later, durable, model.last_id);
    model.for_each_open([&](const Model::OpenSnapshot& open) { ASSERT_TRUE(publication.covers(open.given)); });
    for (int i = 0; i < 60; ++i) {
      const uint64_t from = random.between(1, model.last_id + 1);
      const uint64_t to = random.between(from + 1, model.last_id + 2);
      bool needed = !durable.contains(to);
      bool tombstone_needed = !durable.contains(from);
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
  std::vector<TransactionId> flush_order;
  uint64_t publications = 0;
  uint64_t last_session = 0;
};

TEST_P(TransactionsModelTest, AgreesWithSets) {
  const uint64_t seed = testing::test_seed(static_cast<uint64_t>(GetParam()));
  Random random(seed);
  const CoreOptions chosen = options(random);
  transactions = std::make_unique<Transactions>(chosen);
  for (int i = 0; i < 5; ++i) model.clients.push_back({SessionId(++last_session), {}, {}, {}});
  for (int step = 0; step < 400 && !HasFatalFailure(); ++step) {
    now_ns += random.below(5 * kMs);
    const uint64_t action = random.below(24);
    if (action < 8) {
      begin(random);
    } else if (action < 14) {
      complete(random);
    } else if (action < 17) {
      accept(random);
    } else if (action < 19) {
      flush(random);
    } else if (action < 21) {
      release(random);
    } else if (action < 23) {
      publish(random);
    } else if (random.one_in(4)) {
      lose_clients(random);
    } else {
      release_all_except(random);
      fence(random);
      recover(random);
    }
    transactions->check_invariants();
  }
  Statistics statistics;
  transactions->report(statistics);
  EXPECT_EQ(statistics.last_transaction, model.last_id);
  EXPECT_EQ(statistics.commits + statistics.aborts, model.finished.size());
  EXPECT_EQ(statistics.orphaned_transactions, model.orphans.size());
  EXPECT_EQ(transactions->orphans().size(), model.orphans.size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, TransactionsModelTest, ::testing::Range(1, 61));

}  // namespace
}  // namespace loam::commit
