// One connection over verbs: it moves frames between ConnectionBase and a queue pair, and offers regions through memory
// windows. rdma_queue_pair.cc has the work requests, and rdma_transport.cc listening and polling.

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/net/rdma/rdma_error.h"
#include "common/net/rdma/rdma_transport_impl.h"

namespace loam::net {
namespace {

/// Frames processed in one iteration of transmit().
constexpr size_t kMaxPieces = 32;

}  // namespace

RdmaConnection::RdmaConnection(RdmaTransport& transport, Handler& handler, Address peer, bool announced)
    : ConnectionBase(transport, handler, std::move(peer), announced), transport_(transport) {}

RdmaConnection::~RdmaConnection() {
  if (lookup_ != 0) transport_.host_resolver().cancel(lookup_);
  drop_queue_pair();
}

void RdmaConnection::drop_queue_pair() {
  if (queue_pair_ == nullptr) return;
  // The last output, such as the goodbye, may still wait for credits, so the queue pair outlives its connection.
  queue_pair_->attach(nullptr);
  transport_.linger(std::move(queue_pair_));
}

// ---- opening --------------------------------------------------------------------------------------------------------

void RdmaConnection::connect_by_name() {
  lookup_ = transport_.host_resolver().submit(peer(), [this](HostResolver::ResolveResult found) {
    if (state() == State::kEnded) return;
    if (found.ok()) return connect(std::move(found).value());
    transport_.counters_.connections_refused.add(1);
    fail({found.code(), "cannot connect: " + std::string(found.status().message())});
  });
}

void RdmaConnection::connect(std::vector<SocketAddress> candidates) {
  std::reverse(candidates.begin(), candidates.end());
  candidates_ = std::move(candidates);
  try_next_address("the name has no address");
}

void RdmaConnection::try_next_address(const std::string& reason) {
  if (state() == State::kEnded) return;
  std::string last = reason;
  drop_queue_pair();
  while (!candidates_.empty()) {
    const SocketAddress where = candidates_.back();
    candidates_.pop_back();
    // Each address gets a queue pair of its own, because another device may have the route to it.
    queue_pair_ = std::make_unique<RdmaQueuePair>(transport_, nullptr);
    queue_pair_->attach(this);
    const Status status = queue_pair_->resolve(where);
    if (status.ok()) return;
    last = status.message();
    drop_queue_pair();
  }
  transport_.counters_.connections_refused.add(1);
  fail({StatusCode::kUnavailable, "cannot connect to " + peer().to_string() + ": " + last});
}

void RdmaConnection::route_resolved() {
  if (state() == State::kEnded) return;
  Status status = queue_pair_->make_queue_pair();
  if (!status.ok()) {
    transport_.counters_.connections_refused.add(1);
    fail({status.code(), "cannot connect to " + peer().to_string() + ": " + std::string(status.message())});
    return;
  }
  if (state() == State::kOpening) {
    start(true);  // calls transmit(), which sends the greeting
    return;
  }
  status = queue_pair_->greet(greeting_, true);  // a later candidate gets the greeting of the first attempt
  if (!status.ok()) try_next_address(std::string(status.message()));
}

void RdmaConnection::accept(std::unique_ptr<RdmaQueuePair> queue_pair, const CmEvent& request) {
  queue_pair_ = std::move(queue_pair);
  queue_pair_->attach(this);
  start(false);
  queue_pair_->on_cm_event(request);
}

void RdmaConnection::greeted(const Greeting& greeting) {
  if (state() != State::kGreeting) return;
  std::array<std::byte, sizeof(Greeting)> bytes;
  write_as(bytes.data(), greeting);
  received_in_place(bytes);
}

void RdmaConnection::connection_failed(const Status& status) {
  // A connection that fails before its handshake is complete counts as refused.
  if (state() == State::kGreeting) transport_.counters_.connections_refused.add(1);
  if (status == StatusCode::kMalformed) transport_.counters_.connections_malformed.add(1);
  // The owner needs to know which connection ended, so a message without the address of the peer gets it.
  const bool named = status.message().find(peer().to_string()) != std::string_view::npos;
  fail(named ? status : Status(status.code(), peer().to_string() + ": " + std::string(status.message())));
}

bool RdmaConnection::send_greeting() {
  if (has_greeting_) return true;
  // rdma_cm carries the greeting as private data, so it leaves the output here and takes no network message.
  iovec piece{};
  if (gather(&piece, 1) == 0) return false;
  // An assertion is allowed here: the output consists of frames of this side only.
  LOAM_CHECK(piece.iov_len == sizeof(Greeting), "a connection sends its greeting first");
  greeting_ = read_as<Greeting>(static_cast<const std::byte*>(piece.iov_base));
  has_greeting_ = true;
  sent(sizeof(Greeting));
  const bool active = greeting_.kind == GreetingKind::kHello;
  Status status = queue_pair_->greet(greeting_, active);
  if (status.ok()) return true;
  if (active) {
    try_next_address(std::string(status.message()));
  } else {
    connection_failed(status);
  }
  return false;
}

// ---- sending --------------------------------------------------------------------------------------------------------

void RdmaConnection::transmit() {
  if (queue_pair_ == nullptr || !send_greeting()) return;
  const bool final_send = state() == State::kEnded;
  std::array<iovec, kMaxPieces> pieces;
  bool more = true;
  while (more) {
    // gather() takes credits for the frames that it returns, so it is asked for no more frames than there is room for
    // messages. A large frame takes several messages. If the room ends inside it, sent_bytes keeps the place.
    size_t room = queue_pair_->room(final_send);
    const size_t count = room == 0 ? 0 : gather(pieces.data(), std::min(room, pieces.size()));
    more = count > 0;
    for (size_t i = 0; i < count && more; ++i) {
      const Bytes bytes(static_cast<const std::byte*>(pieces[i].iov_base), pieces[i].iov_len);
      more = first_frame().direct ? stage_write(room) : stage_message(bytes, room);
    }
    queue_pair_->push(final_send);
  }
  queue_pair_->push(final_send);
}

bool RdmaConnection::stage_message(Bytes bytes, size_t& room) {
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), queue_pair_->message_bytes()));
    if (room == 0 || !queue_pair_->stage(part)) return false;
    --room;
    bytes = bytes.subspan(part.size());
    sent(part.size());
  }
  return true;
}

