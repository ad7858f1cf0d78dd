// The classes of the transport over verbs. Internal. rdma_transport.cc has polling and listening, rdma_connection.cc
// one connection, rdma_queue_pair.h the queue pair of a connection, rdma_device.h memory and queues.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/env.h"
#include "common/net/link/transport_base.h"
#include "common/net/rdma/rdma_device.h"
#include "common/net/rdma/rdma_queue_pair.h"
#include "common/net/tcp/event_waiter.h"
#include "common/net/tcp/host_resolver.h"

namespace loam::net {

class RdmaTransport;

/// One connection over verbs.
class RdmaConnection final : public ConnectionBase {
 public:
  RdmaConnection(RdmaTransport& transport, Handler& handler, Address peer, bool announced);
  ~RdmaConnection() override;

  /// Connects to the first of the addresses that accepts, one after the other.
  void connect(std::vector<SocketAddress> candidates);
  /// Looks up the name of the peer and then connects.
  void connect_by_name();
  /// Answers a connection request with `queue_pair`, which was made for it.
  void accept(std::unique_ptr<RdmaQueuePair> queue_pair, const CmEvent& request);

  // Called by the queue pair.
  void route_resolved();
  void try_next_address(const std::string& reason);
  void greeted(const Greeting& greeting);
  void connection_failed(const Status& status);
  void receive(MutableBytes bytes) { received_in_place(bytes); }
  void network_ready() { transmit(); }

 private:
  class WindowRegion;

  void transmit() override;
  std::unique_ptr<RegionMemory> make_region(uint64_t id, size_t size) override;
  Status apply_memory_window(const MemoryWindowBody& window) override;
  const PartHeader* memory_window_of(const RemoteRegion& region) const override;
  bool stage_message(Bytes bytes, size_t& room);
  bool stage_write(size_t& room);
  bool send_greeting();
  void drop_queue_pair();

  RdmaTransport& transport_;
  std::unique_ptr<RdmaQueuePair> queue_pair_;
  bool has_greeting_ = false;
  Greeting greeting_;                                             // the greeting of this side
  std::vector<SocketAddress> candidates_;                         // addresses to try, the next one last
  uint64_t lookup_ = 0;                                           // number of the lookup of the peer's name
  std::unordered_map<uint64_t, PartHeader> peer_memory_windows_;  // key and address by region
};

/// A listening identifier of rdma_cm, with the targets of its connections.
class RdmaListener final : public Listener, public CmSource {
 public:
  RdmaListener(RdmaTransport& transport, std::span<const Transport::AcceptTarget> targets)
      : CmSource(Kind::kListener), transport_(transport), round_robin_(targets) {}
  ~RdmaListener() override {
    if (id_ != nullptr) rdma_destroy_id(id_);
  }

  Status open(const Address& address);
  const Address& address() const override { return address_; }
  void close() override;
  const Transport::AcceptTarget& next() { return round_robin_.next(); }

 private:
  RdmaTransport& transport_;
  rdma_cm_id* id_ = nullptr;
  Address address_;
  RoundRobin round_robin_;
};

/// The transport over verbs.
class RdmaTransport final : public TransportBase {
 public:
  RdmaTransport(const TransportOptions& options, Fd epoll, Fd wakeup, rdma_event_channel* channel);
  ~RdmaTransport() override;

  Result<Listener*> listen(const Address& address, std::span<const AcceptTarget> targets) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override { waiter_.wake(); }
  const uint64_t& last_look_ns() const override { return waiter_.last_look_ns(); }

  using TransportBase::counters_;
  uint64_t now_ns() const override { return RealEnv::now_ns(); }

  // For connections, queue pairs and listeners.
  rdma_event_channel* channel() const { return channel_; }
  /// The device of `context`, opened at the first call.
  Result<RdmaDevice*> device_of(ibv_context* context);
  /// Handles all present completions of a device, and returns the number of received messages.
  int drain(RdmaDevice& device);
  /// Services the queue pair before the round ends, because it may send again or has credits to give back.
  void note_ready(RdmaQueuePair& queue_pair);
  /// Services the queue pair when buffers are free again.
  void note_starved(RdmaQueuePair& queue_pair);
  /// Keeps a queue pair until the last output of its connection is sent.
  void linger(std::unique_ptr<RdmaQueuePair> queue_pair);
  void remove(RdmaListener& listener);
  HostResolver& host_resolver() { return host_resolver_; }

 private:
  /// A connection request that another transport has received for this one.
  struct Handoff {
    rdma_cm_id* id;
    CmEvent request;
    Handler* handler;
  };

  /// Whether poll_once() also handles descriptors.
  enum class DescriptorPolling : uint8_t { kSkip, kPeriodically, kAlways };

  void watch(int fd, uint64_t mark);
  /// Handles completions and services queue pairs. Returns a number other than 0 if poll() has a reason to return.
  int poll_once(DescriptorPolling descriptors);
  int sleep(uint64_t timeout_ns);
  int wait(uint64_t timeout_ns);
  int handle_descriptors();
  int handle_cm_events();
  void dispatch(RdmaListener& listener, rdma_cm_id* id, const CmEvent& request);
  void accept_connection(rdma_cm_id* id, const CmEvent& request, Handler& handler);
  size_t accept_handoffs();
  void service_queue_pairs();
  void reap_lingering();
  uint64_t probe_interval_ns() const;
  void probe_queue_pairs(uint64_t now);
  void destroy(std::unique_ptr<RdmaQueuePair> queue_pair);

  EventWaiter waiter_;
  HostResolver host_resolver_{[this] { wake(); }};
  rdma_event_channel* const channel_;
  std::vector<std::unique_ptr<RdmaDevice>> devices_;
  std::vector<std::unique_ptr<RdmaListener>> listeners_;
  std::vector<std::unique_ptr<RdmaQueuePair>> lingering_;
  std::vector<RdmaQueuePair*> ready_, servicing_, starved_;
  unsigned descriptor_polls_ = 0;
  uint64_t next_probe_ns_ = 0;

  std::mutex handoffs_mutex_;
  std::vector<Handoff> handoffs_;  // guarded by handoffs_mutex_
};

}  // namespace loam::net
