#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/net/rdma_error.h"
#include "common/net/rdma_transport_impl.h"

namespace loam::net {
namespace {

/// Frames looked at in one turn.
constexpr size_t kMaxPieces = 32;

}  // namespace

RdmaLink::RdmaLink(RdmaTransport& transport, Handler& handler, Address peer, bool announced)
    : Link(transport, handler, std::move(peer), announced), transport_(transport) {}

RdmaLink::~RdmaLink() {
  if (lookup_ != 0) transport_.lookups().forget(lookup_);
  give_up_path();
}

void RdmaLink::give_up_path() {
  if (path_ == nullptr) return;
  path_->attach(nullptr);
  transport_.linger(std::move(path_));
}

// ---- opening --------------------------------------------------------------------------------------------------------

void RdmaLink::connect_by_name() {
  lookup_ = transport_.lookups().start(peer(), [this](NameLookups::Found found) {
    if (state() == State::kEnded) return;
    if (found.ok()) return connect(std::move(found).value());
    transport_.counters_.connections_refused.add(1);
    fail({found.code(), "cannot connect: " + std::string(found.status().message())});
  });
}

void RdmaLink::connect(std::vector<SocketAddress> candidates) {
  std::reverse(candidates.begin(), candidates.end());
  candidates_ = std::move(candidates);
  no_way("the name has no address");
}

void RdmaLink::no_way(const std::string& reason) {
  if (state() == State::kEnded) return;
  std::string last = reason;
  give_up_path();
  while (!candidates_.empty()) {
    const SocketAddress where = candidates_.back();
    candidates_.pop_back();
    path_ = std::make_unique<RdmaPath>(transport_, nullptr);
    path_->attach(this);
    const Status status = path_->resolve(where);
    if (status.ok()) return;
    last = status.message();
    give_up_path();
  }
  transport_.counters_.connections_refused.add(1);
  fail({StatusCode::kUnavailable, "cannot connect to " + peer().to_string() + ": " + last});
}

void RdmaLink::way_found() {
  if (state() == State::kEnded) return;
  Status status = path_->make_queue_pair();
  if (!status.ok()) {
    transport_.counters_.connections_refused.add(1);
    fail({status.code(), "cannot connect to " + peer().to_string() + ": " + std::string(status.message())});
    return;
  }
  if (state() == State::kOpening) {
    start(true);  // comes to transmit()
    return;
  }
  status = path_->greet(greeting_, true);  // the next candidate
  if (!status.ok()) no_way(std::string(status.message()));
}

void RdmaLink::accept(std::unique_ptr<RdmaPath> path, const CmEvent& request) {
  path_ = std::move(path);
  path_->attach(this);
  start(false);
  path_->on_cm_event(request);
}

void RdmaLink::greeted(const Greeting& greeting) {
  if (state() != State::kGreeting) return;
  std::array<std::byte, sizeof(Greeting)> bytes;
  write_as(bytes.data(), greeting);
  received_in_place(bytes);
}

void RdmaLink::broke(const Status& status) {
  // A connection that was never announced counts as refused.
  if (state() == State::kGreeting) transport_.counters_.connections_refused.add(1);
  if (status == StatusCode::kMalformed) transport_.counters_.connections_malformed.add(1);
  const bool named = status.message().find(peer().to_string()) != std::string_view::npos;
  fail(named ? status : Status(status.code(), peer().to_string() + ": " + std::string(status.message())));
}

bool RdmaLink::take_greeting() {
  if (has_greeting_) return true;
  iovec piece{};
  if (gather(&piece, 1) == 0) return false;
  // The queue is this link's own: what the peer sends does not come here.
  LOAM_CHECK(piece.iov_len == sizeof(Greeting), "a link greets before it says anything else");
  greeting_ = read_as<Greeting>(static_cast<const std::byte*>(piece.iov_base));
  has_greeting_ = true;
  sent(sizeof(Greeting));
  const bool active = greeting_.kind == GreetingKind::kHello;
  Status status = path_->greet(greeting_, active);
  if (status.ok()) return true;
  if (active) {
    no_way(std::string(status.message()));
  } else {
    broke(status);
  }
  return false;
}

// ---- sending --------------------------------------------------------------------------------------------------------

void RdmaLink::transmit() {
  if (path_ == nullptr || !take_greeting()) return;
  const bool last_words = state() == State::kEnded;
  std::array<iovec, kMaxPieces> pieces;
  bool more = true;
  while (more) {
    size_t room = path_->room(last_words);
    const size_t count = room == 0 ? 0 : gather(pieces.data(), std::min(room, pieces.size()));
    more = count > 0;
    for (size_t i = 0; i < count && more; ++i) {
      const Bytes bytes(static_cast<const std::byte*>(pieces[i].iov_base), pieces[i].iov_len);
      more = first_frame().direct ? stage_write(room) : stage_message(bytes, room);
    }
    path_->push(last_words);
  }
  path_->push(last_words);
}

bool RdmaLink::stage_message(Bytes bytes, size_t& room) {
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), path_->message_bytes()));
    if (room == 0 || !path_->stage(part)) return false;
    --room;
    bytes = bytes.subspan(part.size());
    sent(part.size());
  }
  return true;
}

