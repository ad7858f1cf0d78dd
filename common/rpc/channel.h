// A channel to one server: sends requests and passes the replies to their callers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/latency/request_timer.h"
#include "common/net/transport/transport.h"
#include "common/rpc/execution_status.h"
#include "common/rpc/request_window.h"
#include "common/wire/manager.h"
#include "common/wire/message.h"
#include "common/wire/reply_window.h"
#include "common/wire/storage.h"

namespace loam::rpc {

/// Largest amount of bytes that may wait to be sent on one channel. The channel refuses further requests with
/// kOverloaded.
inline constexpr size_t kMaxBacklogBytes = 64 << 20;
/// Time between two attempts to connect: kFirstReconnectNs * 2^n after n failures, at most kMaxReconnectNs.
inline constexpr uint64_t kFirstReconnectNs = 2'000'000;
inline constexpr uint64_t kMaxReconnectNs = 500'000'000;

/// Receives the outcomes of the requests that its owner sends over a channel. It lives until each request is
/// answered, has failed, or is cancelled. Threads: the channel's.
class ResponseHandler {
 public:
  /// A reply other than kError has arrived; wire::more_follow() tells whether others follow. The bytes are valid
  /// until the call returns. If the handler returns an error, the reply is invalid: the channel closes the
  /// connection and calls on_failure() with kUnknown.
  virtual Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) = 0;
  /// A request has ended without a reply. `executed` is never kExecuted.
  virtual void on_failure(uint64_t token, const Status& status, ExecutionStatus executed) = 0;

 protected:
  ~ResponseHandler() = default;
};

/// The error that ResponseHandler::on_reply() returns for a reply of an unexpected type.
Status unexpected_reply(wire::Opcode opcode);

/// How a channel treats a message when its connection is lost. By default it repeats the message with its sequence,
/// and the server executes it once. A message is sent at most once if a repetition is expensive or has another
/// meaning.
template <wire::Message M>
inline constexpr RequestWindow::Kind kRequestKind = RequestWindow::Kind::kResend;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::Scan> = RequestWindow::Kind::kStream;
// A storage node that hangs delays the replies to these, so they must not keep the window of the begins from
// advancing. Their callers repeat them.
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::GetCatalog> = RequestWindow::Kind::kAtMostOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::CreateTable> = RequestWindow::Kind::kAtMostOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::FinishIndex> = RequestWindow::Kind::kAtMostOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::DropTable> = RequestWindow::Kind::kAtMostOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::RenameTable> = RequestWindow::Kind::kAtMostOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::AddField> = RequestWindow::Kind::kAtMostOnce;

