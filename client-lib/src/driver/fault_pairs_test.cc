// Every pair of faults of every call: the caller's result agrees with the final state of the servers.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/scripted_cluster.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

using testing::eventually;
using wire::Opcode;
using wire::WriteKind;

/// The fault of one request. kCut: its reply is held, and the scope of the call ends.
enum class Fault : uint8_t {
  kNone,
  kLostBefore,
  kLostAfter,
  kLate,
  kClosedBefore,
  kClosedAfter,
  kRefused,
  kForgotten,
  kFenced,
  kFencedAfter,
  kCut
};
constexpr std::array kFaults = {Fault::kNone,         Fault::kLostBefore,  Fault::kLostAfter, Fault::kLate,
                                Fault::kClosedBefore, Fault::kClosedAfter, Fault::kRefused,   Fault::kForgotten,
                                Fault::kFenced,       Fault::kFencedAfter, Fault::kCut};

std::string name_of(Fault fault) {
  constexpr std::array kNames = {"None",    "LostBefore", "LostAfter", "Late",        "ClosedBefore", "ClosedAfter",
                                 "Refused", "Forgotten",  "Fenced",    "FencedAfter", "Cut"};
  static_assert(kNames.size() == kFaults.size());
  return kNames[static_cast<size_t>(fault)];
}

MutantResult action_of(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return MutantResult::kAnswer;
    case Fault::kLostBefore:
      return MutantResult::kDrop;
    case Fault::kLostAfter:
      return MutantResult::kApplyAndDrop;
    case Fault::kLate:
    case Fault::kCut:
      return MutantResult::kHold;
    case Fault::kClosedBefore:
      return MutantResult::kClose;
    case Fault::kClosedAfter:
      return MutantResult::kApplyAndClose;  // repeated on the next connection, so it arrives twice
    case Fault::kRefused:
      return MutantResult::kError;
    case Fault::kForgotten:
      return MutantResult::kForget;
    case Fault::kFenced:
      return MutantResult::kFence;
    case Fault::kFencedAfter:
      return MutantResult::kApplyAndFence;
  }
  return MutantResult::kAnswer;
}

/// A kind of requests: an opcode, and for plain writes the kind of the write.
struct Step {
  Opcode opcode;
  WriteKind kind{};
};
constexpr Step kWrites{Opcode::kWrite};
constexpr Step kIndexChange{Opcode::kPlainWrite, WriteKind::kUpdateFields};
constexpr Step kCompletion{Opcode::kComplete};
constexpr Step kOutcome{Opcode::kGetOutcomes};
constexpr Step kReverts{Opcode::kRevert};

/// One pair of faults, with its own cluster.
class FaultPair {
 public:
  /// The next request of kind `first` meets `faults[0]`, then one of kind `second` meets `faults[1]`.
  FaultPair(Step first, Step second, std::array<Fault, 2> faults)
      : steps_{first, second}, faults_(faults), client_(Client::connect(cluster_.address()).value()) {}

  /// The client: with the usual time-outs before with_faults(), then with kTimeoutNs.
  Client& client() { return *client_; }
  ScriptedCluster& cluster() { return cluster_; }

  /// Runs `call` with the faults. A cut ends the scope before the request would time out.
  template <class Call>
  auto with_faults(Call call) {
    ClientOptions options;
    options.request_timeout_ns = kTimeoutNs;
    options.commit_timeout_ns = kTimeoutNs;
    client_.reset();
    client_ = Client::connect(cluster_.address(), options).value();
    auto met = std::make_shared<size_t>(0);
    cluster_.set_script([this, met](Opcode opcode, WriteKind kind) {
      const size_t at = *met;
      if (at == steps_.size() || opcode != steps_[at].opcode || kind != steps_[at].kind) return MutantResult::kAnswer;
      ++*met;
      return action_of(faults_[at]);
    });
    const bool cut = faults_[0] == Fault::kCut || faults_[1] == Fault::kCut;
    const CallScope scope({.timeout_ns = cut ? kTimeoutNs / 2 : 0});
    return call();
  }
  /// Lets late replies arrive, and closes the client in order.
  void shut_down() {
    cluster_.release_held();
    cluster_.set_script({});
    client_.reset();
  }

  static constexpr uint64_t kTimeoutNs = 40'000'000;

