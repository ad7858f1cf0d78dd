// The receiving half of a connection: greeting, input buffer, parsing, delivery, return of credits.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/net/link/connection_base.h"
#include "common/net/link/transport_base.h"

namespace loam::net {
namespace {

/// The memory of a region on networks without direct writes. The array of words makes it 8-byte aligned.
class HeapMemory final : public RegionMemory {
 public:
  explicit HeapMemory(size_t size) : memory_(std::make_unique_for_overwrite<uint64_t[]>((size + 7) / 8)), size_(size) {}
  MutableBytes bytes() override { return {reinterpret_cast<std::byte*>(memory_.get()), size_}; }

 private:
  const std::unique_ptr<uint64_t[]> memory_;
  const size_t size_;
};

/// Largest size at which the buffer for fragmented messages is kept.
constexpr size_t kKeptReassemblyBytes = 1024 * 1024;

Status malformed(std::string message) { return {StatusCode::kMalformed, std::move(message)}; }

}  // namespace

// ---- greeting -------------------------------------------------------------------------------------------------------

void ConnectionBase::start(bool greet) {
  state_ = State::kGreeting;
  is_initiator_ = greet;
  if (!greet) return;
  queue_greeting(GreetingKind::kHello, StatusCode::kOk);
  transmit();
}

void ConnectionBase::received_greeting(size_t size) {
  greeting_bytes_ += size;
  if (greeting_bytes_ < sizeof(uint64_t)) return;
  const bool ours = read_as<uint64_t>(greeting_.data()) == kMagic;
  if (ours && greeting_bytes_ < sizeof(Greeting)) return;
  // A wrong magic ends the connection at once, because a peer with another protocol may never send 64 bytes.
  Greeting greeting = ours ? read_as<Greeting>(greeting_.data()) : Greeting{.magic = 0};
  Status status = check_greeting(greeting, is_initiator_ ? GreetingKind::kWelcome : GreetingKind::kHello,
                                 host_.options().protocol_version);
  if (!status.ok()) {
    host_.counters_.connections_refused.add(1);
    // The side that has connected learns the reason from this greeting, which end() sends.
    if (!is_initiator_ && ours) queue_greeting(GreetingKind::kReject, status.code());
    end({status.code(), peer_.to_string() + ": " + std::string(status.message())}, true);
    return;
  }
  // From here on the limits of the peer bound the output. The service of this round sends the messages that were
  // committed before the handshake.
  max_frame_out_ = std::min<size_t>(greeting.max_frame_bytes, kMaxFrameBytes) / kFrameAlignment * kFrameAlignment;
  window_out_ = std::min<uint32_t>(greeting.window_frames, UINT16_MAX);
  credits_ = window_out_;
  max_message_bytes_ = std::min<size_t>(max_message_bytes_, greeting.max_message_bytes);
  if (!is_initiator_) queue_greeting(GreetingKind::kWelcome, StatusCode::kOk);
  state_ = State::kOpen;
  announced_ = true;
  host_.counters_.connections_opened.add(1);
  request_service();
  // A message that was committed before the handshake may exceed the limit of the peer, which is known only now.
  if (largest_queued_ > max_message_bytes_) {
    close({StatusCode::kInvalidArgument, "a message of " + std::to_string(largest_queued_) + " bytes waits for " +
                                             peer_.to_string() + ", which takes at most " +
                                             std::to_string(max_message_bytes_)});
    return;
  }
  handler_.on_connected(*this);
}

// ---- input buffer ---------------------------------------------------------------------------------------------------

MutableBytes ConnectionBase::input_space() {
  if (state_ == State::kGreeting) return MutableBytes(greeting_).subspan(greeting_bytes_);
  make_input_room();
  return {in_ + in_end_, in_capacity_ - in_end_};
}

size_t ConnectionBase::max_input_bytes() const {
  return (size_t{host_.options().window_frames} + 1) * host_.options().max_frame_bytes;
}

void ConnectionBase::make_input_room() {
  if (in_ == nullptr) {
    block_ = host_.blocks_.acquire();
    in_ = block_->bytes;
    in_capacity_ = InBlock::kBytes;
  }
  // There must be room for the whole frame that begins at in_parsed_.
  const size_t needed = host_.options().max_frame_bytes;
  if (in_capacity_ - in_parsed_ >= needed) return;
  // Step 1: move the undelivered bytes to the begin of the buffer.
  if (in_begin_ > 0) {
    std::memmove(in_, in_ + in_begin_, in_end_ - in_begin_);
    in_parsed_ -= in_begin_;
    in_end_ -= in_begin_;
    in_begin_ = 0;
    if (in_capacity_ - in_parsed_ >= needed) return;
  }
  // Step 2: take a larger buffer. Only a paused connection reaches this point, because it holds more than a frame. The
  // credits of the peer limit its memory to max_input_bytes().
  std::vector<std::byte> larger(std::max(std::min(2 * in_capacity_, max_input_bytes()), in_parsed_ + needed));
  std::memcpy(larger.data(), in_, in_end_);
  grown_.swap(larger);
  host_.counters_.buffer_allocations.add(1);
  if (block_ != nullptr) host_.blocks_.release(std::move(block_));
  in_ = grown_.data();
  in_capacity_ = grown_.size();
}

void ConnectionBase::release_input() {
  // A connection without undelivered bytes gives its buffer to the pool, so idle connections take no input memory.
  if (in_begin_ < in_end_ || in_ == nullptr) return;
  in_begin_ = in_parsed_ = in_end_ = 0;
  in_ = nullptr;
  in_capacity_ = 0;
  if (block_ != nullptr) host_.blocks_.release(std::move(block_));
  std::vector<std::byte>().swap(grown_);
}

Bytes ConnectionBase::frame_at(size_t at) const { return {in_ + at, read_as<FrameHeader>(in_ + at).size_bytes}; }

// ---- parsing --------------------------------------------------------------------------------------------------------

void ConnectionBase::received(size_t size) {
  if (state_ == State::kEnded) return;
  host_.counters_.bytes_in.add(size);
  if (state_ == State::kGreeting) {
    received_greeting(size);
    return;
  }
  in_end_ += size;
  // parse() applies the credits and one-sided writes of all whole frames, also while the handler pauses. So a pause
  // keeps neither this side from sending nor the peer from writing into regions.
  Status status = parse();
  if (!paused_) deliver();
  // The frames before a malformed one and before a goodbye are delivered. If the handler pauses, they are dropped with
  // the connection.
  if (!status.ok()) {
    close({status.code(), "peer " + peer_.to_string() + " sent " + std::string(status.message())});
  } else if (said_goodbye_) {
    fail(std::move(goodbye_));
  }
  if (state_ != State::kEnded) release_input();
}

void ConnectionBase::received_in_place(MutableBytes bytes) {
  // Without earlier bytes in the input buffer, the frames are parsed where the network has put them, without a copy.
  const bool direct = state_ == State::kOpen && !paused_ && in_ == nullptr;
  if (direct) {
    in_ = bytes.data();
    in_capacity_ = bytes.size();
    received(bytes.size());
    if (in_ != bytes.data()) return;  // release_input(): all bytes were delivered
    // A part of a frame is left, or whole frames, because a handler has paused. They move into an input buffer.
    bytes = bytes.first(in_end_).subspan(in_begin_);
    const size_t parsed = in_parsed_ - in_begin_;
    in_ = nullptr;
    in_begin_ = in_parsed_ = in_end_ = in_capacity_ = 0;
    if (state_ == State::kEnded) return;
    // Parsed frames stay parsed, because their credits and writes must not be applied twice.
    const MutableBytes space = input_space();
    std::memcpy(space.data(), bytes.data(), bytes.size());
    in_parsed_ = parsed;
    in_end_ = bytes.size();
    return;
  }
  while (!bytes.empty() && state_ != State::kEnded) {
    const MutableBytes space = input_space();
    const size_t size = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), size);
    received(size);
    bytes = bytes.subspan(size);
  }
}

