// The bytes between endpoints: the greeting, the frames and the messages in them. All numbers are little-endian.
//
//   connection     = greeting of the side that connects, greeting of the side that listens, then frames both ways
//   greeting       = 64 bytes, Greeting below. Its layout is the same in all protocol versions, so that any two
//                    versions can tell each other that they do not match.
//   frame          = FrameHeader, payload; together a multiple of 8 bytes
//   kMessages      payload: `a` messages, each {u32 size, u32 zero, bytes, zeros up to a multiple of 8}
//   kFragment      payload: {u64 size of the whole message, u64 offset}, `a` bytes of it, zeros up to a multiple of 8.
//                  The fragments of a message follow each other without another message in between.
//   kWrite         payload: {u64 region, u64 offset}, `a` bytes to write there, zeros up to a multiple of 8
//   kCredits       no payload; the header has the credits
//   kGoodbye       payload: `b` bytes of text, zeros up to a multiple of 8; `a` is the status code. The last frame.
//   kMemoryWindow  verbs only. payload: MemoryWindowBody, by which the receiver's device reaches a region of the
//                  sender. It is valid until another one with 0 bytes for the same region. Writes into a region without
//                  a memory window travel as kWrite.
//
// kMessages, kFragment and kWrite take a credit. The other frames take none, because the receiver needs their bytes
// only while it reads them. A kCredits frame returns at least half of a window, so that no more than two can be in
// flight.
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

/// The first 8 bytes of a connection: "LoamNet", and a byte that occurs in no text.
inline constexpr uint64_t kMagic = 0xff74654e6d616f4cu;
/// Frames, messages and parts begin at multiples of this.
inline constexpr size_t kFrameAlignment = 8;

/// The kind of a greeting. The side that connects sends kHello, and the side that listens answers kWelcome or kReject.
enum class GreetingKind : uint32_t { kHello = 1, kWelcome = 2, kReject = 3 };

/// The first bytes of each side.
struct Greeting {
  uint64_t magic = kMagic;
  uint32_t size_bytes = 64;
  uint32_t protocol_version = 0;
  GreetingKind kind = GreetingKind::kHello;
  uint32_t code = 0;               ///< the StatusCode of kReject
  uint32_t max_frame_bytes = 0;    ///< largest frame that the sender of the greeting accepts
  uint32_t window_frames = 0;      ///< credits that it grants
  uint64_t max_message_bytes = 0;  ///< largest message that it accepts
  uint64_t reserved[3] = {0, 0, 0};
};
static_assert(sizeof(Greeting) == 64 && std::is_trivially_copyable_v<Greeting>);
static_assert(offsetof(Greeting, protocol_version) == 12 && offsetof(Greeting, max_message_bytes) == 32);
static_assert(std::has_unique_object_representations_v<Greeting>);

/// The type of a frame; the drawing above has the payloads.
enum class FrameType : uint8_t {
  kMessages = 1,
  kFragment = 2,
  kWrite = 3,
  kCredits = 4,
  kGoodbye = 5,
  kMemoryWindow = 6
};

/// Whether a frame of this type takes a credit.
constexpr bool takes_credit(FrameType type) { return type <= FrameType::kWrite; }

/// The header of every frame.
struct FrameHeader {
  uint32_t size_bytes = 0;  ///< size of the frame, header included
  FrameType type = FrameType::kMessages;
  uint8_t reserved = 0;
  uint16_t credits = 0;  ///< credits that the sender of the frame gives back to its receiver
  uint32_t a = 0;        ///< depends on the type, as drawn above
  uint32_t b = 0;        ///< depends on the type, as drawn above
};
static_assert(sizeof(FrameHeader) == 16 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(offsetof(FrameHeader, credits) == 6 && offsetof(FrameHeader, a) == 8);
static_assert(std::has_unique_object_representations_v<FrameHeader>);

/// The header of each message in a frame.
struct MessageHeader {
  uint32_t size_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(MessageHeader) == 8 && std::has_unique_object_representations_v<MessageHeader>);

/// The begin of the payload of kFragment and kWrite.
struct PartHeader {
  uint64_t whole = 0;   ///< kFragment: size of the whole message; kWrite: id of the region
  uint64_t offset = 0;  ///< offset of the bytes in the message or region
};
static_assert(sizeof(PartHeader) == 16 && std::has_unique_object_representations_v<PartHeader>);

/// The payload of kMemoryWindow.
struct MemoryWindowBody {
  uint64_t region = 0;   ///< id of the region
  uint64_t address = 0;  ///< address of its first byte at the sender's device
  uint64_t size = 0;     ///< size of the region; 0: the memory window ends
  uint32_t key = 0;      ///< valid for the queue pair of this connection only
  uint32_t reserved = 0;
};
static_assert(sizeof(MemoryWindowBody) == 32 && std::has_unique_object_representations_v<MemoryWindowBody>);

/// Bytes of a frame beside its payload.
inline constexpr size_t kFrameOverheadBytes = sizeof(FrameHeader);
/// Bytes of a kFragment or kWrite frame beside its data.
inline constexpr size_t kPartOverheadBytes = sizeof(FrameHeader) + sizeof(PartHeader);
/// Longest text of a goodbye.
inline constexpr size_t kMaxGoodbyeText = 512;

/// Bytes that a message of `size` bytes takes in a frame.
constexpr size_t message_footprint(size_t size) { return sizeof(MessageHeader) + round_up(size, kFrameAlignment); }

/// Copies an object from bytes of any alignment.
template <class T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
/// Copies an object to bytes of any alignment.
template <class T>
void write_as(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof(T));
}

/// kMalformed unless a peer may send this header: its type is known, its size is valid and at most `max_frame_bytes`.
Status check_header(const FrameHeader& header, size_t max_frame_bytes);

/// Checks a greeting; `expected` is kHello or kWelcome. Errors: kMalformed (the peer is not Loam, or its limits are
/// invalid), kUnsupportedVersion, or the code of a rejection.
Status check_greeting(const Greeting& greeting, GreetingKind expected, uint32_t own_version);

/// The decoded payload of a kFragment or kWrite frame.
struct Part {
  PartHeader head;
  Bytes bytes;
};
/// Decodes the payload of a kFragment or kWrite frame. kMalformed if the lengths contradict each other.
Status parse_part(const FrameHeader& header, Bytes payload, Part& part);

/// The status of a goodbye, with its text made printable. A code that a peer may not choose becomes kUnavailable.
Status parse_goodbye(const FrameHeader& header, Bytes payload);

}  // namespace loam::net
