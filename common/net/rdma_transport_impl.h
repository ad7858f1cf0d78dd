// The verbs transport's classes. Internal: rdma_transport.cc (polling, listening), rdma_link.cc (one connection). The
// conversation with the network is in rdma_path.h, memory and queues in rdma_device.h.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/env.h"
#include "common/net/name_lookup.h"
#include "common/net/rdma_device.h"
#include "common/net/rdma_path.h"
#include "common/net/transport_base.h"
#include "common/net/waiter.h"

namespace loam::net {

class RdmaTransport;

class RdmaLink final : public Link {
 public:
  RdmaLink(RdmaTransport& transport, Handler& handler, Address peer, bool announced);
  ~RdmaLink() override;

  /// Tries the addresses one after the other.
  void connect(std::vector<SocketAddress> candidates);
  /// Connects when the name has been looked up.
  void connect_by_name();
  /// Answers a connection request that `path` stands for.
  void accept(std::unique_ptr<RdmaPath> path, const CmEvent& request);

  // What the path tells.
  void way_found();
  void no_way(const std::string& reason);
  void greeted(const Greeting& greeting);
  void broke(const Status& status);
  void take(MutableBytes bytes) { received_in_place(bytes); }
  void network_ready() { transmit(); }

 private:
  class Window;

  void transmit() override;
  std::unique_ptr<RegionMemory> make_region(uint64_t id, size_t size) override;
  Status take_window(const WindowBody& window) override;
  const PartHeader* window_of(const RemoteRegion& region) const override;
  bool stage_message(Bytes bytes, size_t& room);
  bool stage_write(size_t& room);
  bool take_greeting();
  void give_up_path();

  RdmaTransport& transport_;
  std::unique_ptr<RdmaPath> path_;
  bool has_greeting_ = false;
  Greeting greeting_;                                 // this side's
  std::vector<SocketAddress> candidates_;             // the next one last
  uint64_t lookup_ = 0;                               // of its name, under way
  std::unordered_map<uint64_t, PartHeader> windows_;  // of the peer: key and address by region
};

class RdmaListener final : public Listener, public CmSource {
 public:
  RdmaListener(RdmaTransport& transport, std::span<const Transport::Share> shares)
      : CmSource(Kind::kListener), transport_(transport), turns_(shares) {}
  ~RdmaListener() override {
    if (id_ != nullptr) rdma_destroy_id(id_);
  }

  Status open(const Address& address);
  const Address& address() const override { return address_; }
  void close() override;
  const Transport::Share& next() { return turns_.next(); }

 private:
  RdmaTransport& transport_;
  rdma_cm_id* id_ = nullptr;
  Address address_;
  Turns turns_;
};

class RdmaTransport final : public TransportBase {
 public:
  RdmaTransport(const TransportOptions& options, Fd epoll, Fd bell, rdma_event_channel* channel);
  ~RdmaTransport() override;

  Result<Listener*> listen(const Address& address, std::span<const Share> shares) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override { waiter_.wake(); }

  using TransportBase::counters_;
  uint64_t now_ns() const override { return RealEnv::now_ns(); }

  // For links, paths and listeners.
  rdma_event_channel* channel() const { return channel_; }
  /// This transport's share of the device, opened when it is first asked for.
  Result<RdmaDevice*> device_of(ibv_context* context);
  /// Handles all completions that are there.
  int drain(RdmaDevice& device);
  /// The path may send again, or owes credits: looked at before the round ends.
  void note_ready(RdmaPath& path);
  /// The path waits for a chunk.
  void note_starved(RdmaPath& path);
  /// Keeps a path until its last words are sent.
  void linger(std::unique_ptr<RdmaPath> path);
  void remove(RdmaListener& listener);
  NameLookups& lookups() { return lookups_; }

 private:
  /// A connection request that another transport has got for this one.
  struct Handed {
    rdma_cm_id* id;
    CmEvent request;
    Handler* handler;
  };

  /// What a look does about descriptors.
  enum class Descriptors : uint8_t { kLeave, kNowAndThen, kHandle };

  void watch(int fd, uint64_t mark);
  /// Handles completions, and gives paths their turn. Not 0 if there is something to return for.
  int look(Descriptors descriptors);
  int sleep(uint64_t timeout_ns);
  int wait(uint64_t timeout_ns);
  int handle_descriptors();
  int handle_cm_events();
  void deal(RdmaListener& listener, rdma_cm_id* id, const CmEvent& request);
  void take(rdma_cm_id* id, const CmEvent& request, Handler& handler);
  size_t take_handed();
  void attend_paths();
  void sweep();
  uint64_t probe_interval_ns() const;
  void probe_paths(uint64_t now);
  void destroy(std::unique_ptr<RdmaPath> path);

  Waiter waiter_;
  NameLookups lookups_{[this] { wake(); }};
  rdma_event_channel* const channel_;
  std::vector<std::unique_ptr<RdmaDevice>> devices_;
  std::vector<std::unique_ptr<RdmaListener>> listeners_;
  std::vector<std::unique_ptr<RdmaPath>> lingering_;
  std::vector<RdmaPath*> ready_, attending_, starved_;
  unsigned looks_ = 0;
  uint64_t next_probe_ns_ = 0;

  std::mutex handed_mutex_;
  std::vector<Handed> handed_;  // guarded by handed_mutex_
};

}  // namespace loam::net