Status ConnectionBase::parse() {
  while (state_ == State::kOpen && !said_goodbye_ && in_end_ - in_parsed_ >= sizeof(FrameHeader)) {
    const auto header = read_as<FrameHeader>(in_ + in_parsed_);
    LOAM_RETURN_IF_ERROR(check_header(header, host_.options().max_frame_bytes));
    if (in_end_ - in_parsed_ < header.size_bytes) break;
    // With more credits than its window, this side would send frames for which the peer has no memory.
    if (header.credits > window_out_ - credits_) {
      return malformed(std::to_string(header.credits) + " credits, of which only " +
                       std::to_string(window_out_ - credits_) + " were in use");
    }
    if (header.credits > 0) {
      credits_ += header.credits;
      if (waiting_frames_ > 0) request_service();
    }
    LOAM_RETURN_IF_ERROR(process_frame(header, frame_at(in_parsed_).subspan(sizeof(FrameHeader))));
    if (takes_credit(header.type)) {
      in_parsed_ += header.size_bytes;
      continue;
    }
    // Control frames are removed from the buffer. They take no credit, so nothing would limit their number while the
    // handler pauses.
    if (in_begin_ == in_parsed_) {
      in_begin_ += header.size_bytes;
      in_parsed_ += header.size_bytes;
    } else {
      in_end_ -= header.size_bytes;
      std::memmove(in_ + in_parsed_, in_ + in_parsed_ + header.size_bytes, in_end_ - in_parsed_);
    }
  }
  return ok_status();
}

