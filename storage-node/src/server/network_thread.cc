// The loop of a network thread: poll, deliver messages of other threads, throttle. executor.cc executes the requests.
#include "storage-node/src/server/network_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "storage-node/src/server/cores.h"

namespace loam::storage {

static_assert(net::kFramingVersion == wire::kProtocolVersion,
              "the handshake carries one number for framing and messages: raise both");

namespace {

/// Upper bound on the sleep of a poll without events: an idle thread still frees retired memory.
constexpr uint64_t kIdlePollNs = 50'000'000;
/// A stopping thread has drained when no event arrives for this time.
constexpr uint64_t kDrainPollNs = 2'000'000;

}  // namespace

/// The connection of a client, as the executor sees it. It queues messages of other threads for a peer that reads
/// slowly. The credits of scans bound the queue, except for progress messages.
class NetworkThread::ConnectionPeer : public Peer {
 public:
  ConnectionPeer(PeerId id, net::Connection& connection) : Peer(id), connection_(connection) {}

  Status send(Bytes message) override { return connection_.send(message); }
  void close(Status status) override {
    connection_.flush();  // the replies before, which may say more than `status`: close() drops what has not left
    connection_.close(std::move(status));
  }
  std::string address() const override { return connection_.peer().to_string(); }

  void send_or_queue(OutgoingMessage outgoing) {
    if (queue_.empty() && deliver(outgoing)) return;
    Env::probe("node.scan.peer_reads_slowly");
    queued_bytes_ += size_of(outgoing);
    queue_.push_back(std::move(outgoing));
    if (queued_bytes_ <= kMaxPeerQueueBytes) return;
    close({StatusCode::kOverloaded, std::to_string(queued_bytes_) +
                                        " bytes of scans wait for this client, more than the limit: it does not read"});
    queue_.clear();
    queued_bytes_ = 0;
  }
  void send_queued() {
    while (!queue_.empty()) {
      const size_t size = size_of(queue_.front());
      const bool delivered = deliver(queue_.front());
      queued_bytes_ -= size - (delivered ? 0 : size_of(queue_.front()));
      if (!delivered) return;
      queue_.pop_front();
    }
  }
  /// Returns whether no message waits for the peer, or the connection is closed.
  bool drained() const { return !connection_.is_open() || (queue_.empty() && connection_.queued_bytes() == 0); }

 private:
  static size_t size_of(const OutgoingMessage& outgoing) {
    return outgoing.message.size() + outgoing.region_data.size();
  }
  /// Sends a message. Returns false if the connection accepts no more at present. Clears `region_data` once it is
  /// written, so that a repetition does not write it again.
  bool deliver(OutgoingMessage& outgoing) {
    if (!outgoing.region_data.empty()) {
      if (!connection_.write(outgoing.region, outgoing.offset, outgoing.region_data).ok()) return false;
      outgoing.region_data.clear();
    }
    return connection_.send(outgoing.message).ok();
  }

  net::Connection& connection_;
  std::deque<OutgoingMessage> queue_;
  size_t queued_bytes_ = 0;
};

NetworkThread::NetworkThread(size_t number, size_t threads, std::unique_ptr<net::Transport> transport,
                             Registry& registry, SessionTable& sessions, EpochDomain& epochs, const PagePool& pool,
                             const CompactionShare& share, const ExecuteOptions& execution)
    : number_(number),
      threads_(threads),
      transport_(std::move(transport)),
      registry_(registry),
      sessions_(sessions),
      epochs_(epochs),
      pool_(pool),
      share_(share),
      execution_(execution),
      write_throttle_(share.watermark()) {}

NetworkThread::~NetworkThread() { stop(); }

void NetworkThread::set_scans(ScanHandler& scans, PeerObserver& observer) {
  scans_ = &scans;
  observer_ = &observer;
}

void NetworkThread::run(std::optional<unsigned> core) {
  thread_ = Thread("loam-net-" + std::to_string(number_), [this, core] {
    if (core.has_value()) pin_to_core(*core);
    loop();
  });
}

void NetworkThread::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);  // relaxed: wake() and join() order what matters
  transport_->wake();
  thread_.join();
}

const ExecutorCounters* NetworkThread::counters() const {
  // Acquire: pairs with the release in loop(), so the executor is fully constructed.
  const Executor* executor = executor_.load(std::memory_order_acquire);
  return executor == nullptr ? nullptr : &executor->counters();
}

const latency::Recorder* NetworkThread::latencies() const {
  const Executor* executor = executor_.load(std::memory_order_acquire);  // acquire: as in counters()
  return executor == nullptr ? nullptr : &executor->latencies();
}

