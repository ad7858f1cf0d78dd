// Writers, publications, fences, sweeps and pages of intents run at the same time, on threads of their own. Every write
// of a transaction that is not complete is named exactly once, and no write that an acknowledged publication covers is
// named (R5, intents before answers; R8, recovery).
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "common/testing/eventually.h"
#include "common/testing/random.h"
#include "storage-node/src/request/manager_protocol.h"
#include "storage-node/testing/manager_model.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kWriters = 2;
constexpr uint64_t kSessionsPerWriter = 25;
constexpr uint64_t kTransactionsPerSession = 120;

class IntentsStressTest : public NodeFixture {
 protected:
  IntentsStressTest() {
    protocol.connected(now_ns);
    wire::RegisterNodeReply answer = registered();
    answer.publication = {};
    Buffer buffer;
    wire::encode_message(answer, 1, buffer);
    EXPECT_TRUE(protocol.received(buffer, now_ns).ok());
  }

  /// The open transactions of one ended session, with the keys that they have written.
  struct OpenTransactions {
    uint64_t session = 0;
    std::map<uint64_t, std::set<uint64_t>> keys;  // by transaction
  };

  /// One network thread. It serves sessions one after another; each commits most of its transactions and leaves some
  /// open.
  void network_thread(size_t number) {
    EpochThread epoch(epochs, "network " + std::to_string(number));
    ThreadContext own(epoch, number);
    Executor on_thread(*registry, sessions, scans, own);
    testing::Random random(number + 1);
    const Buffer bytes = row(1);
    for (uint64_t s = 0; s < kSessionsPerWriter; ++s) {
      const uint64_t session = next_session_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
      RecordingPeer peer(100 + session);
      run_on(on_thread, peer, 1'000'000, wire::Attach{SessionId(session), 1, kIncarnation});
      OpenTransactions left{session, {}};
      for (uint64_t t = 1; t <= kTransactionsPerSession; ++t) {
        const auto transaction = manager_.begin();
        wire::Write write{transaction.id, transaction.snapshot, {}};
        const uint64_t records = random.one_in(10) ? random.between(50, 300) : random.between(1, 4);
        std::set<uint64_t> chosen;
        for (uint64_t i = 0; i < records; ++i) {
          // Some keys are contended: their writes may fail, and must leave no intent. A transaction writes a key once.
          // Relaxed: a unique number.
          const uint64_t key =
              random.one_in(4) ? random.below(50) : 1'000 + keys_.fetch_add(1, std::memory_order_relaxed);
          if (!chosen.insert(key).second) continue;
          write.operations.push_back({wire::WriteKind::kInsert, {kAccounts, Key(key)}, bytes});
        }
        peer.sent.clear();
        run_on(on_thread, peer, t, write);
        const auto reply = peer.answer<wire::WriteReply>(t);
        std::vector<wire::RecordId> written;
        for (size_t i = 0; i < reply.results.size(); ++i) {
          if (reply.results[i].code == StatusCode::kOk) written.push_back(write.operations[i].record);
        }
        if (random.one_in(8)) {
          for (const wire::RecordId& record : written) left.keys[transaction.id.value].insert(record.key.value);
          continue;
        }
        // Most transactions abort, so that the contended keys become writable again and the table stays small.
        run_on(on_thread, peer, 10'000 + t, wire::Revert{transaction.id, written});
        manager_.complete(transaction.id);
      }
      sessions.detach(peer.session(), peer.id());
      const std::lock_guard lock(mutex_);
      open_transactions_.push_back(std::move(left));
    }
    writers_done_.fetch_add(1, std::memory_order_release);  // pairs with the control thread's load
  }

  /// Asks for the intents of all sessions repeatedly, as a restarted commit manager does.
  void reader_thread() {
    EpochThread epoch(epochs, "reader");
    ThreadContext own(epoch, kWriters);
    Executor on_thread(*registry, sessions, scans, own);
    RecordingPeer peer(99);
    run_on(on_thread, peer, 1'000'000, wire::Attach{SessionId(1'000'000), 1, kIncarnation});
    while (!done_.load(std::memory_order_acquire)) {  // pairs with the control thread's store
      std::shared_ptr<const Publication> acknowledged;
      {
        const std::lock_guard lock(mutex_);
        acknowledged = acknowledged_;
      }
      for (const wire::Intent& intent : pages(on_thread, peer, 0)) {
        if (acknowledged == nullptr) continue;
        EXPECT_FALSE(acknowledged->later.visible(Version(intent.transaction.value)))
            << "transaction " << intent.transaction.value << " is complete";
      }
      rounds_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
    }
  }

  /// The control thread. It publishes, fences the sessions that have ended, and recovers their open transactions.
  void control_thread() {
    ThreadContext own(*epoch_thread, kWriters + 1);
    Executor recoverer(*registry, sessions, scans, own);
    RecordingPeer peer(98);
    run_on(recoverer, peer, 1'000'000, wire::Attach{SessionId(1'000'001), 1, kIncarnation});
    // Acquire: pairs with the release of the writers, so all their open transactions are known here.
    for (bool last = false;; last = writers_done_.load(std::memory_order_acquire) == kWriters) {
      publish();
      std::vector<OpenTransactions> ended;
      {
        const std::lock_guard lock(mutex_);
        ended.swap(open_transactions_);
      }
      for (const OpenTransactions& left : ended) {
        fence(left.session);
        recover(recoverer, peer, left);
      }
      now_ns += kMinIntentSweepIntervalNs / 8;
      if (last && ended.empty()) break;
      std::this_thread::yield();
    }
  }
  void publish() {
    const auto publication = manager_.publication();
    ASSERT_TRUE(receive(++sent_, wire::Publish{*publication}).ok());
    ASSERT_TRUE(answered([&] { return last_installed_ >= publication->number; }));
    const std::lock_guard lock(mutex_);
    acknowledged_ = publication;
  }
  void fence(uint64_t session) {
    fenced_.insert(session);
    wire::FenceSet fences{SessionId(*fenced_.rbegin()), {}};
    for (uint64_t s = kFirstSession; s < *fenced_.rbegin(); ++s) {
      if (!fenced_.contains(s)) fences.alive.emplace_back(s);
    }
    const uint64_t sequence = ++sent_;
    ASSERT_TRUE(receive(sequence, wire::Fence{fences}).ok());
    ASSERT_TRUE(answered([&] { return fences_installed_ == fenced_.size(); }));
  }
  void recover(Executor& recoverer, RecordingPeer& peer, const OpenTransactions& left) {
    std::map<uint64_t, std::set<uint64_t>> named;
    for (const wire::Intent& intent : pages(recoverer, peer, left.session)) {
      EXPECT_TRUE(named[intent.transaction.value].insert(intent.record.value).second) << "named twice";
    }
    // A complete transaction may still be named until a publication covers it.
    const auto open = left.keys;
    for (const auto& [id, keys] : open) EXPECT_EQ(named[id], keys) << "transaction " << id;
    for (const auto& [id, keys] : open) {
      wire::Revert revert{TransactionId(id), {}};
      for (const uint64_t key : keys) revert.records.push_back({kAccounts, Key(key)});
      peer.sent.clear();
      run_on(recoverer, peer, ++recoverer_sequence_, revert);
      for (const auto& result : peer.answer<wire::RevertReply>(recoverer_sequence_).results) {
        EXPECT_EQ(result.code, StatusCode::kOk);
      }
      manager_.complete(TransactionId(id));
      ++recovered_;
    }
  }

  template <wire::Message M>
  static void run_on(Executor& on, RecordingPeer& peer, uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    const Bytes view = buffer;
    on.run(peer, std::span(&view, 1));
  }
  /// Reads all pages of intents. The test does not check the keys.
  static std::vector<wire::Intent> pages(Executor& on, RecordingPeer& peer, uint64_t session) {
    std::vector<wire::Intent> all;
    wire::IntentsReply page;
    do {
      peer.sent.clear();
      run_on(on, peer, 1, wire::Intents{SessionId(session), page.end});
      page = peer.answer<wire::IntentsReply>(1);
      all.insert(all.end(), page.intents.begin(), page.intents.end());
    } while (page.more);
    return all;
  }
  template <wire::Message M>
  Status receive(uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    return protocol.received(buffer, now_ns);
  }
  template <class Condition>
  bool answered(Condition condition) {
    return testing::eventually([&] {
      EXPECT_TRUE(protocol.step(now_ns).ok());
      return condition();
    });
  }
  void on_message(Bytes message) {
    ByteReader reader(message);
    wire::Envelope envelope;
    ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
    if (envelope.opcode == wire::Opcode::kFenceReply) ++fences_installed_;
    if (envelope.opcode != wire::Opcode::kPublishReply) return;
    wire::PublishReply installed;
    ASSERT_TRUE(wire::decode_body(reader, installed).ok());
    EXPECT_GT(installed.number, last_installed_);
    last_installed_ = installed.number;
  }

  static constexpr uint64_t kFirstSession = 10;

  SharedManager manager_;
  std::atomic<uint64_t> next_session_{kFirstSession};
  std::atomic<uint64_t> keys_{0};
  std::atomic<size_t> writers_done_{0};
  std::atomic<bool> done_{false};
  std::atomic<uint64_t> rounds_{0};
  std::mutex mutex_;
  std::vector<OpenTransactions> open_transactions_;  // guarded by mutex_
  std::shared_ptr<const Publication> acknowledged_;  // guarded by mutex_
  // Used by the control thread alone.
  uint64_t now_ns = Env::now_ns();
  uint64_t sent_ = 1;
  uint64_t last_installed_ = 0;
  uint64_t fences_installed_ = 0;
  uint64_t recoverer_sequence_ = 0;
  uint64_t recovered_ = 0;
  std::set<uint64_t> fenced_;
  ManagerProtocol protocol{*registry, sessions, *epoch_thread, {}, [this](Bytes message) { on_message(message); }};
};

TEST_F(IntentsStressTest, EveryWriteOfAnOpenTransactionIsNamedOnce) {
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kWriters; ++i) threads.emplace_back([this, i] { network_thread(i); });
    std::jthread reader([this] { reader_thread(); });
    control_thread();
    done_.store(true, std::memory_order_release);  // pairs with the reader's load
  }
  EXPECT_EQ(fenced_.size(), kWriters * kSessionsPerWriter);
  EXPECT_GT(recovered_, kWriters * kSessionsPerWriter);
  EXPECT_GT(rounds_.load(std::memory_order_relaxed), 10u);
  publish();
  // All transactions are complete, so rounds of the sweep empty the lists.
  ASSERT_TRUE(testing::eventually([&] {
    now_ns += kMinIntentSweepIntervalNs;
    publish();
    return sessions.intents() == 0 && intent_pool.used_bytes() == 0;
  }));
}

}  // namespace
}  // namespace loam::storage