Status ConnectionBase::process_frame(const FrameHeader& header, Bytes payload) {
  if (takes_credit(header.type)) {
    // The bound of the input buffer, max_input_bytes(), holds only for a peer that respects its credits.
    if (++credits_outstanding_ > host_.options().window_frames) return malformed("more frames than it had credits for");
    host_.counters_.frames_in.add(1);
  }
  switch (header.type) {
    case FrameType::kWrite:
      return apply_write(header, payload);
    case FrameType::kCredits:
      return header.credits == 0 ? malformed("a credit frame without credits") : ok_status();
    case FrameType::kGoodbye:
      said_goodbye_ = true;
      goodbye_ = parse_goodbye(header, payload);
      return ok_status();
    case FrameType::kMemoryWindow:
      return apply_memory_window(read_as<MemoryWindowBody>(payload.data()));
    case FrameType::kMessages:
    case FrameType::kFragment:
      return ok_status();  // deliver_frame() checks them
  }
  return malformed("a frame of unknown type");
}

// ---- one-sided writes -----------------------------------------------------------------------------------------------

Result<OfferedRegion> ConnectionBase::offer_region(size_t size) {
  if (state_ == State::kEnded) return refusal(1);
  if (size == 0 || size > kMaxRegionBytes) {
    return Status(StatusCode::kInvalidArgument, "a region of " + std::to_string(size) + " bytes; it may have 1 to " +
                                                    std::to_string(kMaxRegionBytes));
  }
  if (regions_.size() >= kMaxRegions) {
    return Status(StatusCode::kOverloaded,
                  "the connection has " + std::to_string(kMaxRegions) + " regions on offer; withdraw some");
  }
  const uint64_t id = next_region_++;
  regions_.push_back({id, make_region(id, size)});
  return OfferedRegion{{id, size}, regions_.back().memory->bytes()};
}

std::unique_ptr<RegionMemory> ConnectionBase::make_region(uint64_t, size_t size) {
  return std::make_unique<HeapMemory>(size);
}

void ConnectionBase::withdraw_region(const RemoteRegion& region) {
  std::erase_if(regions_, [&](const Region& offered) {
    if (offered.id != region.id) return false;
    if (state_ != State::kEnded) offered.memory->withdraw();
    return true;
  });
}

Status ConnectionBase::apply_memory_window(const MemoryWindowBody&) {
  return malformed("a memory window, over a network without memory windows");
}

Status ConnectionBase::apply_write(const FrameHeader& header, Bytes payload) {
  Part part;
  LOAM_RETURN_IF_ERROR(parse_part(header, payload, part));
  // The ids ascend, because offer_region() numbers the regions and appends them.
  const auto region = std::lower_bound(regions_.begin(), regions_.end(), part.head.whole,
                                       [](const Region& offered, uint64_t id) { return offered.id < id; });
  if (region == regions_.end() || region->id != part.head.whole) {
    return malformed("a write to region " + std::to_string(part.head.whole) + ", which is not offered");
  }
  const MutableBytes memory = region->memory->bytes();
  // The test subtracts, because the peer may have chosen an offset with which a sum overflows.
  if (part.head.offset > memory.size() || part.bytes.size() > memory.size() - part.head.offset) {
    return malformed("a write of " + std::to_string(part.bytes.size()) + " bytes at " +
                     std::to_string(part.head.offset) + " of a region of " + std::to_string(memory.size()));
  }
  std::memcpy(memory.data() + part.head.offset, part.bytes.data(), part.bytes.size());
  return ok_status();
}

// ---- delivery -------------------------------------------------------------------------------------------------------

void ConnectionBase::pause_receiving() { paused_ = true; }

void ConnectionBase::resume_receiving() {
  paused_ = false;
  if (in_begin_ < in_parsed_) request_service();
}