 private:
  ScriptedCluster cluster_;
  const std::array<Step, 2> steps_;
  const std::array<Fault, 2> faults_;
  std::unique_ptr<Client> client_;
};

class FaultPairs : public ::testing::TestWithParam<Fault> {
 protected:
  /// Runs the call once with each second fault.
  template <class Check>
  void with_each(Step first, Step second, Check check) {
    for (const Fault fault : kFaults) {
      SCOPED_TRACE(name_of(GetParam()) + ", then " + name_of(fault));
      FaultPair pair(first, second, {GetParam(), fault});
      check(pair);
      EXPECT_EQ(pair.cluster().observations().executed_twice, 0u) << "no request is executed twice (R3)";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Calls, FaultPairs, ::testing::ValuesIn(kFaults),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(FaultPairs, OfAPlainWriteTellItsEffect) {
  constexpr Step kUpdate{Opcode::kPlainWrite, WriteKind::kUpdate};
  with_each(kUpdate, kUpdate, [](FaultPair& pair) {
    const Table table = pair.client().open_table("plain").value();
    const Version version = pair.client().plain(table)->insert(Key(1), {Value::int64(5)}).value();
    const auto result =
        pair.with_faults([&] { return pair.client().plain(table)->update(Key(1), version, {Value::int64(6)}); });
    pair.shut_down();
    const auto reader = Client::connect(pair.cluster().address()).value();
    PlainTable now = reader->plain(reader->open_table("plain").value()).value();
    const int64_t value = now.get(Key(1))->int64(0);
    if (result.ok()) {
      EXPECT_EQ(value, 6);
    } else if (result.code() != StatusCode::kUnknownOutcome) {
      EXPECT_EQ(value, 5) << result.status().to_string();
    }
  });
}

TEST_P(FaultPairs, OfAReadTellTheTruthOrNothing) {
  with_each({Opcode::kRead}, {Opcode::kRead}, [](FaultPair& pair) {
    const Table table = pair.client().open_table("t").value();
    const auto insert = [&](Transaction& tx) { return tx.insert(table, Key(1), {Value::int64(5)}); };
    ASSERT_TRUE(pair.client().run_transaction(insert).ok());
    const auto result = pair.with_faults([&]() -> Result<Record> {
      LOAM_ASSIGN_OR_RETURN(Transaction tx, pair.client().begin());
      return tx.get(table, Key(1));
    });
    if (result.ok()) {
      EXPECT_EQ(result->int64(0), 5);
    }
    EXPECT_NE(result.code(), StatusCode::kNotFound) << "the record exists";
    pair.shut_down();
  });
}

TEST_P(FaultPairs, OfABeginLeaveNoIdOpen) {
  with_each({Opcode::kBegin}, {Opcode::kBegin}, [](FaultPair& pair) {
    const size_t opened = pair.cluster().observations().opened + 1;  // by the client that meets the faults
    {
      const auto result = pair.with_faults([&] { return pair.client().begin(); });
      if (result.ok()) {
        EXPECT_NE(result->id(), TransactionId());
      }
    }
    // A late id is given back. If its session has ended, recovery completes it.
    pair.cluster().release_held();
    pair.cluster().set_script({});
    pair.cluster().drop_connections(true);  // the reply is lost with its connection, so the request is repeated
    EXPECT_TRUE(eventually([&] {
      const auto seen = pair.cluster().observations();
      return seen.completed.size() == seen.begun || seen.opened > opened;
    }));
    pair.shut_down();
  });
}

// The id is drawn at the first write. A late id is given back, as for a begin.
TEST_P(FaultPairs, OfAnUpgradeLeaveNoIdOpen) {
  with_each({Opcode::kBegin}, {Opcode::kBegin}, [](FaultPair& pair) {
    const Table table = pair.client().open_table("t").value();
    const TransactionOptions upgradable{.read_only = false, .upgradable = true, .retry = {}};
    const size_t opened = pair.cluster().observations().opened + 1;
    static_cast<void>(pair.with_faults([&]() -> Status {
      LOAM_ASSIGN_OR_RETURN(Transaction tx, pair.client().begin(upgradable));
      return tx.insert(table, Key(1), {Value::int64(6)});
    }));
    pair.cluster().release_held();
    pair.cluster().set_script({});
    pair.cluster().drop_connections(true);
    EXPECT_TRUE(eventually([&] {
      const auto seen = pair.cluster().observations();
      return seen.completed.size() == seen.begun || seen.opened > opened;
    }));
    pair.shut_down();
  });
}

TEST_P(FaultPairs, OfACreateTellItsEffect) {
  with_each({Opcode::kCreateTable}, {Opcode::kCreateTable}, [](FaultPair& pair) {
    const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
    const auto result =
        pair.with_faults([&] { return pair.client().create_table("new", TableKind::kTransactional, schema); });
    pair.shut_down();
    const bool created = pair.cluster().observations().created.contains("new");
    if (result.ok()) {
      EXPECT_TRUE(created);
    } else if (result.code() != StatusCode::kUnknownOutcome) {
      EXPECT_FALSE(created) << result.status().to_string();
    }
  });
}

TEST_P(FaultPairs, OfADropTellItsEffect) {
  with_each({Opcode::kDropTable}, {Opcode::kDropTable}, [](FaultPair& pair) {
    const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
    ASSERT_TRUE(pair.client().create_table("old", TableKind::kTransactional, schema).ok());
    const Status result = pair.with_faults([&] { return pair.client().drop_table("old"); });
    pair.shut_down();
    const bool there = pair.cluster().observations().created.contains("old");
    if (result.ok()) {
      EXPECT_FALSE(there);
    } else if (result.code() != StatusCode::kUnknownOutcome) {
      EXPECT_TRUE(there) << result.to_string();
    }
  });
}

TEST_P(FaultPairs, OfARenameTellItsEffect) {
  with_each({Opcode::kRenameTable}, {Opcode::kRenameTable}, [](FaultPair& pair) {
    const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
    const Table old = pair.client().create_table("old", TableKind::kTransactional, schema).value();
    const auto result = pair.with_faults([&] { return pair.client().rename_table("old", "new"); });
    pair.shut_down();
    const auto created = pair.cluster().observations().created;
    EXPECT_NE(created.contains("old"), created.contains("new"));
    if (result.ok()) {
      EXPECT_TRUE(created.contains("new"));
      EXPECT_EQ(result->id(), old.id());
    } else if (result.code() != StatusCode::kUnknownOutcome) {
      EXPECT_TRUE(created.contains("old")) << result.status().to_string();
    }
  });
}

// If the catalog cannot be fetched after the change, the call still reports that the change was made.
TEST_P(FaultPairs, OfACreateAndItsCatalogTellTheEffect) {
  with_each({Opcode::kCreateTable}, {Opcode::kGetCatalog}, [](FaultPair& pair) {
    const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
    const auto result =
        pair.with_faults([&] { return pair.client().create_table("new", TableKind::kTransactional, schema); });
    pair.shut_down();
    const bool created = pair.cluster().observations().created.contains("new");
    if (result.ok()) {
      EXPECT_TRUE(created);
    } else if (result.code() != StatusCode::kUnknownOutcome) {
      EXPECT_FALSE(created) << result.status().to_string();
    }
  });
}

TEST_P(FaultPairs, OfAScanGiveAllRowsOrAnError) {
  with_each({Opcode::kScan}, {Opcode::kScan}, [](FaultPair& pair) {
    pair.cluster().serve_scans();
    const Table table = pair.client().open_table("t").value();
    for (const uint64_t key : {1, 2}) {
      const auto insert = [&](Transaction& tx) { return tx.insert(table, Key(key), {Value::int64(5)}); };
      ASSERT_TRUE(pair.client().run_transaction(insert).ok());
    }
    Query query;
    query.select = {0};
    using Chunks = std::vector<std::shared_ptr<const Chunk>>;
    const auto scan = [&]() -> Result<Chunks> {
      LOAM_ASSIGN_OR_RETURN(ScanStream stream, pair.client().scan(table, query));
      return stream.collect();
    };
    // The call waits for a silent node with an open connection until the scope ends.
    const auto result = pair.with_faults([&] {
      const CallScope scope({.timeout_ns = FaultPair::kTimeoutNs});
      auto first = scan();
      return first.ok() ? scan() : std::move(first);
    });
    if (result.ok()) {
      size_t rows = 0;
      for (const auto& chunk : *result) rows += chunk->view().rows();
      EXPECT_EQ(rows, 2u);
    }
    EXPECT_TRUE(eventually([&] { return pair.cluster().observations().open_scans == 0; }))
        << "a node still works on the scan";
    pair.shut_down();
  });
}

/// The steps of a commit: each fault at one step, and a second fault at the same or the next step.
class CommitFaultPairs : public FaultPairs {
 protected:
  struct Kind {
    bool indexed = false;  // the transaction changes an index
    bool refused = false;  // the commit manager refuses it, because a loss of records was accepted (R9)
  };

  void check(Step first, Step second, Kind kind = {false, false}) {
    with_each(first, second, [this, kind](FaultPair& pair) { commit(pair, kind); });
  }

  void commit(FaultPair& pair, Kind kind) {
    if (kind.indexed) pair.cluster().add_index();
    const Table table = pair.client().open_table("t").value();
    const wire::RecordId record{ScriptedCluster::kTable, Key(1)};
    const auto insert = [&](Transaction& tx) { return tx.insert(table, Key(1), {Value::int64(5)}); };
    ASSERT_TRUE(pair.client().run_transaction(insert).ok());
    const uint64_t before = pair.cluster().observations().rows[record];
    uint64_t id = 0;
    const auto update = [&]() -> Status {
      LOAM_ASSIGN_OR_RETURN(Transaction tx, pair.client().begin());
      id = tx.id().value;
      if (kind.refused) pair.cluster().accept_loss();
      LOAM_RETURN_IF_ERROR(tx.update(table, Key(1), {Value::int64(6)}));
      return tx.commit();
    };
    Status result = pair.with_faults(update);
    // On a busy machine the scope may end during the begin, before any step.
    for (int attempt = 1; id == 0 && attempt < 50; ++attempt) result = pair.with_faults(update);
    ASSERT_NE(id, 0u);
    pair.shut_down();
    auto seen = pair.cluster().observations();
    const bool written = seen.rows[record] == id;
    const bool in_index = seen.in_index.contains(id);
    const auto completed = seen.completed.find(id);
    const bool open = completed == seen.completed.end();
    const bool committed = !open && completed->second;
    if (result.ok()) {
      EXPECT_TRUE(committed) << "acknowledged";
    } else if (result.code() != StatusCode::kUnknownOutcome) {
      EXPECT_FALSE(committed) << result.to_string();
    }
    // Outcome, records, index and intents agree in every case.
    EXPECT_FALSE(committed && kind.refused);
    if (committed) {
      EXPECT_TRUE(written && in_index == kind.indexed) << "a committed id without its writes";
    } else if (!open) {
      EXPECT_TRUE(seen.rows[record] == before && !in_index) << "an aborted id whose writes stay";
    } else {
      EXPECT_TRUE(!written || seen.intents[id].records.contains(record)) << "an open id whose write no intent names";
      EXPECT_TRUE(!in_index || !seen.intents[id].index_changes.empty()) << "an index change that no intent names";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Commits, CommitFaultPairs, ::testing::ValuesIn(kFaults),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(CommitFaultPairs, AtTheWrites) { check(kWrites, kWrites); }
TEST_P(CommitFaultPairs, AtTheWritesAndTheCompletion) { check(kWrites, kCompletion); }
TEST_P(CommitFaultPairs, AtTheCompletion) { check(kCompletion, kCompletion); }
TEST_P(CommitFaultPairs, AtTheCompletionAndTheOutcomeRequest) { check(kCompletion, kOutcome); }
TEST_P(CommitFaultPairs, AtTheWritesAndTheIndex) { check(kWrites, kIndexChange, {.indexed = true}); }
TEST_P(CommitFaultPairs, AtTheIndex) { check(kIndexChange, kIndexChange, {.indexed = true}); }
TEST_P(CommitFaultPairs, AtTheIndexAndTheCompletion) { check(kIndexChange, kCompletion, {.indexed = true}); }
TEST_P(CommitFaultPairs, AtTheCompletionThatIsRefused) { check(kCompletion, kCompletion, {.refused = true}); }
TEST_P(CommitFaultPairs, AtTheReverts) { check(kReverts, kReverts, {.refused = true}); }
TEST_P(CommitFaultPairs, AtTheRevertsAndTheSecondCompletion) { check(kReverts, kCompletion, {.refused = true}); }
TEST_P(CommitFaultPairs, AtTheUndoOfTheIndex) { check(kCompletion, kIndexChange, {.indexed = true, .refused = true}); }

}  // namespace
}  // namespace loam::client
