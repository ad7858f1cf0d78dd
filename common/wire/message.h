// The envelope of every message, and the codec that all message structs share.
//
// A message is [opcode: 1 byte][sequence: varint][body]. A struct lists its fields once, in `fields`; Encoder and
// Decoder visit that list, so that the two directions cannot disagree. Nothing here does I/O: the transport moves the
// bytes, checks magic and protocol version at connection set-up (common/net/transport.h), and many messages share one
// frame.
//
// Sequences (R3): they count per session and server. A reply carries its request's sequence.
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

/// What precedes each body.
struct Envelope {
  Opcode opcode{};
  uint64_t sequence = 0;
};

/// A struct with an opcode and a static `fields(self, visitor)`. One that has views into the bytes it is decoded from
/// says so by a member `kHasViews`: who keeps it keeps the bytes.
template <class M>
concept Message = requires {
  { M::kOpcode } -> std::convertible_to<Opcode>;
};

/// Types that encode themselves. A `decode(reader, target)` reuses the target's memory; otherwise the value is made
/// anew.
template <class T>
concept SelfCoded = requires(const T& value, ByteWriter& writer, ByteReader& reader) {
  value.encode(writer);
  { T::decode(reader) } -> std::same_as<Result<T>>;
};

template <class T, class Visitor>
concept Visitable = requires(T& value, Visitor& visitor) { T::fields(value, visitor); };

/// Writes fields. Integers of 4 bytes and more and ids travel as varints, keys and versions as 8 bytes (they are
/// arbitrary 64-bit numbers), text and bytes with a varint length.
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
  template <SelfCoded T>
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

/// Elements for which a list that is decoded takes memory before the first of them has been seen.
inline constexpr size_t kFirstElements = 16;

/// Reads fields. Views (string_view, Bytes) point into the message, whose bytes live until the transport's callback
/// returns. Vectors are refilled in place: a struct that is decoded again and again stops allocating.
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
    // An element may take a hundred times the byte that it announces itself with: memory follows what has come.
    items.resize(std::min(count, std::max(items.capacity(), kFirstElements)));
    for (size_t i = 0; i < count && !reader_.failed(); ++i) {
      if (i == items.size()) items.resize(std::min(count, 2 * i));
      (*this)(items[i]);
    }
  }
  template <SelfCoded T>
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

/// Answers any request that failed as a whole.
struct Error {
  static constexpr Opcode kOpcode = Opcode::kError;
  Status status;
  uint64_t retry_after_ns = 0;  ///< with kOverloaded: not before; 0: no advice

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.status), v(m.retry_after_ns);
  }
};

/// Asks a server for nothing but an answer; needs no session. Repeated, it is answered again.
struct Ping {
  static constexpr Opcode kOpcode = Opcode::kPing;
  Bytes payload;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.payload);
  }
};

/// With the payload that was sent.
struct Pong {
  static constexpr Opcode kOpcode = Opcode::kPong;
  Bytes payload;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.payload);
  }
};

/// Appends a whole message to `out`.
template <Message M>
void encode_message(const M& message, uint64_t sequence, Buffer& out) {
  ByteWriter writer(out);
  writer.put(M::kOpcode);
  writer.put_varint(sequence);
  Encoder encoder(writer);
  M::fields(message, encoder);
}

/// Reads the envelope; `reader` then stands at the body. kMalformed for an unknown opcode.
Status decode_envelope(ByteReader& reader, Envelope& envelope);

/// Reads the body of a message whose envelope has been read. kMalformed unless it fills the rest of the bytes exactly.
template <Message M>
Status decode_body(ByteReader& reader, M& message) {
  Decoder decoder(reader);
  M::fields(message, decoder);
  return reader.finish(to_string(M::kOpcode));
}

}  // namespace loam::wire
