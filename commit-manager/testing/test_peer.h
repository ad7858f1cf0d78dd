// A client or storage node for tests: one end of a connection to a commit manager.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/net/transport/transport.h"
#include "common/wire/manager.h"
#include "common/wire/message.h"

namespace loam::commit {

/// Connects at once, and keeps received messages until the test takes them. `drive` polls the transport of this end,
/// and also the other end if both share a thread.
class TestPeer final : public net::Handler {
 public:
  TestPeer(net::Transport& transport, const std::string& address, std::function<void()> drive)
      : drive_(std::move(drive)) {
    auto connection = transport.connect(net::Address::parse(address).value(), *this);
    if (connection.ok()) connection_ = connection.value();
  }

  void on_messages(net::Connection&, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) received_.emplace_back(message.begin(), message.end());
  }
  void on_closed(net::Connection&, const Status& status) override {
    connection_ = nullptr;
    closed_ = status;
  }

  void send_raw(Bytes message) { static_cast<void>(connection_->send(message)); }

  template <wire::Message M>
  uint64_t post(const M& message) {
    Buffer bytes;
    wire::encode_message(message, ++sequence_, bytes);
    send_raw(bytes);
    return sequence_;
  }
  template <wire::Message M>
  void reply(uint64_t sequence, const M& message) {
    Buffer bytes;
    wire::encode_message(message, sequence, bytes);
    send_raw(bytes);
  }

  /// Makes this storage node renew its lease whenever it waits.
  void keep_lease() { keeps_lease_ = true; }

  /// Calls `drive` until `done`, for at most ten seconds. Returns false on a timeout.
  bool until(const std::function<bool()>& done) {
    const uint64_t deadline = Env::now_ns() + 10'000'000'000;
    while (!done()) {
      const uint64_t now_ns = Env::now_ns();
      if (now_ns > deadline) return false;
      if (keeps_lease_ && connection_ != nullptr && now_ns > renewed_ns_ + 50'000'000) {
        post(wire::RenewNode{});
        renewed_ns_ = now_ns;
      }
      drive_();
    }
    return true;
  }

  /// Takes the next message, which is an M or an Error. Skips Publish and RenewNodeReply unless M is one of them.
  template <wire::Message M>
  Result<M> receive(uint64_t* sequence = nullptr) {
    while (true) {
      if (!until([&] { return !received_.empty() || closed_.has_value(); })) {
        return Status(StatusCode::kTimeout, "no message");
      }
      if (received_.empty()) return closed_.value();
      const Buffer bytes = std::move(received_.front());
      received_.pop_front();
      ByteReader reader(bytes);
      wire::Envelope envelope;
      LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
      if (sequence != nullptr) *sequence = envelope.sequence;
      if (envelope.opcode == wire::Opcode::kError) {
        wire::Error error;
        LOAM_RETURN_IF_ERROR(wire::decode_body(reader, error));
        return error.status;
      }
      if (envelope.opcode == M::kOpcode) {
        M message;
        LOAM_RETURN_IF_ERROR(wire::decode_body(reader, message));
        return message;
      }
      if (envelope.opcode != wire::Opcode::kPublish && envelope.opcode != wire::Opcode::kRenewNodeReply) {
        return Status(StatusCode::kInternal, "got " + std::string(wire::to_string(envelope.opcode)));
      }
    }
  }

  template <wire::Message Reply, wire::Message M>
  Result<Reply> call(const M& message) {
    post(message);
    return receive<Reply>();
  }

  net::Connection* connection() { return connection_; }
  const std::optional<Status>& closed() const { return closed_; }

 private:
  const std::function<void()> drive_;
  net::Connection* connection_ = nullptr;
  std::optional<Status> closed_;
  std::deque<Buffer> received_;
  uint64_t sequence_ = 0;
  bool keeps_lease_ = false;
  uint64_t renewed_ns_ = 0;
};

}  // namespace loam::commit