/// The first frame is for the peer's device: its bytes go to their place, and nothing around them.
bool RdmaLink::stage_write(size_t& room) {
  const OutFrame& frame = first_frame();
  if (frame.sent_bytes == 0) passed_over(kPartOverheadBytes);
  const auto head = read_as<PartHeader>(frame.bytes + kFrameOverheadBytes);
  const size_t size = frame.header.a;
  const size_t padding = frame.size_bytes - kPartOverheadBytes - size;
  size_t done = frame.sent_bytes - kPartOverheadBytes;
  while (done < size) {
    const RemotePlace where{head.offset + done, static_cast<uint32_t>(head.whole)};
    const Bytes part(frame.bytes + kPartOverheadBytes + done, std::min(size - done, kChunkBytes));
    if (room == 0 || !path_->stage(part, &where)) return false;
    --room;
    done += part.size();
    sent(part.size() + (done == size ? padding : 0));  // the frame dies with its last byte
  }
  return true;
}

// ---- windows --------------------------------------------------------------------------------------------------------

/// A region within reach of the peer's device.
class RdmaLink::Window final : public RegionMemory {
 public:
  Window(RdmaLink& link, uint64_t id, RdmaBlock& block, size_t size)
      : link_(link), id_(id), block_(block), size_(size) {}
  void withdraw() override {
    if (link_.path_ == nullptr) return;
    link_.path_->retract(block_);
    if (link_.state() == State::kOpen) link_.queue_window({.region = id_});
  }
  MutableBytes bytes() override { return block_.memory.first(size_); }

 private:
  RdmaLink& link_;
  const uint64_t id_;
  RdmaBlock& block_;  // the path's, which outlives the link
  const size_t size_;
};

std::unique_ptr<RegionMemory> RdmaLink::make_region(uint64_t id, size_t size) {
  uint32_t key = 0;
  RdmaBlock* block = state() == State::kOpen && path_ != nullptr ? path_->expose(size, key) : nullptr;
  if (block == nullptr) return Link::make_region(id, size);
  queue_window({.region = id, .address = reinterpret_cast<uintptr_t>(block->memory.data()), .size = size, .key = key});
  return std::make_unique<Window>(*this, id, *block, size);
}

Status RdmaLink::take_window(const WindowBody& window) {
  if (window.size == 0) {
    windows_.erase(window.region);
    return ok_status();
  }
  if (windows_.size() >= kMaxRegions || !windows_.try_emplace(window.region, window.key, window.address).second) {
    return {StatusCode::kMalformed, "a window for region " + std::to_string(window.region) + ", one too many"};
  }
  return ok_status();
}

const PartHeader* RdmaLink::window_of(const RemoteRegion& region) const {
  const auto found = windows_.find(region.id);
  return found == windows_.end() ? nullptr : &found->second;
}

}  // namespace loam::net
