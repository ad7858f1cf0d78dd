// The sending half of a link: reservation, frames, credits taken, one-sided writes, the end.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/net/link.h"
#include "common/net/transport_base.h"

namespace loam::net {
namespace {

/// Waiting frames beyond which commit() does not wait for the end of the round: the network works while the owner
/// goes on, and the frames are still in the cache.
constexpr size_t kFlushFrames = 4;
/// A buffer for large messages is kept up to this size.
constexpr size_t kKeptLargeBytes = 1024 * 1024;

}  // namespace

Link::Link(TransportBase& host, Handler& handler, Address peer, bool announced)
    : host_(host),
      handler_(handler),
      peer_(std::move(peer)),
      deadline_ns_(host.now_ns() + host.options().handshake_timeout_ns),
      announced_(announced),
      max_message_bytes_(host.options().max_message_bytes) {}

Link::~Link() {
  while (head_ != nullptr) host_.frames_.give(std::unique_ptr<OutFrame>(std::exchange(head_, head_->next)));
  if (block_ != nullptr) host_.blocks_.give(std::move(block_));
}

void Link::want_attention() {
  if (attention_) return;
  attention_ = true;
  host_.attention_.push_back(this);
}

// ---- messages -------------------------------------------------------------------------------------------------------

bool Link::accepts(size_t size) const {
  if (state_ == State::kEnded || size == 0 || size > max_message_bytes_) return false;
  return queued_bytes_ == 0 || queued_bytes_ + message_footprint(size) <= host_.options().max_queued_bytes;
}

Status Link::refusal(size_t size) const {
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

std::byte* Link::reserve(size_t size) {
  LOAM_DCHECK(reserved_ == 0, "two reservations at a time on one connection");
  if (!accepts(size)) {
    if (state_ != State::kEnded && size != 0 && size <= max_message_bytes_) {
      want_writable_ = true;
      host_.counters_.overloads.add(1);
    }
    return nullptr;
  }
  reserved_ = size;
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

bool Link::room_in_tail(size_t footprint) const {
  return tail_ != nullptr && !tail_->stamped && tail_->header.type == FrameType::kMessages &&
         tail_->size_bytes + footprint <= max_frame_out_;
}

void Link::commit(size_t size) {
  // The caller encodes what it has measured by reserve(); the peer's bytes have no part in it.
  LOAM_CHECK(size <= reserved_, "commit() of more than was reserved");
  const bool large = reserved_at_ == large_.data() && !large_.empty();
  reserved_ = 0;
  reserved_at_ = nullptr;
  if (size == 0) return;  // an empty tail frame stays for the next message
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
  want_attention();
  if (waiting_frames_ > kFlushFrames && state_ == State::kOpen && credits_ > 0) transmit();
}

void Link::note_queued(OutFrame& frame, size_t bytes) {
  frame.queued_bytes += static_cast<uint32_t>(bytes);
  queued_bytes_ += bytes;
}

void Link::queue_parts(FrameType type, PartHeader head, Bytes bytes, bool direct) {
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

Status Link::write(const RemoteRegion& region, uint64_t offset, Bytes bytes) {
  LOAM_DCHECK(reserved_ == 0, "a write between reserve() and commit()");
  if (offset > region.size || bytes.size() > region.size - offset) {
    return {StatusCode::kInvalidArgument, "a write of " + std::to_string(bytes.size()) + " bytes at " +
                                              std::to_string(offset) + " of a region of " +
                                              std::to_string(region.size)};
  }
  if (bytes.empty()) return ok_status();
  if (!accepts(bytes.size())) {
    static_cast<void>(reserve(bytes.size()));  // counts the refusal, and asks for on_writable()
    return refusal(bytes.size());
  }
  if (const PartHeader* window = window_of(region); window != nullptr) {
    queue_parts(FrameType::kWrite, {window->whole, window->offset + offset}, bytes, true);
  } else {
    queue_parts(FrameType::kWrite, {region.id, offset}, bytes);
  }
  want_attention();
  return ok_status();
}

const PartHeader* Link::window_of(const RemoteRegion&) const { return nullptr; }

// ---- the list of frames ---------------------------------------------------------------------------------------------

OutFrame& Link::append_frame(FrameType type) {
  OutFrame* frame = host_.frames_.take().release();
  frame->next = nullptr;
  frame->size_bytes = kFrameOverheadBytes;
  frame->sent_bytes = 0;
  frame->queued_bytes = 0;
  frame->header = FrameHeader{0, type, 0, 0, 0, 0};
  frame->stamped = false;
  frame->direct = false;
  (tail_ == nullptr ? head_ : tail_->next) = frame;
  tail_ = frame;
  ++waiting_frames_;
  return *frame;
}

void Link::insert_after_stamped(std::unique_ptr<OutFrame> owned) {
  OutFrame* frame = owned.release();
  OutFrame*& place = last_stamped_ == nullptr ? head_ : last_stamped_->next;
  frame->next = place;
  frame->sent_bytes = 0;
  frame->queued_bytes = 0;
  frame->stamped = true;
  frame->direct = false;
  place = frame;
  if (tail_ == last_stamped_) tail_ = frame;
  last_stamped_ = frame;
}

void Link::stamp(OutFrame& frame) {
  const auto credits = static_cast<uint16_t>(std::min<uint32_t>(owed_, UINT16_MAX));
  owed_ -= credits;
  unreturned_ -= credits;
  frame.header.size_bytes = frame.size_bytes;
  frame.header.credits = credits;
  write_as(frame.bytes, frame.header);
  frame.stamped = true;
}

void Link::queue_greeting(GreetingKind kind, StatusCode code) {
  Greeting greeting;
  greeting.protocol_version = host_.options().protocol_version;
  greeting.kind = kind;
  greeting.code = static_cast<uint32_t>(code);
  greeting.max_frame_bytes = static_cast<uint32_t>(host_.options().max_frame_bytes);
  greeting.window_frames = host_.options().window_frames;
  greeting.max_message_bytes = host_.options().max_message_bytes;
  std::unique_ptr<OutFrame> frame = host_.frames_.take();
  write_as(frame->bytes, greeting);
  frame->size_bytes = sizeof(Greeting);
  insert_after_stamped(std::move(frame));
}

void Link::queue_credits() {
  std::unique_ptr<OutFrame> frame = host_.frames_.take();
  frame->size_bytes = kFrameOverheadBytes;
  frame->header = FrameHeader{0, FrameType::kCredits, 0, 0, 0, 0};
  stamp(*frame);
  insert_after_stamped(std::move(frame));
}

void Link::queue_window(const WindowBody& window) {
  LOAM_DCHECK(state_ == State::kOpen, "windows are told of after the handshake");
  std::unique_ptr<OutFrame> frame = host_.frames_.take();
  write_as(frame->bytes + kFrameOverheadBytes, window);
  frame->size_bytes = static_cast<uint32_t>(kFrameOverheadBytes + sizeof(WindowBody));
  frame->header = FrameHeader{0, FrameType::kWindow, 0, 0, 0, 0};
  stamp(*frame);
  insert_after_stamped(std::move(frame));
  want_attention();
}

void Link::queue_goodbye(const Status& status) {
  const Bytes text = as_bytes(status.message().substr(0, kMaxGoodbyeText));
  const size_t padded = round_up(text.size(), kFrameAlignment);
  std::unique_ptr<OutFrame> frame = host_.frames_.take();
  std::memset(frame->bytes + kFrameOverheadBytes, 0, padded);
  if (!text.empty()) std::memcpy(frame->bytes + kFrameOverheadBytes, text.data(), text.size());
  frame->size_bytes = static_cast<uint32_t>(kFrameOverheadBytes + padded);
  frame->header = FrameHeader{
      0, FrameType::kGoodbye, 0, 0, static_cast<uint32_t>(status.code()), static_cast<uint32_t>(text.size())};
  stamp(*frame);
  insert_after_stamped(std::move(frame));
}

void Link::drop_waiting() {
  OutFrame*& place = last_stamped_ == nullptr ? head_ : last_stamped_->next;
  while (place != nullptr) {
    OutFrame* frame = std::exchange(place, place->next);
    queued_bytes_ -= frame->queued_bytes;
    host_.frames_.give(std::unique_ptr<OutFrame>(frame));
  }
  tail_ = last_stamped_;
  waiting_frames_ = 0;
}

size_t Link::gather(iovec* pieces, size_t max) {
  const bool may_stamp = state_ == State::kOpen;
  const bool can_carry = waiting_frames_ > 0 && credits_ > 0;
  if (may_stamp && !can_carry && owed_ >= host_.options().window_frames / 2) queue_credits();
  size_t count = 0;
  for (OutFrame* frame = head_; frame != nullptr && count < max; frame = frame->next) {
    if (!frame->stamped) {
      if (!may_stamp || frame->size_bytes == kFrameOverheadBytes) break;  // the tail may still be empty
      if (frame->direct) {
        frame->stamped = true;  // no frame for the peer: neither credits nor a header
      } else if (credits_ == 0) {
        host_.counters_.credit_stalls.add(1);
        break;
      } else {
        --credits_;
        stamp(*frame);
        host_.counters_.frames_out.add(1);
      }
      --waiting_frames_;
      last_stamped_ = frame;
    }
    pieces[count++] = {frame->bytes + frame->sent_bytes, frame->size_bytes - frame->sent_bytes};
  }
  return count;
}

void Link::sent(size_t size) {
  host_.counters_.bytes_out.add(size);
  passed_over(size);
}

void Link::passed_over(size_t size) {
  while (size > 0) {
    OutFrame* frame = head_;
    const size_t piece = std::min<size_t>(size, frame->size_bytes - frame->sent_bytes);
    frame->sent_bytes += static_cast<uint32_t>(piece);
    size -= piece;
    if (frame->sent_bytes < frame->size_bytes) break;
    head_ = frame->next;
    if (last_stamped_ == frame) last_stamped_ = nullptr;
    if (tail_ == frame) tail_ = nullptr;
    queued_bytes_ -= frame->queued_bytes;
    host_.frames_.give(std::unique_ptr<OutFrame>(frame));
  }
  if (want_writable_ && queued_bytes_ <= host_.options().max_queued_bytes / 2) want_attention();
}

void Link::flush() {
  LOAM_DCHECK(reserved_ == 0, "a flush between reserve() and commit()");
  if (state_ == State::kOpen) transmit();
}

// ---- the end --------------------------------------------------------------------------------------------------------

void Link::close(Status status) { end(std::move(status), true); }

void Link::fail(Status status) { end(std::move(status), false); }

void Link::end(Status status, bool say_goodbye) {
  if (state_ == State::kEnded) return;
  if (say_goodbye && status == StatusCode::kMalformed) host_.counters_.connections_malformed.add(1);
  if (state_ == State::kOpen) host_.counters_.connections_closed.add(1);
  drop_waiting();
  if (say_goodbye && state_ == State::kOpen) queue_goodbye(status);
  const bool reachable = state_ != State::kOpening;
  state_ = State::kEnded;
  end_status_ = std::move(status);
  if (say_goodbye && reachable) transmit();
  host_.ended_.push_back(this);
}

}  // namespace loam::net