/// A reliable request channel to one server, over one connection at a time (R3, idempotent requests within a
/// session).
///
/// If the connection is lost, the channel connects again, with growing pauses. On the new connection it sends its
/// startup message, then all unanswered requests with their old sequences, then new ones. So a lost connection fails
/// only requests that are sent at most once, such as scans. Any other request fails only by its deadline, by a
/// startup message that the server rejects finally, or by close().
///
/// Owner: a session or the recoverer. Threads: the worker's. Sequences count from first_sequence over all connections;
/// the startup message has sequence 0. Callbacks come from the transport's poll() or from expire(), never from inside
/// request() or close().
class Channel final : private net::Handler {
 public:
  struct Options {
    std::string address;  ///< address of the server, "tcp://127.0.0.1:7401"
    std::string name;     ///< name of the server for messages, "storage node 1 at tcp://127.0.0.1:7401"
    /// Limit of the distance from the oldest unanswered request to the newest sent one: the server's reply window.
    size_t window = wire::kNodeReplyWindow.requests;
    /// Sequence of the first request. A channel that follows another one of the same session to the same server
    /// continues with its next_sequence(): the server still has the replies to the lower sequences, and would answer
    /// new requests with them.
    uint64_t first_sequence = 1;
    /// Whether to connect again after a lost connection even if no request is open.
    bool keep_connected = false;
    /// Whether the loss of a connection, or a failure to connect, fails all open requests, for callers that repeat
    /// them in another way. Otherwise requests of kind kResend wait for the next connection.
    bool fail_on_disconnect = false;
    /// Encodes the first message of every connection, such as kAttach, with sequence 0. If the server refuses it with
    /// kUnavailable, kOverloaded, kTimeout or kMalformed, the channel tries again on another connection; any other
    /// error ends the channel. Empty: there is no such message.
    std::function<void(Buffer& out)> startup_message;
    /// Receives the reply to the startup message, unless it is an error. A returned error closes the connection.
    std::function<Status(wire::Opcode opcode, ByteReader& body)> on_startup_reply;
    /// Called when a connection is lost. `refused`: the server refused the startup message, and the channel tries
    /// again.
    std::function<void(const Status&, bool refused)> on_disconnect;
    /// Called when the server has rejected the startup message finally, which ends the channel.
    std::function<void(const Status&)> on_rejected;
    /// Called for every reply that is no error, after its response handler.
    std::function<void()> on_answer;
    /// Called for every reply that is an error as a whole, after its response handler.
    std::function<void(const wire::Error&)> on_error;
    /// Records the latencies of the requests. It outlives the channel. Null: they are not recorded.
    latency::RequestTimer* timer = nullptr;
    /// The storage node, for the records; 0: the commit manager.
    uint64_t node = 0;
  };

  /// Does not connect yet. `now_ns` is the clock of all deadlines.
  Channel(net::Transport& transport, Options options, std::function<uint64_t()> now_ns);
  ~Channel() override;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Begins to connect before the first request. kUnavailable, kInvalidArgument: the channel could not even begin to
  /// connect.
  Status start();

  /// Sends a request: in the frame that leaves at the end of the round, or as soon as there is a connection and room
  /// in the window. Returns the sequence of the request. An error says why it will never be sent: kOverloaded,
  /// kInvalidArgument (too large), or the status of close().
  template <wire::Message M>
  Result<uint64_t> request(const M& message, ResponseHandler* caller, uint64_t token, uint64_t deadline_ns) {
    LOAM_RETURN_IF_ERROR(ready());
    Buffer bytes = window_.acquire_buffer();
    wire::encode_message(message, window_.next(), bytes);
    return add(kRequestKind<M>, caller, token, deadline_ns, std::move(bytes));
  }
  /// Sends a request now, ahead of waiting ones, and never repeats it. False: it cannot be sent now, and `caller`
  /// hears nothing of it.
  template <wire::Message M>
  bool try_send_once(const M& message, ResponseHandler* caller, uint64_t token, uint64_t deadline_ns) {
    if (!startup_done_ || blocked_ || !ready().ok()) return false;
    Buffer bytes = window_.acquire_buffer();
    wire::encode_message(message, window_.next(), bytes);
    const bool sent = connection_->send(bytes).ok();
    if (sent) window_.add_sent(caller, token, deadline_ns, round_ns());
    if (sent) earliest_deadline_ns_ = std::min(earliest_deadline_ns_, deadline_ns);
    window_.release_buffer(std::move(bytes));
    return sent;
  }
  /// Sends a message that has no reply. If there is no connection, or the connection is lost, no error is reported.
  template <wire::Message M>
  void send_one_way(const M& message) {
    if (connection_ == nullptr || !ready().ok()) return;
    Buffer bytes = window_.acquire_buffer();
    wire::encode_message(message, window_.next(), bytes);
    static_cast<void>(add(RequestWindow::Kind::kOneWay, nullptr, 0, kNoDeadline, std::move(bytes)));
  }
  /// Sends a message without a reply that has the sequence of an open request, such as ScanCredit. It leaves after
  /// this request.
  template <wire::Message M>
  void send_one_way_for(uint64_t sequence, const M& message) {
    if (connection_ == nullptr) return;
    OneWayMessage note{sequence, {}};
    wire::encode_message(message, sequence, note.bytes);
    one_way_messages_.push_back(std::move(note));
    send_pending();
  }
  /// A region of memory into which the server may write over the present connection.
  struct Offer {
    net::OfferedRegion region;
    uint64_t connection = 0;  ///< number of the connection; 0: no region could be offered
  };
  /// Offers a region for the next request. It does so only if this request would be sent at once, because the server
  /// does not know the region on another connection.
  Offer offer(size_t bytes);
  /// Withdraws the region, if its connection is still open.
  void withdraw(const Offer& offer);
  /// Whether the request may have reached the server.
  bool has_sent(uint64_t sequence) const { return window_.may_have_arrived(sequence); }
  /// Ends a request without a call of its handler. The server may still execute it.
  void cancel(uint64_t sequence) { window_.finish(sequence); }

