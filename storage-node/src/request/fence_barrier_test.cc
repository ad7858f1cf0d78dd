// The barrier of a fence (R7): a fence is acknowledged only when every batch under way has ended. The test uses real
// threads and stops one at a pause point between the claim and the link of a write.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/pause_point.h"
#include "common/testing/eventually.h"
#include "storage-node/src/request/manager_protocol.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

/// Blocks the thread that reaches the pause point until release().
class PauseGuard {
 public:
  explicit PauseGuard(std::string_view name)
      : hook_(PausePoints::on(name, [this] {
          std::unique_lock lock(mutex_);
          reached_ = true;
          changed_.notify_all();
          changed_.wait(lock, [this] { return released_; });
        })) {}

  [[nodiscard]] bool wait_until_reached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kTestTimeout, [this] { return reached_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool released_ = false;
  PausePoints::Hook hook_;
};

class FenceBarrierTest : public NodeFixture {
 protected:
  FenceBarrierTest() {
    protocol.connected(now_ns);
    EXPECT_TRUE(receive(1, with_lease()).ok());
    manager.sent.clear();
    attach(client, 5);
    const Buffer bytes = row(1);
    run(client, std::pair(uint64_t{1}, write(11, wire::WriteKind::kInsert, bytes)));
    EXPECT_EQ(client.answer<wire::WriteReply>(1).results.at(0).code, StatusCode::kOk);
  }

  static wire::RegisterNodeReply with_lease() {
    wire::RegisterNodeReply answer = registered();
    answer.lease_ns = kLeaseNs;
    return answer;
  }
  static wire::Write write(uint64_t transaction, wire::WriteKind kind, Bytes bytes) {
    return {TransactionId(transaction), Snapshot(Version(transaction - 1)), {{kind, {kAccounts, Key(1)}, bytes}}};
  }
  template <wire::Message M>
  Status receive(uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    return protocol.received(buffer, now_ns);
  }
  /// Starts an update of the record on another network thread, which stops between claim and link.
  std::jthread stopped_write() {
    return std::jthread([this] {
      EpochThread epochs_of_thread(epochs, "network 1");
      ThreadContext own(epochs_of_thread, 1);
      Executor on_thread(*registry, sessions, scans, own);
      const Buffer bytes = row(2);
      Buffer message;
      wire::encode_message(write(12, wire::WriteKind::kUpdate, bytes), 2, message);
      const Bytes view = message;
      on_thread.run(client, std::span(&view, 1));
    });
  }
  void run_steps() {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(protocol.step(now_ns).ok());
  }
  int64_t newest() {
    RecordingPeer reader(3);
    attach(reader, 6);
    run(reader, std::pair(uint64_t{1}, wire::Read{Snapshot(Version(20)), {{kAccounts, Key(1)}}}));
    return value(reader.answer<wire::ReadReply>(1).results.at(0).row);
  }

  static constexpr uint64_t kLeaseNs = 2'000'000'000'000;
  uint64_t now_ns = Env::now_ns();
  RecordingPeer manager{1};  // receives the messages for the commit manager
  RecordingPeer client{2};
  ManagerProtocol protocol{
      *registry, sessions, *epoch_thread, {}, [this](Bytes message) { static_cast<void>(manager.send(message)); }};
};

TEST_F(FenceBarrierTest, AFenceWaitsForTheWriteBetweenClaimAndLink) {
  PauseGuard paused("node.write.claimed");
  std::jthread thread = stopped_write();
  ASSERT_TRUE(paused.wait_until_reached());
  ASSERT_TRUE(receive(7, wire::Fence{{SessionId(5), {}}}).ok());
  run_steps();
  EXPECT_TRUE(manager.sent.empty()) << "a recoverer would look now, and the write lands afterwards";
  EXPECT_TRUE(closed.empty());
  paused.release();
  thread.join();
  run_steps();
  manager.answer<wire::FenceReply>(7);
  EXPECT_EQ(newest(), 2) << "the write was in before the fence was";
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0], std::pair(client.id(), StatusCode::kFenced));
  EXPECT_EQ(sessions.size(), 1u) << "the reader's";
}

TEST_F(FenceBarrierTest, GrantAfterAnExpiredLeaseWaitsForTheSameWrite) {
  PauseGuard paused("node.write.claimed");
  std::jthread thread = stopped_write();
  ASSERT_TRUE(paused.wait_until_reached());
  // The process was paused for longer than its lease. The thread in its batch does not notice that.
  registry->grant_lease(1);
  protocol.disconnected();
  protocol.connected(now_ns);
  wire::RegisterNodeReply answer = with_lease();
  answer.fences = {SessionId(5), {}};
  ASSERT_TRUE(receive(2, answer).ok());
  run_steps();
  EXPECT_FALSE(registry->lease_holds(now_ns)) << "a recoverer's reverts would come before the write";
  EXPECT_FALSE(protocol.serving());
  paused.release();
  thread.join();
  run_steps();
  EXPECT_TRUE(registry->lease_holds(now_ns));
  EXPECT_TRUE(protocol.serving());
  EXPECT_EQ(newest(), 2);
}

}  // namespace
}  // namespace loam::storage
