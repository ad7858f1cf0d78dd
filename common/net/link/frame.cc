// Checks of the bytes from a peer: headers, greetings, parts and goodbyes. frame.h has their layouts. Bytes of a peer
// never fail an assertion; every check returns kMalformed instead.

#include "common/net/link/frame.h"

#include <algorithm>
#include <string>

#include "common/net/transport/transport.h"

namespace loam::net {
namespace {

Status malformed(std::string message) { return {StatusCode::kMalformed, std::move(message)}; }

}  // namespace

Status check_header(const FrameHeader& header, size_t max_frame_bytes) {
  if (header.type < FrameType::kMessages || header.type > FrameType::kMemoryWindow || header.reserved != 0) {
    return malformed("a frame of unknown type " + std::to_string(static_cast<unsigned>(header.type)));
  }
  // parse() relies on these checks. With at least the size of a header it advances with every frame, with multiples
  // of 8 all messages stay aligned, and a frame of at most max_frame_bytes fits into the input buffer.
  if (header.size_bytes < kFrameOverheadBytes || header.size_bytes % kFrameAlignment != 0) {
    return malformed("a frame of " + std::to_string(header.size_bytes) + " bytes, which no frame has");
  }
  if (header.size_bytes > max_frame_bytes) {
    return malformed("a frame of " + std::to_string(header.size_bytes) + " bytes; the limit is " +
                     std::to_string(max_frame_bytes));
  }
  if (header.type == FrameType::kCredits && header.size_bytes != kFrameOverheadBytes) {
    return malformed("a credit frame with a payload");
  }
  // process_frame() reads this payload without another check.
  if (header.type == FrameType::kMemoryWindow && header.size_bytes != kFrameOverheadBytes + sizeof(MemoryWindowBody)) {
    return malformed("a memory window of a wrong size");
  }
  return ok_status();
}

Status check_greeting(const Greeting& greeting, GreetingKind expected, uint32_t own_version) {
  if (greeting.magic != kMagic || greeting.size_bytes != sizeof(Greeting)) {
    return malformed("the peer does not speak Loam's protocol; is the port right?");
  }
  // The version comes before the other fields, so that a peer of another version gets the error that says what to do.
  if (greeting.protocol_version != own_version) {
    return {StatusCode::kUnsupportedVersion, "the peer speaks version " + std::to_string(greeting.protocol_version) +
                                                 " of the protocol, this program version " +
                                                 std::to_string(own_version) +
                                                 "; run the same release of Loam on both sides"};
  }
  if (greeting.kind == GreetingKind::kReject && expected == GreetingKind::kWelcome) {
    if (greeting.code == static_cast<uint32_t>(StatusCode::kOverloaded)) {
      return {StatusCode::kOverloaded, "the server has its maximum of connections; try again later"};
    }
    return {StatusCode::kUnavailable, "the server refuses the connection"};
  }
  if (greeting.kind != expected) return malformed("a greeting of the wrong kind");
  // An endpoint gives credits back when half of its window is due (gather()), and a window of 1 has no half.
  if (greeting.max_frame_bytes < kMinFrameBytes || greeting.window_frames < 2 || greeting.max_message_bytes == 0) {
    return malformed("a greeting with impossible limits");
  }
  return ok_status();
}

Status parse_part(const FrameHeader& header, Bytes payload, Part& part) {
  if (payload.size() < sizeof(PartHeader) || header.a == 0 ||
      round_up(size_t{header.a}, kFrameAlignment) != payload.size() - sizeof(PartHeader)) {
    return malformed("a fragment or write whose lengths contradict each other");
  }
  part.head = read_as<PartHeader>(payload.data());
  part.bytes = payload.subspan(sizeof(PartHeader), header.a);
  return ok_status();
}

Status parse_goodbye(const FrameHeader& header, Bytes payload) {
  // The text goes into logs and to terminals of this side, so the peer must not choose control characters.
  const size_t size = std::min<size_t>({header.b, payload.size(), kMaxGoodbyeText});
  std::string text(as_text(payload.first(size)));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  // Other codes have a meaning in the messages above the transport, so a peer must not be able to cause them by a
  // goodbye.
  switch (static_cast<StatusCode>(header.a)) {
    case StatusCode::kMalformed:
      return malformed("the peer says that this side broke the protocol: " + text);
    case StatusCode::kOverloaded:
      return {StatusCode::kOverloaded, "the peer closed the connection: " + text};
    case StatusCode::kUnsupportedVersion:
      return {StatusCode::kUnsupportedVersion, "the peer closed the connection: " + text};
    default:
      return {StatusCode::kUnavailable, "the peer closed the connection" + (text.empty() ? text : ": " + text)};
  }
}

}  // namespace loam::net