  /// Fails the requests whose deadline has passed, with kTimeout, or with kUnavailable without a connection. Connects
  /// again when the pause after a failure is over.
  void expire(uint64_t now_ns);
  /// The time before which expire() has nothing to do. It may have nothing to do at that time either, because a
  /// request has ended meanwhile.
  uint64_t earliest_deadline_ns() const;
  /// Ends the channel: closes the connection, fails all open requests in the next expire(), and refuses new ones with
  /// `status`.
  void close(const Status& status);
  /// Closes the connection because the server has violated the protocol. The channel connects again.
  void reject(const Status& status);
  /// Passes the requests of this round to the network now.
  void flush() {
    if (connection_ != nullptr) connection_->flush();
  }

  const std::string& name() const { return options_.name; }
  /// Sequence of the next request. No request has had it or a higher one.
  uint64_t next_sequence() const { return window_.next(); }
  /// Number of unanswered requests.
  size_t open_requests() const { return window_.open(); }
  /// Whether the channel may be destroyed: it has no connection and no open request.
  bool idle() const { return connection_ == nullptr && window_.empty(); }
  /// Whether the connection is open and the server has accepted the startup message.
  bool connected() const { return startup_done_; }
  /// Number of repetitions of requests.
  uint64_t resent() const { return resent_; }

