// The conversation with one server: requests out, answers back to whoever asked.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/net/transport.h"
#include "common/wire/message.h"

namespace loam::client {

/// Messages that wait for room in the transport's queue, bytes per link. Beyond it requests get kOverloaded.
inline constexpr size_t kMaxBacklogBytes = 64 << 20;
/// After a connection was lost, requests fail at once for so long before a new one is tried.
inline constexpr uint64_t kReconnectAfterNs = 50'000'000;
/// A request without a deadline.
inline constexpr uint64_t kNoDeadline = UINT64_MAX;

/// Who asks. Lives until every request of its is answered, failed, or forgotten.
class Asker {
 public:
  /// An answer (kScanChunk: one of several), a kError among them. Bytes die when the call returns. An error says that
  /// the bytes are no valid answer: the connection is then closed.
  virtual Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) = 0;
  /// There will be no answer. `sent`: the request may have reached the server.
  virtual void on_failure(uint64_t token, const Status& status, bool sent) = 0;

 protected:
  ~Asker() = default;
};

/// What kError or an opcode that was not expected says.
Status unexpected_reply(wire::Opcode opcode, ByteReader& body);

/// One server, over one connection at a time; a lost one is made anew by the next request.
///
/// Owner: the client's engine, on the worker's thread only. Sequences count per server over all connections (R3).
/// Callbacks come from the transport's poll, expire() or close(), never from inside request().
class Link final : private net::Handler {
 public:
  struct Options {
    std::string address;  ///< "tcp://127.0.0.1:7401"
    std::string name;     ///< for messages: "storage node 1 at tcp://127.0.0.1:7401"
    bool reconnects = true;
    /// First message of every connection (kAttach); its kError answer closes the connection. Empty: none.
    std::function<void(Buffer& out, uint64_t sequence)> greeting;
    /// Told when a connection is lost.
    std::function<void(const Status&)> on_lost;
  };

  Link(net::Transport& transport, Options options, std::function<uint64_t()> now_ns);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Sends, in the frame that leaves at the end of the round. The number of the request, or why it was not sent and
  /// never will be: kUnavailable, kOverloaded, kInvalidArgument (too large).
  template <wire::Message M>
  Result<uint64_t> request(const M& message, Asker* asker, uint64_t token, uint64_t deadline_ns) {
    LOAM_RETURN_IF_ERROR(ready());
    const uint64_t sequence = ++sequence_;
    LOAM_RETURN_IF_ERROR(send(message, sequence));
    open_.emplace(sequence, Open{asker, token, deadline_ns});
    if (deadline_ns < earliest_deadline_ns_) earliest_deadline_ns_ = deadline_ns;
    return sequence;
  }
  /// A message without an answer. Lost in silence with its connection.
  template <wire::Message M>
  void tell(const M& message) {
    if (connection_ != nullptr) static_cast<void>(send(message, ++sequence_));
  }
  /// The same, with the number of an open request that it belongs to.
  template <wire::Message M>
  void tell_about(uint64_t sequence, const M& message) {
    if (connection_ != nullptr) static_cast<void>(send(message, sequence));
  }
  /// Nobody waits for that request any more.
  void forget(uint64_t sequence) { open_.erase(sequence); }

  /// Fails what is past its deadline with kTimeout.
  void expire(uint64_t now_ns);
  /// No deadline is earlier (it may be that of a request which has ended).
  uint64_t earliest_deadline_ns() const { return earliest_deadline_ns_; }
  /// Ends the connection, fails all open requests, and refuses new ones with `status` for good.
  void close(const Status& status);
  /// The peer broke the protocol: the connection ends, and is made anew by the next request.
  void reject(const Status& status);

  const std::string& name() const { return options_.name; }
  size_t open_requests() const { return open_.size(); }
  /// No connection is left, or none was made.
  bool idle() const { return connection_ == nullptr; }

 private:
  struct Open {
    Asker* asker = nullptr;
    uint64_t token = 0;
    uint64_t deadline_ns = kNoDeadline;
  };

  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_writable(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

  /// Connected or connecting.
  Status ready();
  template <wire::Message M>
  Status send(const M& message, uint64_t sequence) {
    scratch_.clear();
    wire::encode_message(message, sequence, scratch_);
    return send_bytes(scratch_);
  }
  Status send_bytes(Bytes message);
  Status dispatch(Bytes message);
  void fail_all(const Status& status, bool sent);

  net::Transport& transport_;
  const Options options_;
  const std::function<uint64_t()> now_ns_;
  net::Connection* connection_ = nullptr;
  bool connected_ = false;  // the handshake is done: what was sent may have arrived
  Status closed_;           // not ok: for good
  Status last_loss_;
  uint64_t retry_at_ns_ = 0;
  uint64_t sequence_ = 0;
  uint64_t greeting_sequence_ = 0;
  std::unordered_map<uint64_t, Open> open_;
  uint64_t earliest_deadline_ns_ = kNoDeadline;
  std::deque<Buffer> backlog_;
  size_t backlog_bytes_ = 0;
  Buffer scratch_;
};

/// Asks once and waits: for requests whose answers have no views into the message.
template <wire::Message Reply>
class Question final : public Asker {
 public:
  /// In a fiber. kUnavailable, kTimeout, or what the server says.
  template <wire::Message M>
  static Result<Reply> ask(Link& link, const M& message, uint64_t deadline_ns) {
    Question question;
    const auto sent = link.request(message, &question, 0, deadline_ns);
    if (!sent.ok()) return sent.status();
    question.answered_.wait();
    if (!question.status_.ok()) return std::move(question.status_);
    return std::move(question.reply_);
  }

  Status on_reply(uint64_t, wire::Opcode opcode, ByteReader& body) override {
    Status valid;
    if (opcode == Reply::kOpcode) {
      valid = wire::decode_body(body, reply_);
      status_ = valid;
    } else {
      status_ = unexpected_reply(opcode, body);
      if (status_ == StatusCode::kMalformed) valid = status_;
    }
    answered_.notify();
    return valid;
  }
  void on_failure(uint64_t, const Status& status, bool) override {
    status_ = status;
    answered_.notify();
  }

 private:
  fiber::Event answered_;
  Reply reply_;
  Status status_;
};

}  // namespace loam::client