void ConnectionBase::deliver() {
  // Each call of the handler may pause or close the connection, so every iteration tests both.
  while (!paused_ && state_ == State::kOpen && in_begin_ < in_parsed_) {
    const Bytes frame = frame_at(in_begin_);
    const auto header = read_as<FrameHeader>(frame.data());
    const Status status = deliver_frame(header, frame.subspan(sizeof(FrameHeader)));
    if (!status.ok()) {
      close({status.code(), "peer " + peer_.to_string() + " sent " + std::string(status.message())});
      return;
    }
    // The peer gets the credit only after the handler has returned, so a slow handler slows down its peer.
    in_begin_ += header.size_bytes;
    ++credits_to_return_;
  }
  // The peer gets the credits in this round, even if this side has nothing else to send.
  if (credits_to_return_ >= host_.options().window_frames / 2) request_service();
}

Status ConnectionBase::deliver_frame(const FrameHeader& header, Bytes payload) {
  if (header.type == FrameType::kMessages) return deliver_messages(header, payload);
  if (header.type == FrameType::kFragment) return deliver_fragment(header, payload);
  return ok_status();  // a write: process_frame() has applied it
}

Status ConnectionBase::deliver_messages(const FrameHeader& header, Bytes payload) {
  if (reassembly_whole_ != 0) return malformed("messages between the fragments of another");
  // All messages are checked before the handler sees the first one, so a malformed frame has no effect.
  std::vector<Bytes>& messages = host_.messages_;
  messages.clear();
  while (!payload.empty()) {  // check_header(): a multiple of 8 bytes, so there is room for a MessageHeader
    const auto message = read_as<MessageHeader>(payload.data());
    const Bytes rest = payload.subspan(sizeof(MessageHeader));
    const size_t padded = round_up(size_t{message.size_bytes}, kFrameAlignment);
    if (message.size_bytes == 0 || message.reserved != 0 || padded > rest.size()) {
      return malformed("a message of " + std::to_string(message.size_bytes) + " bytes where " +
                       std::to_string(rest.size()) + " are left in the frame");
    }
    if (message.size_bytes > host_.options().max_message_bytes) {
      return malformed("a message of " + std::to_string(message.size_bytes) + " bytes; the limit is " +
                       std::to_string(host_.options().max_message_bytes));
    }
    messages.push_back(rest.first(message.size_bytes));
    payload = rest.subspan(padded);
  }
  if (messages.empty() || messages.size() != header.a) return malformed("a frame whose messages are miscounted");
  host_.counters_.messages_in.add(messages.size());
  handler_.on_messages(*this, messages);
  return ok_status();
}

Status ConnectionBase::deliver_fragment(const FrameHeader& header, Bytes payload) {
  Part part;
  LOAM_RETURN_IF_ERROR(parse_part(header, payload, part));
  const uint64_t whole = part.head.whole;
  if (whole == 0 || whole > host_.options().max_message_bytes) {
    return malformed("a message of " + std::to_string(whole) + " bytes; the limit is " +
                     std::to_string(host_.options().max_message_bytes));
  }
  if ((reassembly_whole_ != 0 && whole != reassembly_whole_) || part.head.offset != reassembly_.size() ||
      part.bytes.size() > whole - part.head.offset) {
    return malformed("fragments that do not fit together");
  }
  // The buffer grows with the received bytes, not with the announced size.
  reassembly_whole_ = whole;
  reassembly_.insert(reassembly_.end(), part.bytes.begin(), part.bytes.end());
  if (reassembly_.size() < whole) return ok_status();
  reassembly_whole_ = 0;
  const Bytes message(reassembly_);
  host_.counters_.messages_in.add(1);
  handler_.on_messages(*this, std::span(&message, 1));
  reassembly_.clear();
  if (reassembly_.capacity() > kKeptReassemblyBytes) std::vector<std::byte>().swap(reassembly_);
  return ok_status();
}

void ConnectionBase::service() {
  if (state_ == State::kEnded) return;
  // Phase 1: deliver the messages that have waited for the end of a pause.
  if (!paused_ && in_begin_ < in_parsed_) {
    deliver();
    if (state_ == State::kEnded) return;
    release_input();
  }
  // Phase 2: notify an owner whose send was refused. With half of the queue free, its next sends succeed too.
  if (want_writable_ && queued_bytes_ <= host_.options().max_queued_bytes / 2) {
    want_writable_ = false;
    handler_.on_writable(*this);
    if (state_ == State::kEnded) return;
  }
  // Phase 3: send what the owner has committed, and the credits that are due.
  if (state_ == State::kOpen) transmit();
}

}  // namespace loam::net
