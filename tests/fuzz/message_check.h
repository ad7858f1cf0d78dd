// Checks one message of any type: decodes it, encodes the result and decodes that again.
#pragma once

#include "common/wire/message.h"
#include "tests/fuzz/fuzz.h"

namespace loam::fuzz {

/// Upper bound on the memory of a decoded message for each byte of the encoded one. The worst case is a list of
/// tables of the catalog, whose elements are the largest in relation to their shortest encoding. A growing list also
/// keeps its old memory until the elements have moved.
inline constexpr size_t kMessageFactor = 128;

/// Checks that the encoding of a decoded message is a fixed point: decoding and encoding it again gives the same
/// bytes. Two decoders of that encoding therefore agree in every field. False: the bytes are no such message.
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
  require_ok(wire::decode_body(reader, again), "an encoded message can be decoded");
  Buffer twice;
  wire::encode_message(again, envelope.sequence, twice);
  require(equal(once, twice), "a message survives encoding");
  return true;
}

/// Checks the bytes as the one of these messages that the envelope names. False: it names none of them.
template <class... Messages>
bool check_one_of(const wire::Envelope& envelope, const ByteReader& body) {
  return ((envelope.opcode == Messages::kOpcode && check_message<Messages>(envelope, body)) || ...);
}

}  // namespace loam::fuzz
