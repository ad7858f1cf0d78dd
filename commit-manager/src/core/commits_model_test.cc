// Random begins, completions and progress of the commit log against plain sets [R1, commit order; R4, outcomes from the
// commit log; R13, atomic publication].
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

using testing::Random;
using wire::Begin;
using wire::BeginReply;
using wire::Complete;
using wire::CompleteReply;
using wire::Outcome;
using wire::Publish;
using wire::RenewNode;
using wire::RenewSession;

/// Compares random begins, completions and progress of the commit log with plain sets.
struct CommitsModel : ::testing::TestWithParam<int> {
  struct Client {
    PeerId peer;
    std::set<uint64_t> open;
    std::map<uint64_t, std::pair<uint64_t, std::vector<uint64_t>>> waiting;  // by sequence: position, ids
  };

  void begin(Client& client) {
    const auto count = static_cast<uint32_t>(random.between(1, 4));
    const auto begun = h.call<BeginReply>(client.peer, Begin{count, random.one_in(3)});
    ASSERT_TRUE(begun.ok()) << begun.error.to_string();
    ASSERT_EQ(begun->first_id.value, last_id + 1);
    for (uint32_t i = 0; i < count; ++i) client.open.insert(++last_id);
    for (uint64_t id = 1; id <= last_id; ++id) {
      ASSERT_EQ(begun->snapshot.visible(Version(id)), aborted.contains(id) || accepted.contains(id)) << id;
    }
    for (uint64_t id = 1; id <= begun->seen_by_all.value; ++id) ASSERT_TRUE(for_good(id)) << id;
    for (uint64_t id = 1; id <= begun->durable.value; ++id) {
      ASSERT_TRUE(for_good(id) || !begun->snapshot.visible(Version(id))) << id;
    }
    ASSERT_GE(begun->durable, begun->seen_by_all);
  }

  void complete(Client& client) {
    Complete message;
    std::vector<uint64_t> commits;
    for (const uint64_t id : std::set<uint64_t>(client.open)) {
      if (!random.one_in(2)) continue;
      const bool committed = !random.one_in(3);
      message.outcomes.push_back({TransactionId(id), committed});
      client.open.erase(id);
      if (committed) {
        commits.push_back(id);
        positions.push_back(id);
      } else {
        aborted.insert(id);
      }
    }
    const uint64_t sequence = h.post(client.peer, message);
    if (commits.empty()) {
      ASSERT_EQ(h.receive<CompleteReply>(client.peer).sequence, sequence) << "aborts need no log";
    } else {
      client.waiting[sequence] = {positions.size(), commits};
    }
    ASSERT_EQ(log.all.size(), positions.size());
    ASSERT_TRUE(h.outbox.sent[client.peer].empty());
  }

  void move_log() {
    CommitLogProgress to = log.progress;
    to.accepted = random.between(to.accepted, positions.size());
    if (random.one_in(2)) to.flushed = random.between(to.flushed, to.accepted);
    log.progress = to;
    h.core.on_log_progress(to);
    for (uint64_t at = 0; at < positions.size(); ++at) {
      if (at < to.accepted) accepted.insert(positions[at]);
      if (at < to.flushed) flushed.insert(positions[at]);
    }
    for (Client& client : clients) {
      while (!client.waiting.empty() && client.waiting.begin()->second.first <= to.accepted) {
        ASSERT_EQ(h.receive<CompleteReply>(client.peer).sequence, client.waiting.begin()->first);
        client.waiting.erase(client.waiting.begin());
      }
      ASSERT_TRUE(h.outbox.sent[client.peer].empty()) << "nothing else is answered";
    }
  }

  void publish() {
    h.post(node, RenewNode{});
    h.run_for(random.between(10'000'000, 120'000'000));
    for (Client& client : clients) {
      h.post(client.peer, RenewSession{});
      ASSERT_TRUE(h.receive<wire::RenewSessionReply>(client.peer).ok());
    }
    const auto publish = h.newest<Publish>(node);
    if (!publish.ok()) return;
    ++publications;
    const Publication& publication = publish->publication;
    ASSERT_TRUE(publication.check().ok());
    ASSERT_EQ(publish->log, flushed.size());
    for (uint64_t id = 1; id <= last_id; ++id) {
      ASSERT_EQ(publication.later.visible(Version(id)), for_good(id)) << id << " in " << publication.later.to_string();
      unflushed += accepted.contains(id) && !flushed.contains(id) ? 1 : 0;
    }
    ASSERT_LE(publication.floor, publication.later.base());
    for (uint64_t id = 1; id <= publication.seen_by_all().value; ++id) ASSERT_TRUE(for_good(id)) << id;
  }

  bool for_good(uint64_t id) const { return aborted.contains(id) || flushed.contains(id); }

  Random random{testing::test_seed(static_cast<uint64_t>(GetParam()))};
  RecordingLog log;
  CoreHarness h{CoreHarness::open_at_once(), nullptr, Bytes{}, &log};
  PeerId node;
  std::vector<Client> clients;
  uint64_t last_id = 0;
  std::vector<uint64_t> positions;  ///< committed ids in the order of the log
  std::set<uint64_t> aborted, accepted, flushed;
  uint64_t publications = 0, unflushed = 0;
};

TEST_P(CommitsModel, NothingThatIsNotFlushedCountsAsCompleteAndEverythingElseDoes) {
  log.at_once = false;
  node = h.node("tcp://a:1");
  for (int i = 0; i < 3; ++i) clients.push_back({h.client(), {}, {}});
  for (int step = 0; step < 400 && !HasFatalFailure(); ++step) {
    Client& client = clients[random.below(clients.size())];
    const uint64_t action = random.below(8);
    if (action < 2 && client.open.size() < 8) {
      begin(client);
    } else if (action < 5) {
      complete(client);
    } else if (action < 7) {
      move_log();
    } else {
      publish();
    }
    h.core.check_invariants();
  }
  if (HasFatalFailure()) return;
  EXPECT_GT(publications, 10u);
  EXPECT_GT(unflushed, 0u) << "the run had unflushed commits";
  std::vector<uint64_t> appended;
  for (const std::vector<TransactionId>& batch : log.batches) {
    for (const TransactionId id : batch) appended.push_back(id.value);
  }
  EXPECT_EQ(appended, positions);
  for (const uint64_t id : positions) {
    EXPECT_EQ(h.core.outcome(TransactionId(id)), accepted.contains(id) ? Outcome::kCommitted : Outcome::kPending);
  }
  for (const uint64_t id : aborted) EXPECT_EQ(h.core.outcome(TransactionId(id)), Outcome::kAborted);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CommitsModel, ::testing::Range(1, 31));

}  // namespace
}  // namespace loam::commit
