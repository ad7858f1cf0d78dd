#include "storage-node/src/server/network_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "storage-node/src/server/cores.h"

namespace loam::storage {

static_assert(net::kProtocolVersion == wire::kProtocolVersion,
              "the handshake carries one number for framing and messages: raise both");

namespace {

/// How long a poll may sleep when nothing happens: an idle thread still lets epochs and its limbo move on.
constexpr uint64_t kIdlePollNs = 50'000'000;
/// While the thread stops: how long nothing must come before it is done.
constexpr uint64_t kDrainPollNs = 2'000'000;

}  // namespace

/// A connection as the executor sees it. What other threads send may have to wait for a peer that reads slowly; the
/// scans' credits bound how much, but for a line of progress now and then.
class NetworkThread::ConnectionPeer : public Peer {
 public:
  ConnectionPeer(PeerId id, net::Connection& connection) : Peer(id), connection_(connection) {}

  Status send(Bytes message) override { return connection_.send(message); }
  void close(Status status) override { connection_.close(std::move(status)); }

  void send_or_keep(Outgoing outgoing) {
    if (waiting_.empty() && deliver(outgoing)) return;
    Env::probe("node.scan.peer_reads_slowly");
    waiting_bytes_ += size_of(outgoing);
    waiting_.push_back(std::move(outgoing));
    if (waiting_bytes_ <= kMaxWaitingBytes) return;
    close({StatusCode::kOverloaded, std::to_string(waiting_bytes_) +
                                        " bytes of scans wait for this client, more than are kept: it does not read"});
    waiting_.clear();
    waiting_bytes_ = 0;
  }
  void send_waiting() {
    while (!waiting_.empty()) {
      const size_t size = size_of(waiting_.front());
      const bool delivered = deliver(waiting_.front());
      waiting_bytes_ -= size - (delivered ? 0 : size_of(waiting_.front()));
      if (!delivered) return;
      waiting_.pop_front();
    }
  }
  /// Everything for the peer has been given to the network, or cannot be any more.
  bool drained() const { return !connection_.is_open() || (waiting_.empty() && connection_.queued_bytes() == 0); }

 private:
  static size_t size_of(const Outgoing& outgoing) { return outgoing.message.size() + outgoing.written.size(); }
  /// False: not yet; what has been written is not written again.
  bool deliver(Outgoing& outgoing) {
    if (!outgoing.written.empty()) {
      if (!connection_.write(outgoing.region, outgoing.offset, outgoing.written).ok()) return false;
      outgoing.written.clear();
    }
    return connection_.send(outgoing.message).ok();
  }

  net::Connection& connection_;
  std::deque<Outgoing> waiting_;
  size_t waiting_bytes_ = 0;
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
      pace_(share.watermark()) {}

NetworkThread::~NetworkThread() { stop(); }

void NetworkThread::set_scans(ScanPort& scans, PeerListener& listener) {
  scans_ = &scans;
  listener_ = &listener;
}

void NetworkThread::run(std::optional<unsigned> core) {
  thread_ = Thread("loam-net-" + std::to_string(number_), [this, core] {
    if (core.has_value()) run_on(*core);
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
  // Acquire: pairs with the release in loop(), the executor is complete.
  const Executor* executor = executor_.load(std::memory_order_acquire);
  return executor == nullptr ? nullptr : &executor->counters();
}

void NetworkThread::post(Outgoing outgoing) {
  bool first;
  {
    const std::scoped_lock lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(outgoing));
  }
  if (first) transport_->wake();
}

void NetworkThread::loop() {
  epoch_thread_ = std::make_unique<EpochThread>(epochs_, "network " + std::to_string(number_));
  context_ = std::make_unique<ThreadContext>(*epoch_thread_, number_);
  executor_owner_ = std::make_unique<Executor>(registry_, sessions_, *scans_, *context_, execution_);
  // Release: pairs with the acquire in counters().
  executor_.store(executor_owner_.get(), std::memory_order_release);
  // Relaxed: see stop().
  while (!stopping_.load(std::memory_order_relaxed)) {
    const size_t events = transport_->poll(kIdlePollNs);
    deliver_posted();
    if (events == 0 && epoch_thread_->pending() > 0) epoch_thread_->collect(EpochThread::kFreesPerExit);
    give_way();
  }
  drain();
  for (auto& [id, peer] : peers_) {
    listener_->peer_gone(id);
    peer->close({StatusCode::kUnavailable, "the storage node is stopping"});
  }
  transport_->poll(0);
  peers_.clear();
}

void NetworkThread::give_way() {
  const uint64_t appends = executor_owner_->counters().appends.read();
  const uint64_t fresh = appends - std::exchange(appends_seen_, appends);
  const double fill = pool_.fill();
  const bool owes = share_.owes(fill);
  const uint64_t paced_ns = pace_.add(fresh, fill, owes && share_.collecting());
  if (!owes) return;
  const uint64_t owed_ns = std::max(paced_ns, share_.owed_ns(number_, fill, Env::now_ns()));
  if (owed_ns == 0) return;
  Env::probe("node.network.gave_way");
  gave_way_.fetch_add(1, std::memory_order_relaxed);  // a statistic
  sleep_ns(owed_ns);
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
  {
    const std::scoped_lock lock(mutex_);
    delivering_.swap(posted_);
  }
  for (Outgoing& outgoing : delivering_) {
    const auto peer = peers_.find(outgoing.peer);
    if (peer == peers_.end()) continue;
    if (outgoing.close.has_value()) {
      peer->second->close(std::move(*outgoing.close));
    } else {
      peer->second->send_or_keep(std::move(outgoing));
    }
  }
  delivering_.clear();
}

void NetworkThread::on_connected(net::Connection& connection) {
  const PeerId id = ++peers_made_ * threads_ + number_;
  auto peer = std::make_unique<ConnectionPeer>(id, connection);
  connection.set_context(peer.get());
  peers_.emplace(id, std::move(peer));
}

void NetworkThread::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  executor_owner_->run(*connection.context<ConnectionPeer>(), messages);
}

void NetworkThread::on_writable(net::Connection& connection) { connection.context<ConnectionPeer>()->send_waiting(); }

void NetworkThread::on_closed(net::Connection& connection, const Status&) {
  const auto* peer = connection.context<ConnectionPeer>();
  if (peer == nullptr) return;
  const PeerId id = peer->id();
  if (peer->attached()) sessions_.detach(peer->session(), id);
  listener_->peer_gone(id);
  peers_.erase(id);
}

}  // namespace loam::storage