void NetworkThread::post(OutgoingMessage outgoing) {
  bool first;
  {
    const std::scoped_lock lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(outgoing));
  }
  // One wake-up suffices, because the thread takes all messages at once.
  if (first) transport_->wake();
}

void NetworkThread::loop() {
  epoch_thread_ = std::make_unique<EpochThread>(epochs_, "network " + std::to_string(number_));
  context_ = std::make_unique<ThreadContext>(*epoch_thread_, number_);
  executor_owner_ = std::make_unique<Executor>(registry_, sessions_, *scans_, *context_, execution_);
  executor_owner_->timer().watch(transport_->last_look_ns());
  // Release: pairs with the acquire in counters().
  executor_.store(executor_owner_.get(), std::memory_order_release);
  // Relaxed: see stop().
  while (!stopping_.load(std::memory_order_relaxed)) {
    // poll() calls on_messages() for each frame. A round without events has time to free retired memory.
    executor_owner_->timer().begin_round();
    const size_t events = transport_->poll(kIdlePollNs);
    deliver_posted();
    if (events == 0) executor_owner_->timer().idle();
    if (events == 0 && epoch_thread_->pending() > 0) epoch_thread_->collect(EpochThread::kFreesPerExit);
    throttle();
  }
  // Shutdown: answer the requests that have arrived, end the scans of all peers, and close the connections.
  drain();
  for (auto& [id, peer] : peers_) {
    observer_->peer_disconnected(id);
    peer->close({StatusCode::kUnavailable, "the storage node is stopping"});
  }
  transport_->poll(0);
  peers_.clear();
}

void NetworkThread::throttle() {
  const uint64_t appends = executor_owner_->counters().appends.read();
  const uint64_t fresh = appends - std::exchange(appends_seen_, appends);
  const double fill = pool_.fill();
  // delay_ns() of the write throttle runs in every round, because it drops its debt when memory is no longer short.
  // Of the two delays the longer one suffices: compaction proceeds during the whole sleep.
  const bool enforced = share_.enforced(fill);
  const uint64_t paced_ns = write_throttle_.delay_ns(fresh, fill, enforced && share_.collecting());
  if (!enforced) return;
  const uint64_t owed_ns = share_.delay_ns(number_, fill, Env::now_ns());
  const uint64_t delay_ns = std::max(paced_ns, owed_ns);
  if (delay_ns == 0) return;
  Env::probe("node.network.throttled");
  throttle_count_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
  executor_owner_->timer().slept(owed_ns > paced_ns ? latency::Stage::kCompaction : latency::Stage::kMemory, delay_ns);
  sleep_ns(delay_ns);
}

void NetworkThread::drain() {
  const uint64_t until_ns = Env::now_ns() + kDrainNs;
  const auto drained = [](const auto& peer) { return peer.second->drained(); };
  while (Env::now_ns() < until_ns) {
    const size_t events = transport_->poll(kDrainPollNs);
    deliver_posted();
    if (events == 0 && std::ranges::all_of(peers_, drained)) return;
  }
}

void NetworkThread::deliver_posted() {
  // Deliver outside of the lock, so that a post() of a scan thread waits for a swap at most.
  {
    const std::scoped_lock lock(mutex_);
    delivering_.swap(posted_);
  }
  for (OutgoingMessage& outgoing : delivering_) {
    const auto peer = peers_.find(outgoing.peer);
    if (peer == peers_.end()) continue;
    if (outgoing.close.has_value()) {
      peer->second->close(std::move(*outgoing.close));
    } else {
      peer->second->send_or_queue(std::move(outgoing));
    }
  }
  delivering_.clear();
}

void NetworkThread::on_connected(net::Connection& connection) {
  // The number of the thread is the rest of the id modulo `threads_`, so other threads find the outbox of a peer.
  const PeerId id = ++peers_made_ * threads_ + number_;
  auto peer = std::make_unique<ConnectionPeer>(id, connection);
  connection.set_context(peer.get());
  peers_.emplace(id, std::move(peer));
}

void NetworkThread::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  executor_owner_->run(*connection.context<ConnectionPeer>(), messages);
}

void NetworkThread::on_writable(net::Connection& connection) { connection.context<ConnectionPeer>()->send_queued(); }

void NetworkThread::on_closed(net::Connection& connection, const Status&) {
  const auto* peer = connection.context<ConnectionPeer>();
  if (peer == nullptr) return;
  const PeerId id = peer->id();
  if (peer->attached()) sessions_.detach(peer->session(), id);
  observer_->peer_disconnected(id);
  peers_.erase(id);
}

}  // namespace loam::storage
