// What travels between endpoints: the greeting, frames, messages in them. All numbers are little-endian.
//
//   connection   = greeting of the one that connects, greeting of the one that listens, then frames both ways
//   greeting     = 64 bytes, Greeting below. Its layout never changes, whatever the protocol version, so that any two
//                  versions can tell each other that they do not fit.
//   frame        = FrameHeader, payload; a multiple of 8 bytes together
//   kMessages    payload: `a` messages, each {u32 size, u32 zero, bytes, zeros up to a multiple of 8}
//   kFragment    payload: {u64 size of the whole message, u64 offset}, `a` bytes of it, zeros up to a multiple of 8.
//                The fragments of a message follow each other; no other message comes in between.
//   kWrite       payload: {u64 region, u64 offset}, `a` bytes to be written there, zeros up to a multiple of 8
//   kCredits     no payload: the header's credits are all
//   kGoodbye     payload: `b` bytes of text, zeros up to a multiple of 8; `a` is the status code. The last frame.
//   kWindow      verbs only. payload: WindowBody, where the receiver's device reaches a region of the sender, until
//                another one with 0 bytes for that region. Writes into a region without one travel as kWrite.
//
// kMessages, kFragment and kWrite take a credit; the others do not, and need no buffer for longer than it takes to read
// them. A kCredits frame returns at least half of a window, so that no more than two can be on their way.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::net {

static_assert(std::endian::native == std::endian::little, "frames are copied to and from memory as they are");

/// "LoamNet" and a byte that no text has.
inline constexpr uint64_t kMagic = 0xff74654e6d616f4cu;
inline constexpr size_t kFrameAlignment = 8;

enum class GreetingKind : uint32_t { kHello = 1, kWelcome = 2, kReject = 3 };

/// First bytes of each side.
struct Greeting {
  uint64_t magic = kMagic;
  uint32_t size_bytes = 64;
  uint32_t protocol_version = 0;
  GreetingKind kind = GreetingKind::kHello;
  uint32_t code = 0;             ///< kReject: the StatusCode
  uint32_t max_frame_bytes = 0;  ///< largest frame that the sender of the greeting receives
  uint32_t window_frames = 0;    ///< credits that it grants
  uint64_t max_message_bytes = 0;
  uint64_t reserved[3] = {0, 0, 0};
};
static_assert(sizeof(Greeting) == 64 && std::is_trivially_copyable_v<Greeting>);
static_assert(offsetof(Greeting, protocol_version) == 12 && offsetof(Greeting, max_message_bytes) == 32);
static_assert(std::has_unique_object_representations_v<Greeting>);

enum class FrameType : uint8_t { kMessages = 1, kFragment = 2, kWrite = 3, kCredits = 4, kGoodbye = 5, kWindow = 6 };

constexpr bool takes_credit(FrameType type) { return type <= FrameType::kWrite; }

struct FrameHeader {
  uint32_t size_bytes = 0;  ///< of the frame, header included
  FrameType type = FrameType::kMessages;
  uint8_t reserved = 0;
  uint16_t credits = 0;  ///< given back to the receiver of the frame
  uint32_t a = 0;
  uint32_t b = 0;
};
static_assert(sizeof(FrameHeader) == 16 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(offsetof(FrameHeader, credits) == 6 && offsetof(FrameHeader, a) == 8);
static_assert(std::has_unique_object_representations_v<FrameHeader>);

struct MessageHeader {
  uint32_t size_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(MessageHeader) == 8 && std::has_unique_object_representations_v<MessageHeader>);

/// Head of the payload of kFragment (whole size, offset) and kWrite (region, offset).
struct PartHeader {
  uint64_t whole = 0;
  uint64_t offset = 0;
};
static_assert(sizeof(PartHeader) == 16 && std::has_unique_object_representations_v<PartHeader>);

/// Payload of kWindow.
struct WindowBody {
  uint64_t region = 0;
  uint64_t address = 0;  ///< of its first byte, as the sender's device knows it
  uint64_t size = 0;
  uint32_t key = 0;  ///< good for this connection's queue pair alone
  uint32_t reserved = 0;
};
static_assert(sizeof(WindowBody) == 32 && std::has_unique_object_representations_v<WindowBody>);

inline constexpr size_t kFrameOverheadBytes = sizeof(FrameHeader);
inline constexpr size_t kPartOverheadBytes = sizeof(FrameHeader) + sizeof(PartHeader);
/// Text of a goodbye.
inline constexpr size_t kMaxGoodbyeText = 512;

/// What a message of `size` bytes takes in a frame.
constexpr size_t message_footprint(size_t size) { return sizeof(MessageHeader) + round_up(size, kFrameAlignment); }

template <class T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void write_as(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof(T));
}

/// kMalformed unless the header is one that a peer may send: known type, whole, no larger than `max_frame_bytes`.
Status check_header(const FrameHeader& header, size_t max_frame_bytes);

/// kMalformed (not Loam), kUnsupportedVersion, or the code and text of a rejection; `expected` is kHello or kWelcome.
Status check_greeting(const Greeting& greeting, GreetingKind expected, uint32_t own_version);

/// Part of a kFragment or kWrite frame after its header has been checked.
struct Part {
  PartHeader head;
  Bytes bytes;
};
/// kMalformed if the lengths do not agree.
Status parse_part(const FrameHeader& header, Bytes payload, Part& part);

/// Status that a goodbye tells: its code if it is one that a peer may give, with its text made printable.
Status parse_goodbye(const FrameHeader& header, Bytes payload);

}  // namespace loam::net
