// One message of any type: decoded, encoded again, decoded again.
#pragma once

#include "common/wire/message.h"
#include "tests/fuzz/fuzz.h"

namespace loam::fuzz {

/// Memory of a decoded message for each byte of the encoded one: the largest element of a list over its shortest
/// encoding (a table of the catalog), and a list that grows has its old memory until the elements have moved.
inline constexpr size_t kMessageFactor = 128;

/// What decoding gives when its result is encoded is a fixed point: two decoders that see it agree in every field.
template <wire::Message M>
bool check_message(const wire::Envelope& envelope, ByteReader body) {
  M message;
  {
    const size_t size = body.remaining();
    const MemoryMeter meter;
    const Status status = wire::decode_body(body, message);
    meter.require_at_most(kMessageFactor, size);
    if (!status.ok()) {
      require(status.code() == StatusCode::kMalformed, "bytes that are no message are kMalformed");
      return false;
    }
  }
  Buffer once;
  wire::encode_message(message, envelope.sequence, once);
  ByteReader reader(once);
  wire::Envelope head;
  require_ok(wire::decode_envelope(reader, head), "an encoded message has an envelope");
  require(head.opcode == envelope.opcode && head.sequence == envelope.sequence, "the envelope survives");
  M again;
  require_ok(wire::decode_body(reader, again), "what was encoded can be decoded");
  Buffer twice;
  wire::encode_message(again, envelope.sequence, twice);
  require(equal(once, twice), "a message survives encoding");
  return true;
}

/// The bytes are one of these messages.
template <class... Messages>
bool check_one_of(const wire::Envelope& envelope, const ByteReader& body) {
  return ((envelope.opcode == Messages::kOpcode && check_message<Messages>(envelope, body)) || ...);
}

}  // namespace loam::fuzz
