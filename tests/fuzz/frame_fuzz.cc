// Fuzz target: the bytes of a connection: the greeting, frames, messages and fragments in them, one-sided writes.
//
// A real ConnectionBase receives the bytes through a transport without a network. A second connection sends the
// delivered messages to a third one, which must deliver the same messages.
//
// Input: a choice (bit 0: a valid greeting precedes the input; bit 1: the handler pauses after each frame; bits 2 to
// 7: bytes that arrive at once, 0 for all), then the bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <sys/uio.h>

#include "common/net/link/connection_base.h"
#include "common/net/link/transport_base.h"
#include "tests/fuzz/fuzz.h"

namespace loam::net {
namespace {

constexpr size_t kFrameBytes = kMinFrameBytes;
constexpr uint32_t kWindow = 4;
constexpr size_t kMessageBytes = 8 * 1024;
constexpr size_t kRegionBytes = 256;

TransportOptions small_limits() {
  TransportOptions options;
  options.max_frame_bytes = kFrameBytes;
  options.window_frames = kWindow;
  options.max_message_bytes = kMessageBytes;
  return options;
}

/// A connection whose network is a buffer. Sent bytes stay in `out`.
class BufferConnection final : public ConnectionBase {
 public:
  BufferConnection(TransportBase& host, Handler& handler)
      : ConnectionBase(host, handler, Address{Scheme::kSim, "peer", 1}, true) {}

  using ConnectionBase::has_output;
  using ConnectionBase::start;
  bool ended() const { return state() == State::kEnded; }

  void take(Bytes bytes, size_t step) {
    while (!bytes.empty() && !ended()) {
      const MutableBytes space = input_space();
      fuzz::require(!space.empty(), "an open connection has room to receive");
      const size_t size = std::min({bytes.size(), space.size(), step});
      std::memcpy(space.data(), bytes.data(), size);
      received(size);
      bytes = bytes.subspan(size);
    }
  }

  Buffer out;

 private:
  void transmit() override {
    std::array<iovec, 8> pieces;
    while (const size_t count = gather(pieces.data(), pieces.size())) {
      size_t size = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto* bytes = static_cast<const std::byte*>(pieces[i].iov_base);
        out.insert(out.end(), bytes, bytes + pieces[i].iov_len);
        size += pieces[i].iov_len;
      }
      sent(size);
    }
  }
};

class BufferTransport final : public TransportBase {
 public:
  BufferTransport() : TransportBase(Scheme::kSim, small_limits()) {}
  ~BufferTransport() override { drop_connections(); }

  BufferConnection& open(Handler& handler) {
    return static_cast<BufferConnection&>(adopt(std::make_unique<BufferConnection>(*this, handler)));
  }
  void attend() { service_connections(); }
  void drop() { drop_connections(); }

  using Transport::listen;
  Result<Listener*> listen(const Address&, std::span<const AcceptTarget>) override { return unused(); }
  Result<Connection*> connect(const Address&, Handler&) override { return unused(); }
  size_t poll(uint64_t) override { return 0; }
  void wake() override {}

 private:
  static Status unused() { return {StatusCode::kInternal, "not in this transport"}; }
  uint64_t now_ns() const override { return 0; }
};

/// Keeps the received messages, and offers a region. The region ends at the sanitizer's red zone, so that a write
/// beyond it is found.
struct RecordingHandler final : Handler {
  void on_connected(Connection& connection) override {
    ++connected;
    fuzz::require(connection.offer_region(kRegionBytes).ok(), "a region is offered");
  }
  void on_messages(Connection& connection, std::span<const Bytes> all) override {
    fuzz::require(!all.empty(), "a frame has messages");
    for (const Bytes message : all) {
      fuzz::require(!message.empty() && message.size() <= kMessageBytes, "messages have the agreed size");
      messages.emplace_back(message.begin(), message.end());
    }
    if (pauses) connection.pause_receiving();
  }
  void on_closed(Connection&, const Status& status) override {
    ++closed;
    fuzz::require(!status.ok(), "an end has a reason");
  }
  void check() const { fuzz::require(connected <= 1 && closed <= 1, "a connection opens and ends once"); }

  bool pauses = false;
  int connected = 0;
  int closed = 0;
  std::vector<Buffer> messages;
};

Buffer hello() {
  Greeting greeting;
  greeting.protocol_version = kFramingVersion;
  greeting.max_frame_bytes = kFrameBytes;
  greeting.window_frames = kWindow;
  greeting.max_message_bytes = kMessageBytes;
  Buffer bytes(sizeof(greeting));
  write_as(bytes.data(), greeting);
  return bytes;
}

/// Carries bytes from each connection to the other until neither has any. A connection may end meanwhile.
void carry(BufferTransport& transport, BufferConnection& a, BufferConnection& b, size_t step) {
  const auto move = [step](BufferConnection& from, BufferConnection& to) {
    const Buffer bytes = std::exchange(from.out, Buffer());
    to.take(bytes, step);
    return !bytes.empty();
  };
  for (bool moved = true; moved;) {
    moved = move(a, b);
    moved = move(b, a) || moved;
    fuzz::require(!a.ended() && !b.ended(), "two correct connections do not end");
    transport.attend();
  }
}

/// Accepted messages can be sent again, and arrive unchanged.
void check_round_trip(BufferTransport& transport, const std::vector<Buffer>& messages, size_t step) {
  RecordingHandler sender;
  RecordingHandler receiver;
  BufferConnection& from = transport.open(sender);
  BufferConnection& to = transport.open(receiver);
  to.start(false);
  from.start(true);
  for (const Buffer& message : messages) {
    while (!from.send(message).ok()) {
      fuzz::require(from.refusal(message.size()) == StatusCode::kOverloaded, "a received message may be sent");
      carry(transport, from, to, step);
    }
  }
  transport.attend();
  carry(transport, from, to, step);
  fuzz::require(receiver.messages == messages, "messages arrive unchanged");
  fuzz::require(from.queued_bytes() == 0, "nothing is left to send");
  transport.drop();
}

}  // namespace
}  // namespace loam::net

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  using namespace loam::net;
  static BufferTransport transport;
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  const size_t step = choice / 4 == 0 ? SIZE_MAX : choice / 4;
  RecordingHandler keeper;
  keeper.pauses = (choice & 2) != 0;
  {
    const fuzz::MemoryMeter meter;
    BufferConnection& link = transport.open(keeper);
    link.start(false);
    if ((choice & 1) != 0) link.take(hello(), SIZE_MAX);
    while (!rest.empty() && !link.ended()) {
      const Bytes part = rest.first(std::min<size_t>(rest.size(), keeper.pauses ? kFrameBytes : SIZE_MAX));
      rest = rest.subspan(part.size());
      link.take(part, step);
      if (link.ended()) break;
      link.resume_receiving();
      transport.attend();
      if (keeper.closed != 0) break;
    }
    transport.attend();
    transport.drop();
    // The transport's pools: a window of frames, one message under assembly, and replies.
    meter.require_at_most(16, size + 64 * kMaxFrameBytes / 16);
  }
  keeper.check();
  if (!keeper.messages.empty()) check_round_trip(transport, keeper.messages, step);
  return 0;
}