 private:
  /// A message about an open request. It leaves after the request.
  struct OneWayMessage {
    uint64_t sequence = 0;
    Buffer bytes;
  };

  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_writable(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

  Status ready() const;
  /// Returns the time of the round, for the records; 0 without records.
  uint64_t round_ns() const { return options_.timer != nullptr ? options_.timer->round_ns() : 0; }
  Result<uint64_t> add(RequestWindow::Kind kind, ResponseHandler* caller, uint64_t token, uint64_t deadline_ns,
                       Buffer bytes);
  void connect();
  /// Passes to the connection all messages that may be sent now.
  void send_pending();
  bool send_one_way_messages();
  Status dispatch(Bytes message);
  Status handle_startup_reply(wire::Opcode opcode, ByteReader& body);
  /// Handles kError as the reply to request `sequence`.
  Status refused(uint64_t sequence, ResponseHandler& caller, uint64_t token, ByteReader& body);
  void handle_disconnect(const Status& status);
  Status timeout_status(const RequestWindow::FailedRequest& ended) const;

  net::Transport& transport_;
  const Options options_;
  const std::function<uint64_t()> now_ns_;
  net::Connection* connection_ = nullptr;
  bool connected_ = false;         // the handshake is complete
  bool startup_done_ = false;      // the server has also accepted the startup message
  bool blocked_ = false;           // the connection accepts no message before on_writable()
  bool refused_ = false;           // the server has refused the startup message for now, and the connection is ending
  bool fail_all_pending_ = false;  // the next expire() fails all open requests: Options::fail_on_disconnect
  Status closed_;                  // not ok: the channel has ended
  Status last_error_;
  uint64_t retry_at_ns_ = 0;  // no attempt to connect before this
  uint64_t connections_ = 0;  // connections made so far
  uint32_t failures_ = 0;     // consecutive connections without a reply
  uint64_t resent_ = 0;
  RequestWindow window_;
  std::deque<OneWayMessage> one_way_messages_;
  uint64_t earliest_deadline_ns_ = kNoDeadline;
  std::vector<RequestWindow::FailedRequest> ended_;  // reused
};

/// One request of a fiber and its outcome.
///
/// Owner: the fiber, on its stack or elsewhere; the destructor cancels the request. The channel outlives the request.
/// Views in the reply are valid as long as the Call lives. Threads: the channel's.
template <wire::Message Reply>
class Call final : private ResponseHandler {
 public:
  Call() = default;
  ~Call() {
    if (channel_ != nullptr) channel_->cancel(sequence_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Sends the request, once. If `channel` is an error, the call fails with it.
  template <wire::Message M>
  void send(const Result<Channel*>& channel, const M& message, uint64_t deadline_ns) {
    if (!channel.ok()) return on_failure(0, channel.status(), ExecutionStatus::kNotSent);
    send(**channel, message, deadline_ns);
  }
  /// Sends the request, once.
  template <wire::Message M>
  void send(Channel& channel, const M& message, uint64_t deadline_ns) {
    const auto sequence = channel.request(message, this, 0, deadline_ns);
    if (!sequence.ok()) return on_failure(0, sequence.status(), ExecutionStatus::kNotSent);
    channel_ = &channel;
    sequence_ = *sequence;
  }
  /// Suspends the fiber until the outcome is known. If a cancel scope of the fiber ends before, the request is
  /// cancelled. The returned status is ok if the server has executed the request.
  const Status& wait() {
    if (!ended_.wait_until(fiber::kForever)) give_up();
    return status_;
  }
  /// Whether the request was executed. After wait().
  ExecutionStatus executed() const { return executed_; }
  /// The reply. After a wait() that returned ok.
  Reply& reply() { return reply_; }

 private:
  Status on_reply(uint64_t, wire::Opcode opcode, ByteReader& body) override {
    if (opcode != Reply::kOpcode) return unexpected_reply(opcode);
    if constexpr (requires { Reply::kHasViews; }) {
      const Bytes raw = body.get_raw(body.remaining());
      bytes_.assign(raw.begin(), raw.end());
      ByteReader copy(bytes_);
      LOAM_RETURN_IF_ERROR(wire::decode_body(copy, reply_));
    } else {
      LOAM_RETURN_IF_ERROR(wire::decode_body(body, reply_));
    }
    end(ok_status(), ExecutionStatus::kExecuted);
    return ok_status();
  }
  void on_failure(uint64_t, const Status& status, ExecutionStatus executed) override { end(status, executed); }
  void give_up() {
    const bool sent = channel_->has_sent(sequence_);
    channel_->cancel(sequence_);
    end({StatusCode::kTimeout, channel_->name() + " did not answer before the end of the call"},
        sent ? ExecutionStatus::kUnknown : ExecutionStatus::kNotSent);
  }
  void end(Status status, ExecutionStatus executed) {
    channel_ = nullptr;
    status_ = std::move(status);
    executed_ = executed;
    ended_.notify();
  }

  Channel* channel_ = nullptr;  // while the request is open
  uint64_t sequence_ = 0;
  fiber::Event ended_;
  Status status_;
  ExecutionStatus executed_ = ExecutionStatus::kUnknown;
  Buffer bytes_;  // a copy of the body, for a reply with views
  Reply reply_;
};

/// Sends a request and suspends the fiber until its reply. For callers to whom it does not matter whether a failed
/// request was executed.
template <wire::Message Reply, wire::Message M>
Result<Reply> call(Channel& channel, const M& message, uint64_t deadline_ns) {
  Call<Reply> call;
  call.send(channel, message, deadline_ns);
  LOAM_RETURN_IF_ERROR(call.wait());
  return std::move(call.reply());
}

}  // namespace loam::rpc
