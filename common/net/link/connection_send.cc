// The sending half of a connection: reservation, frames, use of credits, one-sided writes, the end.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/net/link/connection_base.h"
#include "common/net/link/transport_base.h"

namespace loam::net {
namespace {

/// Number of waiting frames beyond which commit() sends before the end of the round. The network then works while the
/// owner continues, and the frames are still in the cache.
constexpr size_t kFlushFrames = 4;
/// Largest size at which the buffer for large messages is kept.
constexpr size_t kKeptLargeBytes = 1024 * 1024;

}  // namespace

ConnectionBase::ConnectionBase(TransportBase& host, Handler& handler, Address peer, bool announced)
    : host_(host),
      handler_(handler),
      peer_(std::move(peer)),
      deadline_ns_(host.now_ns() + host.options().handshake_timeout_ns),
      announced_(announced),
      max_message_bytes_(host.options().max_message_bytes) {}

ConnectionBase::~ConnectionBase() {
  while (head_ != nullptr) host_.frames_.release(std::unique_ptr<OutFrame>(std::exchange(head_, head_->next)));
  if (block_ != nullptr) host_.blocks_.release(std::move(block_));
}

void ConnectionBase::request_service() {
  if (service_pending_) return;
  service_pending_ = true;
  host_.service_pending_.push_back(this);
}

// ---- messages -------------------------------------------------------------------------------------------------------

bool ConnectionBase::accepts(size_t size) const {
  if (state_ == State::kEnded || size == 0 || size > max_message_bytes_) return false;
  // An empty queue accepts every message, because one that is larger than the limit could otherwise never be sent.
  return queued_bytes_ == 0 || queued_bytes_ + message_footprint(size) <= host_.options().max_queued_bytes;
}

Status ConnectionBase::refusal(size_t size) const {
  if (state_ == State::kEnded)
    return {StatusCode::kUnavailable, "the connection to " + peer_.to_string() + " is closed"};
  if (size == 0) return {StatusCode::kInvalidArgument, "a message has at least one byte"};
  if (size > max_message_bytes_) {
    return {StatusCode::kInvalidArgument, "a message of " + std::to_string(size) + " bytes for " + peer_.to_string() +
                                              "; the limit is " + std::to_string(max_message_bytes_)};
  }
  if (!accepts(size)) {
    return {StatusCode::kOverloaded, std::to_string(queued_bytes_) + " bytes wait for " + peer_.to_string() +
                                         "; send again when the connection is writable"};
  }
  return ok_status();
}

std::byte* ConnectionBase::reserve(size_t size) {
  LOAM_DCHECK(reserved_ == 0, "two reservations at a time on one connection");
  if (!accepts(size)) {
    if (state_ != State::kEnded && size != 0 && size <= max_message_bytes_) {
      // The queue is full. Only this reason of a refusal ends when the network accepts bytes, so only here
      // on_writable() is requested.
      want_writable_ = true;
      host_.counters_.overloads.add(1);
    }
    return nullptr;
  }
  reserved_ = size;
  // A message that fits into a frame is encoded in the tail frame itself, without a copy. A larger one is encoded in
  // large_, and commit() copies it into fragments.
  const size_t footprint = message_footprint(size);
  if (footprint > max_frame_out_ - kFrameOverheadBytes) {
    if (large_.size() < size) large_.resize(size);
    reserved_at_ = large_.data();
    return reserved_at_;
  }
  if (!room_in_tail(footprint)) append_frame(FrameType::kMessages);
  reserved_at_ = tail_->bytes + tail_->size_bytes + sizeof(MessageHeader);
  return reserved_at_;
}

bool ConnectionBase::room_in_tail(size_t footprint) const {
  return tail_ != nullptr && !tail_->finalized && tail_->header.type == FrameType::kMessages &&
         tail_->size_bytes + footprint <= max_frame_out_;
}

void ConnectionBase::commit(size_t size) {
  // An assertion is allowed here: the size comes from the caller's own encoder, never from bytes of the peer.
  LOAM_CHECK(size <= reserved_, "commit() of more than was reserved");
  const bool large = reserved_at_ == large_.data() && !large_.empty();
  reserved_ = 0;
  reserved_at_ = nullptr;
  if (size == 0) return;  // a tail frame that reserve() has opened stays for the next message
  host_.counters_.messages_out.add(1);
  largest_queued_ = std::max(largest_queued_, size);
  if (large) {
    queue_parts(FrameType::kFragment, {size, 0}, Bytes(large_).first(size));
    if (large_.size() > kKeptLargeBytes) std::vector<std::byte>().swap(large_);
  } else {
    std::byte* at = tail_->bytes + tail_->size_bytes;
    const size_t footprint = message_footprint(size);
    write_as(at, MessageHeader{static_cast<uint32_t>(size), 0});
    std::memset(at + sizeof(MessageHeader) + size, 0, footprint - sizeof(MessageHeader) - size);
    tail_->size_bytes += static_cast<uint32_t>(footprint);
    ++tail_->header.a;
    note_queued(*tail_, footprint);
  }
  request_service();
  if (waiting_frames_ > kFlushFrames && state_ == State::kOpen && credits_ > 0) transmit();
}

void ConnectionBase::note_queued(OutFrame& frame, size_t bytes) {
  frame.queued_bytes += static_cast<uint32_t>(bytes);
  queued_bytes_ += bytes;
}

void ConnectionBase::queue_parts(FrameType type, PartHeader head, Bytes bytes, bool direct) {
  // Each part takes a frame of its own, because a fragment and a write have a header for the whole frame.
  while (!bytes.empty()) {
    OutFrame& frame = append_frame(type);
    const size_t size = std::min(bytes.size(), max_frame_out_ - kPartOverheadBytes);
    const size_t padded = round_up(size, kFrameAlignment);
    frame.direct = direct;
    write_as(frame.bytes + kFrameOverheadBytes, head);
    std::memcpy(frame.bytes + kPartOverheadBytes, bytes.data(), size);
    std::memset(frame.bytes + kPartOverheadBytes + size, 0, padded - size);
    frame.header.a = static_cast<uint32_t>(size);
    frame.size_bytes = static_cast<uint32_t>(kPartOverheadBytes + padded);
    note_queued(frame, sizeof(PartHeader) + padded);
    head.offset += size;
    bytes = bytes.subspan(size);
  }
}

Status ConnectionBase::write(const RemoteRegion& region, uint64_t offset, Bytes bytes) {
  LOAM_DCHECK(reserved_ == 0, "a write between reserve() and commit()");
  if (offset > region.size || bytes.size() > region.size - offset) {
    return {StatusCode::kInvalidArgument, "a write of " + std::to_string(bytes.size()) + " bytes at " +
                                              std::to_string(offset) + " of a region of " +
                                              std::to_string(region.size)};
  }
  if (bytes.empty()) return ok_status();
  if (!accepts(bytes.size())) {
    static_cast<void>(reserve(bytes.size()));  // fails, counts the refusal, and requests on_writable()
    return refusal(bytes.size());
  }
  if (const PartHeader* window = memory_window_of(region); window != nullptr) {
    // The peer's device carries out the write. It stays in the order of the other frames.
    queue_parts(FrameType::kWrite, {window->whole, window->offset + offset}, bytes, true);
  } else {
    queue_parts(FrameType::kWrite, {region.id, offset}, bytes);
  }
  request_service();
  return ok_status();
}

const PartHeader* ConnectionBase::memory_window_of(const RemoteRegion&) const { return nullptr; }

// ---- the list of frames ---------------------------------------------------------------------------------------------

OutFrame& ConnectionBase::append_frame(FrameType type) {
  OutFrame* frame = host_.frames_.acquire().release();
  frame->next = nullptr;
  frame->size_bytes = kFrameOverheadBytes;
  frame->sent_bytes = 0;
  frame->queued_bytes = 0;
  frame->header = FrameHeader{0, type, 0, 0, 0, 0};
  frame->finalized = false;
  frame->direct = false;
  (tail_ == nullptr ? head_ : tail_->next) = frame;
  tail_ = frame;
  ++waiting_frames_;
  return *frame;
}

void ConnectionBase::insert_after_finalized(std::unique_ptr<OutFrame> owned) {
  // A control frame takes no credit and overtakes the waiting frames. So two sides that have both used up their credits
  // still give each other new ones. It follows the finalized frames, because the first of them may be sent in part.
  OutFrame* frame = owned.release();
  OutFrame*& place = last_finalized_ == nullptr ? head_ : last_finalized_->next;
  frame->next = place;
  frame->sent_bytes = 0;
  frame->queued_bytes = 0;
  frame->finalized = true;
  frame->direct = false;
  place = frame;
  if (tail_ == last_finalized_) tail_ = frame;
  last_finalized_ = frame;
}

void ConnectionBase::finalize(OutFrame& frame) {
  // Every frame carries the credits that are due, so two sides that both send need few credit frames.
  const auto credits = static_cast<uint16_t>(std::min<uint32_t>(credits_to_return_, UINT16_MAX));
  credits_to_return_ -= credits;
  credits_outstanding_ -= credits;
  frame.header.size_bytes = frame.size_bytes;
  frame.header.credits = credits;
  write_as(frame.bytes, frame.header);
  frame.finalized = true;
}

void ConnectionBase::queue_greeting(GreetingKind kind, StatusCode code) {
  Greeting greeting;
  greeting.protocol_version = host_.options().protocol_version;
  greeting.kind = kind;
  greeting.code = static_cast<uint32_t>(code);
  greeting.max_frame_bytes = static_cast<uint32_t>(host_.options().max_frame_bytes);
  greeting.window_frames = host_.options().window_frames;
  greeting.max_message_bytes = host_.options().max_message_bytes;
  std::unique_ptr<OutFrame> frame = host_.frames_.acquire();
  write_as(frame->bytes, greeting);
  frame->size_bytes = sizeof(Greeting);
  insert_after_finalized(std::move(frame));
}

void ConnectionBase::queue_credits() {
  std::unique_ptr<OutFrame> frame = host_.frames_.acquire();
  frame->size_bytes = kFrameOverheadBytes;
  frame->header = FrameHeader{0, FrameType::kCredits, 0, 0, 0, 0};
  finalize(*frame);
  insert_after_finalized(std::move(frame));
}

void ConnectionBase::queue_memory_window(const MemoryWindowBody& window) {
  LOAM_DCHECK(state_ == State::kOpen, "memory windows are announced after the handshake only");
  std::unique_ptr<OutFrame> frame = host_.frames_.acquire();
  write_as(frame->bytes + kFrameOverheadBytes, window);
  frame->size_bytes = static_cast<uint32_t>(kFrameOverheadBytes + sizeof(MemoryWindowBody));
  frame->header = FrameHeader{0, FrameType::kMemoryWindow, 0, 0, 0, 0};
  finalize(*frame);
  insert_after_finalized(std::move(frame));
  request_service();
}

void ConnectionBase::queue_goodbye(const Status& status) {
  const Bytes text = as_bytes(status.message().substr(0, kMaxGoodbyeText));
  const size_t padded = round_up(text.size(), kFrameAlignment);
  std::unique_ptr<OutFrame> frame = host_.frames_.acquire();
  std::memset(frame->bytes + kFrameOverheadBytes, 0, padded);
  if (!text.empty()) std::memcpy(frame->bytes + kFrameOverheadBytes, text.data(), text.size());
  frame->size_bytes = static_cast<uint32_t>(kFrameOverheadBytes + padded);
  frame->header = FrameHeader{
      0, FrameType::kGoodbye, 0, 0, static_cast<uint32_t>(status.code()), static_cast<uint32_t>(text.size())};
  finalize(*frame);
  insert_after_finalized(std::move(frame));
}

void ConnectionBase::drop_waiting() {
  OutFrame*& place = last_finalized_ == nullptr ? head_ : last_finalized_->next;
  while (place != nullptr) {
    OutFrame* frame = std::exchange(place, place->next);
    queued_bytes_ -= frame->queued_bytes;
    host_.frames_.release(std::unique_ptr<OutFrame>(frame));
  }
  tail_ = last_finalized_;
  waiting_frames_ = 0;
}

size_t ConnectionBase::gather(iovec* pieces, size_t max) {
  // Before the handshake is complete, only the greeting leaves, which is finalized.
  const bool may_finalize = state_ == State::kOpen;
  // A frame that leaves anyway carries the credits. Only without one a credit frame is made, for half of the window.
  const bool has_sendable_frame = waiting_frames_ > 0 && credits_ > 0;
  if (may_finalize && !has_sendable_frame && credits_to_return_ >= host_.options().window_frames / 2) queue_credits();
  size_t count = 0;
  // A waiting frame takes its credit and becomes final only now, so that messages are added to it as long as possible.
  for (OutFrame* frame = head_; frame != nullptr && count < max; frame = frame->next) {
    if (!frame->finalized) {
      if (!may_finalize || frame->size_bytes == kFrameOverheadBytes) break;  // the tail may have no message yet
      if (frame->direct) {
        frame->finalized = true;  // the peer receives no frame, so this needs neither a credit nor a header
      } else if (credits_ == 0) {
        host_.counters_.credit_stalls.add(1);
        break;
      } else {
        --credits_;
        finalize(*frame);
        host_.counters_.frames_out.add(1);
      }
      --waiting_frames_;
      last_finalized_ = frame;
    }
    pieces[count++] = {frame->bytes + frame->sent_bytes, frame->size_bytes - frame->sent_bytes};
  }
  return count;
}

void ConnectionBase::sent(size_t size) {
  host_.counters_.bytes_out.add(size);
  skip_output(size);
}

void ConnectionBase::skip_output(size_t size) {
  while (size > 0) {
    OutFrame* frame = head_;
    const size_t piece = std::min<size_t>(size, frame->size_bytes - frame->sent_bytes);
    frame->sent_bytes += static_cast<uint32_t>(piece);
    size -= piece;
    if (frame->sent_bytes < frame->size_bytes) break;
    head_ = frame->next;
    if (last_finalized_ == frame) last_finalized_ = nullptr;
    if (tail_ == frame) tail_ = nullptr;
    queued_bytes_ -= frame->queued_bytes;
    host_.frames_.release(std::unique_ptr<OutFrame>(frame));
  }
  if (want_writable_ && queued_bytes_ <= host_.options().max_queued_bytes / 2) request_service();
}

void ConnectionBase::flush() {
  LOAM_DCHECK(reserved_ == 0, "a flush between reserve() and commit()");
  if (state_ == State::kOpen) transmit();
}

// ---- the end --------------------------------------------------------------------------------------------------------

void ConnectionBase::close(Status status) { end(std::move(status), true); }

void ConnectionBase::fail(Status status) { end(std::move(status), false); }

void ConnectionBase::end(Status status, bool say_goodbye) {
  if (state_ == State::kEnded) return;
  if (say_goodbye && status == StatusCode::kMalformed) host_.counters_.connections_malformed.add(1);
  if (state_ == State::kOpen) host_.counters_.connections_closed.add(1);
  // Finalized frames may be sent in part already, so they stay before the goodbye. Waiting frames are dropped.
  drop_waiting();
  // Before the handshake a peer expects no frame, so only an open connection says goodbye.
  if (say_goodbye && state_ == State::kOpen) queue_goodbye(status);
  // transmit() runs after the change of state, so that gather() finalizes no further frame. on_closed() follows in
  // poll(), because close() may be called inside a callback of this connection.
  const bool reachable = state_ != State::kOpening;
  state_ = State::kEnded;
  end_status_ = std::move(status);
  if (say_goodbye && reachable) transmit();
  host_.ended_.push_back(this);
}

}  // namespace loam::net
