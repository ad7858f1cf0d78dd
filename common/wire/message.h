// The envelope and the codec of all messages.
//
// A message is [opcode: 1 byte][sequence: varint][body]. Each message struct lists its fields once, in the function
// `fields`. Encoder and Decoder both visit this list, so the two directions always agree. This folder does no I/O:
// the transport (common/net/transport/transport.h) carries the bytes, puts many messages into one frame, and checks
// the protocol version in the handshake of a connection.
//
// Sequences (R3, idempotent requests within a session): a session numbers its requests to each server. A reply has
// the sequence of its request.
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/opcode.h"

namespace loam::wire {

/// The header of every message.
struct Envelope {
  Opcode opcode{};
  uint64_t sequence = 0;
};

/// A message struct: it has an opcode and a static function `fields(self, visitor)`. A member `kHasViews` marks a
/// struct whose decoded fields are views into the received bytes; such a struct is valid only while these bytes live.
template <class M>
concept Message = requires {
  { M::kOpcode } -> std::convertible_to<Opcode>;
};

/// A type with a codec of its own. If it has a function `decode(reader, target)`, the decoder calls this one, which
/// reuses the memory of `target`.
template <class T>
concept SelfEncoding = requires(const T& value, ByteWriter& writer, ByteReader& reader) {
  value.encode(writer);
  { T::decode(reader) } -> std::same_as<Result<T>>;
};

/// A type that lists its fields for this visitor.
template <class T, class Visitor>
concept Visitable = requires(T& value, Visitor& visitor) { T::fields(value, visitor); };

/// Encodes fields. Integers of at least 4 bytes and ids travel as varints. Keys and versions travel as 8 bytes,
/// because they may be any 64-bit numbers. Text, bytes and lists have a varint length.
class Encoder {
 public:
  explicit Encoder(ByteWriter& writer) : writer_(writer) {}

  void operator()(bool value) { writer_.put<uint8_t>(value ? 1 : 0); }
  void operator()(Key key) { writer_.put(key.value); }
  void operator()(Version version) { writer_.put(version.value); }
  void operator()(std::string_view text) { writer_.put_text(text); }
  void operator()(const std::string& text) { writer_.put_text(text); }
  void operator()(Bytes bytes) { writer_.put_bytes(bytes); }
  template <class Tag>
  void operator()(StrongId<Tag> id) {
    writer_.put_varint(id.value);
  }
  template <class T>
    requires std::unsigned_integral<T> || std::is_enum_v<T>
  void operator()(T value) {
    if constexpr (sizeof(T) <= 2) {
      writer_.put(value);
    } else {
      writer_.put_varint(value);
    }
  }
  void operator()(const Status& status) {
    writer_.put(status.code());
    writer_.put_text(status.message());
  }
  template <class T>
  void operator()(const std::vector<T>& items) {
    writer_.put_varint(items.size());
    for (const T& item : items) (*this)(item);
  }
  template <SelfEncoding T>
  void operator()(const T& value) {
    value.encode(writer_);
  }
  template <class T>
    requires Visitable<const T, Encoder>
  void operator()(const T& value) {
    T::fields(value, *this);
  }

 private:
  ByteWriter& writer_;
};

/// Largest number of elements for which the decoder allocates memory before it has decoded the first of them.
inline constexpr size_t kFirstElements = 16;

/// Decodes fields. Views (string_view, Bytes) point into the message, whose bytes live until the transport's callback
/// returns. Vectors are refilled in place, so a struct that is decoded repeatedly stops allocating.
class Decoder {
 public:
  explicit Decoder(ByteReader& reader) : reader_(reader) {}

  void operator()(bool& value) {
    const auto byte = reader_.get<uint8_t>();
    if (byte > 1) reader_.fail();
    value = byte == 1;
  }
  void operator()(Key& key) { key = Key(reader_.get<uint64_t>()); }
  void operator()(Version& version) { version = Version(reader_.get<uint64_t>()); }
  void operator()(std::string_view& text) { text = reader_.get_text(); }
  void operator()(std::string& text) { text = reader_.get_text(); }
  void operator()(Bytes& bytes) { bytes = reader_.get_bytes(); }
  template <class Tag>
  void operator()(StrongId<Tag>& id) {
    id = StrongId<Tag>(reader_.get_varint());
  }
  template <class T>
    requires std::unsigned_integral<T> || std::is_enum_v<T>
  void operator()(T& value) {
    if constexpr (sizeof(T) <= 2) {
      value = reader_.get<T>();
    } else {
      const uint64_t wide = reader_.get_varint();
      if (wide > static_cast<uint64_t>(static_cast<T>(~T{}))) reader_.fail();
      value = static_cast<T>(wide);
    }
  }
  void operator()(Status& status) {
    const auto code = reader_.get<StatusCode>();
    const std::string_view text = reader_.get_text();
    status = code == StatusCode::kOk ? Status() : Status(code, std::string(text));
  }
  template <class T>
  void operator()(std::vector<T>& items) {
    const size_t count = reader_.get_count(1);
    // An element may take a hundred times its least encoding of one byte. So the memory grows with the elements that
    // have been decoded, not with the announced number.
    items.resize(std::min(count, std::max(items.capacity(), kFirstElements)));
    for (size_t i = 0; i < count && !reader_.failed(); ++i) {
      if (i == items.size()) items.resize(std::min(count, 2 * i));
      (*this)(items[i]);
    }
  }
  template <SelfEncoding T>
  void operator()(T& value) {
    if constexpr (requires { T::decode(reader_, value); }) {
      if (!T::decode(reader_, value).ok()) reader_.fail();
    } else if (auto decoded = T::decode(reader_); decoded.ok()) {
      value = std::move(decoded).value();
    } else {
      reader_.fail();
    }
  }
  template <class T>
    requires Visitable<T, Decoder>
  void operator()(T& value) {
    T::fields(value, *this);
  }

 private:
  ByteReader& reader_;
};

/// The reply to a request that failed as a whole.
struct Error {
  static constexpr Opcode kOpcode = Opcode::kError;
  Status status;
  uint64_t retry_after_ns = 0;  ///< with kOverloaded: shortest time to wait before a repetition; 0: no advice

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.status), v(m.retry_after_ns);
  }
};

/// Asks a server for a Pong. Needs no session. The server answers every Ping, also a repeated one.
struct Ping {
  static constexpr Opcode kOpcode = Opcode::kPing;
  Bytes payload;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.payload);
  }
};

/// Reply to Ping, with the same payload.
struct Pong {
  static constexpr Opcode kOpcode = Opcode::kPong;
  Bytes payload;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.payload);
  }
};

/// Appends a message with its envelope to `out`.
template <Message M>
void encode_message(const M& message, uint64_t sequence, Buffer& out) {
  ByteWriter writer(out);
  writer.put(M::kOpcode);
  writer.put_varint(sequence);
  Encoder encoder(writer);
  M::fields(message, encoder);
}

/// Decodes the envelope. The reader is then at the begin of the body. kMalformed: the bytes end early, or the opcode
/// is unknown.
Status decode_envelope(ByteReader& reader, Envelope& envelope);

/// Decodes the body of a message after decode_envelope(). kMalformed unless the body consists of exactly the
/// remaining bytes.
template <Message M>
Status decode_body(ByteReader& reader, M& message) {
  Decoder decoder(reader);
  M::fields(message, decoder);
  return reader.finish(to_string(M::kOpcode));
}

}  // namespace loam::wire
