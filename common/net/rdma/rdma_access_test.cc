// A malicious peer that uses verbs directly reaches only its own region, only while it is offered, and only by writes.

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/base/assert.h"
#include "common/net/rdma/rdma_queue_pair.h"
#include "common/testing/transport_fixture.h"

namespace loam::net {
namespace {

using testing::RdmaTestNetwork;
using testing::RecordingHandler;

constexpr size_t kReceives = kBuffersGranted + 2;

/// A client that uses verbs directly, without a transport. Its calls block, so another thread makes them while the test
/// polls the server.
class RawPeer {
 public:
  RawPeer() : memory_((kReceives + 1) * kRdmaBufferBytes) {}
  ~RawPeer() {
    if (queue_pair_ != nullptr) ibv_destroy_qp(queue_pair_);
    if (registration_ != nullptr) ibv_dereg_mr(registration_);
    if (queue_ != nullptr) ibv_destroy_cq(queue_);
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
    if (id_ != nullptr) rdma_destroy_id(id_);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool connect(const Address& address) {
    const auto found = resolve(address);
    if (!found.ok() || rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP) != 0) return false;
    SocketAddress where = found->front();
    if (rdma_resolve_addr(id_, nullptr, where.get(), 2'000) != 0 || rdma_resolve_route(id_, 2'000) != 0) return false;
    return make_queue_pair() && request_connection() && open();
  }

  /// Receives the next memory window that the server announces.
  MemoryWindowBody next_window() {
    // Each receive is posted once, so there are at most kReceives completions.
    for (size_t i = 0; i < kReceives; ++i) {
      const ibv_wc completion = next(true);
      if (completion.status != IBV_WC_SUCCESS) return {};
      const std::byte* bytes = memory_.data() + completion.wr_id * kRdmaBufferBytes;
      if (completion.byte_len < kFrameOverheadBytes + sizeof(MemoryWindowBody)) continue;
      if (read_as<FrameHeader>(bytes).type == FrameType::kMemoryWindow) {
        return read_as<MemoryWindowBody>(bytes + kFrameOverheadBytes);
      }
    }
    return {};
  }

  /// Performs one operation on eight bytes at `address` of the server's memory, and returns the status of its
  /// completion.
  ibv_wc_status reach(ibv_wr_opcode opcode, uint64_t address, uint32_t key) {
    ibv_sge piece = {reinterpret_cast<uintptr_t>(send_buffer()), 8, registration_->lkey};
    ibv_send_wr request{};
    request.wr_id = kReceives;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {.remote_addr = address, .compare_add = 1, .swap = 0, .rkey = key};
    } else {
      request.wr.rdma = {.remote_addr = address, .rkey = key};
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(queue_pair_, &request, &bad) != 0) return IBV_WC_GENERAL_ERR;
    return next(false).status;
  }

  /// The eight bytes that reach() writes to the server, or into which it reads.
  std::byte* send_buffer() { return memory_.data() + kReceives * kRdmaBufferBytes; }

 private:
  bool make_queue_pair() {
    domain_ = ibv_alloc_pd(id_->verbs);
    queue_ = ibv_create_cq(id_->verbs, 2 * kReceives, nullptr, nullptr, 0);
    if (domain_ == nullptr || queue_ == nullptr) return false;
    registration_ = (ibv_reg_mr)(domain_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue_;
    attributes.cap.max_send_wr = 4;
    attributes.cap.max_recv_wr = kReceives;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    attributes.qp_type = IBV_QPT_RC;
    queue_pair_ = ibv_create_qp(domain_, &attributes);
    return registration_ != nullptr && queue_pair_ != nullptr;
  }

  /// Sends the connection request of a Loam client, but also requests the right to read.
  bool request_connection() {
    const TransportOptions options;
    RdmaHello hello;
    hello.protocol_version = options.protocol_version;
    hello.kind = static_cast<uint32_t>(GreetingKind::kHello);
    hello.max_frame_bytes = static_cast<uint32_t>(options.max_frame_bytes);
    hello.window_frames = static_cast<uint32_t>(options.window_frames);
    hello.max_message_bytes = options.max_message_bytes;
    rdma_conn_param parameters{};
    parameters.private_data = &hello;
    parameters.private_data_len = sizeof(hello);
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = parameters.rnr_retry_count = 3;
    parameters.qp_num = queue_pair_->qp_num;
    return rdma_connect(id_, &parameters) == 0;
  }

  /// Opens the queue pair without the help of rdma_cm, which would not permit reads.
  bool open() {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr attributes{};
      attributes.qp_state = state;
      int mask = 0;
      if (rdma_init_qp_attr(id_, &attributes, &mask) != 0) return false;
      if (state == IBV_QPS_RTS) attributes.max_rd_atomic = 1;
      if (ibv_modify_qp(queue_pair_, &attributes, mask) != 0) return false;
    }
    for (size_t i = 0; i < kReceives; ++i) {
      ibv_sge piece = {reinterpret_cast<uintptr_t>(memory_.data() + i * kRdmaBufferBytes), kRdmaBufferBytes,
                       registration_->lkey};
      ibv_recv_wr request{};
      request.wr_id = i;
      request.sg_list = &piece;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      if (ibv_post_recv(queue_pair_, &request, &bad) != 0) return false;
    }
    return rdma_establish(id_) == 0;
  }

  /// Waits for the next completion of a receive, or of another request, and drops those of the other kind.
  ibv_wc next(bool received) {
    const uint64_t deadline = RealEnv::now_ns() + RdmaTestNetwork::kTimeoutNs / 2;
    ibv_wc completion{};
    while (RealEnv::now_ns() < deadline) {
      if (ibv_poll_cq(queue_, 1, &completion) == 1 && (completion.wr_id < kReceives) == received) return completion;
    }
    completion.status = IBV_WC_RESP_TIMEOUT_ERR;
    return completion;
  }