/// Stages the first frame as one-sided writes of the peer's device. Only its data travels, without headers and padding.
bool RdmaConnection::stage_write(size_t& room) {
  const OutFrame& frame = first_frame();
  if (frame.sent_bytes == 0) skip_output(kPartOverheadBytes);
  const auto head = read_as<PartHeader>(frame.bytes + kFrameOverheadBytes);
  const size_t size = frame.header.a;
  const size_t padding = frame.size_bytes - kPartOverheadBytes - size;
  size_t done = frame.sent_bytes - kPartOverheadBytes;
  while (done < size) {
    // A write has at most the size of a buffer. The peer sees the writes in order, before any later message.
    const RemotePlace where{head.offset + done, static_cast<uint32_t>(head.whole)};
    const Bytes part(frame.bytes + kPartOverheadBytes + done, std::min(size - done, kRdmaBufferBytes));
    if (room == 0 || !queue_pair_->stage(part, &where)) return false;
    --room;
    done += part.size();
    sent(part.size() + (done == size ? padding : 0));  // the last byte releases the frame
  }
  return true;
}

// ---- memory windows -------------------------------------------------------------------------------------------------

/// A region into which the peer's device writes.
class RdmaConnection::WindowRegion final : public RegionMemory {
 public:
  WindowRegion(RdmaConnection& connection, uint64_t id, RdmaBlock& block, size_t size)
      : connection_(connection), id_(id), block_(block), size_(size) {}
  void withdraw() override {
    if (connection_.queue_pair_ == nullptr) return;
    // The device ends the peer's access. The frame lets the peer drop its entry for the region.
    connection_.queue_pair_->retract(block_);
    if (connection_.state() == State::kOpen) connection_.queue_memory_window({.region = id_});
  }
  MutableBytes bytes() override { return block_.memory.first(size_); }

 private:
  RdmaConnection& connection_;
  const uint64_t id_;
  RdmaBlock& block_;  // belongs to the queue pair, which outlives the connection
  const size_t size_;
};

std::unique_ptr<RegionMemory> RdmaConnection::make_region(uint64_t id, size_t size) {
  uint32_t key = 0;
  RdmaBlock* block = state() == State::kOpen && queue_pair_ != nullptr ? queue_pair_->expose(size, key) : nullptr;
  // Without a block, such as at the limit of registered memory, the peer's writes travel as frames.
  if (block == nullptr) return ConnectionBase::make_region(id, size);
  queue_memory_window(
      {.region = id, .address = reinterpret_cast<uintptr_t>(block->memory.data()), .size = size, .key = key});
  return std::make_unique<WindowRegion>(*this, id, *block, size);
}

Status RdmaConnection::apply_memory_window(const MemoryWindowBody& window) {
  if (window.size == 0) {
    peer_memory_windows_.erase(window.region);
    return ok_status();
  }
  // The limit bounds the memory that a peer can make this side use.
  if (peer_memory_windows_.size() >= kMaxRegions ||
      !peer_memory_windows_.try_emplace(window.region, window.key, window.address).second) {
    return {StatusCode::kMalformed, "a memory window for region " + std::to_string(window.region) +
                                        ", which has one already or exceeds the limit of regions"};
  }
  return ok_status();
}

const PartHeader* RdmaConnection::memory_window_of(const RemoteRegion& region) const {
  const auto found = peer_memory_windows_.find(region.id);
  return found == peer_memory_windows_.end() ? nullptr : &found->second;
}

}  // namespace loam::net