  std::vector<std::byte> memory_;
  rdma_cm_id* id_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_mr* registration_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
};

class RdmaAccessTest : public testing::NetTest<RdmaTestNetwork> {
 protected:
  void SetUp() override {
    NetTest::SetUp();
    if (IsSkipped()) return;
    server_ = &add();
    address_ = listen(*server_, served_);
  }

  /// Runs `body`, which may block, on another thread, and polls the server meanwhile. If `body` does not return in
  /// time, the program aborts, because a thread that blocks in rdma_cm cannot be ended otherwise.
  template <class Body>
  auto beside(Body body) {
    auto result = std::async(std::launch::async, body);
    const auto in_time =
        poll_until([&] { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    LOAM_CHECK(in_time, "a call of verbs does not return");
    return result.get();
  }

  /// Connects a peer, and returns the server's end of the connection.
  Connection* connect_raw(RawPeer& peer) {
    const size_t before = served_.connections.size();
    EXPECT_TRUE(beside([&] { return peer.connect(address_); }));
    EXPECT_TRUE(poll_until([&] { return served_.connections.size() > before; }));
    poll_until_idle();  // until the connection is established, regions have no memory windows
    return served_.connections.back();
  }

  OfferedRegion offer(Connection& connection, RawPeer& to, MemoryWindowBody& window) {
    const OfferedRegion region = connection.offer_region(kSize).value();
    before_ = as_text(region.memory);
    window = beside([&] { return to.next_window(); });
    EXPECT_EQ(window.size, kSize);
    return region;
  }

  static constexpr size_t kSize = 4096;
  Transport* server_ = nullptr;
  RecordingHandler served_;
  Address address_;
  std::string before_;  // content of the region that was offered last, at its offer
};

TEST_F(RdmaAccessTest, APeerReachesItsRegionWhileItIsOfferedByWritesAlone) {
  enum class Attempt { kWrite, kRead, kAdd, kOutside, kWithdrawn };
  for (const Attempt attempt :
       {Attempt::kWrite, Attempt::kRead, Attempt::kAdd, Attempt::kOutside, Attempt::kWithdrawn}) {
    SCOPED_TRACE(static_cast<int>(attempt));
    served_.closed.clear();
    RawPeer peer;
    Connection* connection = connect_raw(peer);
    MemoryWindowBody window;
    const OfferedRegion region = offer(*connection, peer, window);
    std::string seen;
    served_.when_closed = [&](Connection&) {
      if (attempt != Attempt::kWithdrawn) seen = as_text(region.memory);
    };
    if (attempt == Attempt::kWithdrawn) {
      connection->withdraw_region(region.remote);
      EXPECT_EQ(beside([&] { return peer.next_window().size; }), 0u);
    }
    std::fill_n(peer.send_buffer(), 8, std::byte{'x'});
    const ibv_wr_opcode opcode = attempt == Attempt::kRead  ? IBV_WR_RDMA_READ
                                 : attempt == Attempt::kAdd ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                            : IBV_WR_RDMA_WRITE;
    const uint64_t place = window.address + (attempt == Attempt::kOutside ? kSize : 0);
    const ibv_wc_status status = beside([&] { return peer.reach(opcode, place, window.key); });
    if (attempt == Attempt::kWrite) {
      EXPECT_EQ(status, IBV_WC_SUCCESS) << ibv_wc_status_str(status);
      EXPECT_TRUE(as_text(region.memory) == "xxxxxxxx" + before_.substr(8));
      connection->close({StatusCode::kCancelled, "enough"});
      ASSERT_TRUE(poll_until([&] { return !served_.closed.empty(); }));
      continue;
    }
    EXPECT_TRUE(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR) << ibv_wc_status_str(status);
    EXPECT_EQ(peer.send_buffer()[0], std::byte{'x'}) << "nothing was read";
    ASSERT_TRUE(poll_until([&] { return !served_.closed.empty(); }));
    EXPECT_EQ(served_.closed[0].code(), StatusCode::kMalformed) << served_.closed[0].to_string();
    EXPECT_TRUE(attempt == Attempt::kWithdrawn || seen == before_);
  }
}

TEST_F(RdmaAccessTest, TheKeyOfAnotherConnectionGrantsNoAccess) {
  RawPeer owner;
  Connection* owned = connect_raw(owner);
  MemoryWindowBody window;
  const OfferedRegion region = offer(*owned, owner, window);
  RawPeer attacker;
  connect_raw(attacker);
  std::fill_n(attacker.send_buffer(), 8, std::byte{'x'});
  const ibv_wc_status status = beside([&] { return attacker.reach(IBV_WR_RDMA_WRITE, window.address, window.key); });
  EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(status);
  ASSERT_TRUE(poll_until([&] { return !served_.closed.empty(); }));
  EXPECT_EQ(served_.closed[0].code(), StatusCode::kMalformed) << served_.closed[0].to_string();
  EXPECT_TRUE(as_text(region.memory) == before_);
  ASSERT_EQ(served_.connections, std::vector<Connection*>{owned}) << "the connection of the owner stays open";
  std::fill_n(owner.send_buffer(), 8, std::byte{'o'});
  EXPECT_EQ(beside([&] { return owner.reach(IBV_WR_RDMA_WRITE, window.address, window.key); }), IBV_WC_SUCCESS);
  EXPECT_TRUE(as_text(region.memory) == "oooooooo" + before_.substr(8));
}

}  // namespace
}  // namespace loam::net
