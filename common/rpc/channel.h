// The conversation with one server: requests out, answers back to their callers.
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
#include "common/net/transport.h"
#include "common/rpc/executed.h"
#include "common/rpc/request_window.h"
#include "common/wire/manager.h"
#include "common/wire/message.h"
#include "common/wire/reply_window.h"
#include "common/wire/storage.h"

namespace loam::rpc {

/// Messages that wait to be sent, bytes per channel. Beyond it requests get kOverloaded.
inline constexpr size_t kMaxBacklogBytes = 64 << 20;
/// Between attempts to connect: kFirstReconnectNs * 2^n, at most kMaxReconnectNs.
inline constexpr uint64_t kFirstReconnectNs = 2'000'000;
inline constexpr uint64_t kMaxReconnectNs = 500'000'000;

/// Receives the outcomes of the requests that it makes of a channel. Lives until each of them is answered, has failed,
/// or is forgotten.
class Caller {
 public:
  /// An answer, but no kError; wire::more_follow() tells whether others follow. Bytes die when the call returns. An
  /// error says that this is no valid answer: the connection is closed, and on_failure() follows with kUnknown.
  virtual Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) = 0;
  /// The end of a request without an answer; never kExecuted.
  virtual void on_failure(uint64_t token, const Status& status, Executed executed) = 0;

 protected:
  ~Caller() = default;
};

/// For Caller::on_reply(): the server answers with something that this request has no use for.
Status unexpected_reply(wire::Opcode opcode);

/// How often a message is executed when its connection is lost: those that are repeated with their sequence are kept,
/// those whose repetition would cost or mean something else are asked once.
template <wire::Message M>
inline constexpr RequestWindow::Kind kRequestKind = RequestWindow::Kind::kKept;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::Scan> = RequestWindow::Kind::kStream;
// Slow where a node hangs: must not hold up the window of the begins. Their callers repeat them.
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::GetCatalog> = RequestWindow::Kind::kOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::CreateTable> = RequestWindow::Kind::kOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::FinishIndex> = RequestWindow::Kind::kOnce;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::DropTable> = RequestWindow::Kind::kOnce;

/// One server, over one connection at a time (R3). A lost connection is made anew, with growing waits; it greets, and
/// everything without an answer is sent again with its old sequence before anything new. So a lost connection fails no
/// request but those that are asked once (scans): only their deadlines do, a greeting that is refused for good, and
/// close().
///
/// Owner: a session (or the recoverer), on the worker's thread only. Sequences count from 1 over all connections; a
/// greeting has sequence 0. Callbacks come from the transport's poll or expire(), never from inside request() or
/// close().
class Channel final : private net::Handler {
 public:
  struct Options {
    std::string address;  ///< "tcp://127.0.0.1:7401"
    std::string name;     ///< for messages: "storage node 1 at tcp://127.0.0.1:7401"
    /// How far the newest request may be ahead of the oldest without an answer.
    size_t window = wire::kNodeReplyWindow.requests;
    /// A lost connection is made anew also when nothing is asked.
    bool stays = false;
    /// A lost connection, or one that cannot be made, fails all open requests, for callers that repeat them in another
    /// way. Otherwise requests wait for the next connection, except those that are sent once.
    bool fails_with_connection = false;
    /// First message of every connection (kAttach), encoded with sequence 0. Answered with kUnavailable, kOverloaded or
    /// kTimeout it is tried again on another connection; with any other error the channel has ended. Empty: none.
    std::function<void(Buffer& out)> greeting;
    /// Its answer, unless an error. An error returned closes the connection.
    std::function<Status(wire::Opcode opcode, ByteReader& body)> on_greeted;
    /// Told when a connection is lost; `refused`: because its greeting was refused for now.
    std::function<void(const Status&, bool refused)> on_lost;
    /// Told when the greeting was refused for good.
    std::function<void(const Status&)> on_ended;
    /// Told of every answer that is no error, after the caller.
    std::function<void()> on_answer;
    /// Told of every answer that is an error as a whole, after the caller.
    std::function<void(const wire::Error&)> on_error;
  };

  Channel(net::Transport& transport, Options options, std::function<uint64_t()> now_ns);
  ~Channel() override;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Connects before there is anything to ask. kUnavailable, kInvalidArgument: that cannot even be tried.
  Status start();

  /// Sends, in the frame that leaves at the end of the round, or as soon as there is a connection and room in the
  /// window. The number of the request, or why it never will be sent: kOverloaded, kInvalidArgument (too large), the
  /// channel's end.
  template <wire::Message M>
  Result<uint64_t> request(const M& message, Caller* caller, uint64_t token, uint64_t deadline_ns) {
    LOAM_RETURN_IF_ERROR(ready());
    Buffer bytes = window_.take_buffer();
    wire::encode_message(message, window_.next(), bytes);
    return add(kRequestKind<M>, caller, token, deadline_ns, std::move(bytes));
  }
  /// The same for what must not wait behind others: sent now or not at all, and not repeated.
  template <wire::Message M>
  bool request_aside(const M& message, Caller* caller, uint64_t token, uint64_t deadline_ns) {
    if (!greeted_ || blocked_ || !ready().ok()) return false;
    Buffer bytes = window_.take_buffer();
    wire::encode_message(message, window_.next(), bytes);
    const bool sent = connection_->send(bytes).ok();
    if (sent) window_.add_sent(caller, token, deadline_ns);
    if (sent) earliest_deadline_ns_ = std::min(earliest_deadline_ns_, deadline_ns);
    window_.give_back(std::move(bytes));
    return sent;
  }
  /// A message without an answer. Lost in silence with its connection.
  template <wire::Message M>
  void tell(const M& message) {
    if (connection_ == nullptr || !ready().ok()) return;
    Buffer bytes = window_.take_buffer();
    wire::encode_message(message, window_.next(), bytes);
    static_cast<void>(add(RequestWindow::Kind::kTold, nullptr, 0, kNoDeadline, std::move(bytes)));
  }
  /// The same, with the number of an open request that it belongs to.
  template <wire::Message M>
  void tell_about(uint64_t sequence, const M& message) {
    if (connection_ == nullptr) return;
    Note note{sequence, {}};
    wire::encode_message(message, sequence, note.bytes);
    notes_.push_back(std::move(note));
    pump();
  }
  /// Memory that the server may write into over the connection that stands now.
  struct Offer {
    net::OfferedRegion region;
    uint64_t connection = 0;  ///< 0: none was to be had
  };
  /// For a request that would be sent at once: on another connection the server would not know the region.
  Offer offer(size_t bytes);
  /// Ends the server's leave, if the connection still stands.
  void withdraw(const Offer& offer);
  /// Whether that request was sent.
  bool has_sent(uint64_t sequence) const { return window_.may_have_arrived(sequence); }
  /// The caller wants no answer to that request any more.
  void forget(uint64_t sequence) { window_.finish(sequence); }

  /// Fails requests past their deadline (kTimeout; kUnavailable without a connection); connects anew when it is time.
  void expire(uint64_t now_ns);
  /// expire() has nothing to do before that (it may find that a request has ended).
  uint64_t earliest_deadline_ns() const;
  /// Ends the connection, fails all open requests, and refuses new ones with `status` for good.
  void close(const Status& status);
  /// The peer broke the protocol: the connection ends, and is made anew.
  void reject(const Status& status);
  /// Gives the requests of this round to the network now.
  void flush() {
    if (connection_ != nullptr) connection_->flush();
  }

  const std::string& name() const { return options_.name; }
  size_t open_requests() const { return window_.open(); }
  /// No connection is left and nothing is asked: may be destroyed.
  bool idle() const { return connection_ == nullptr && window_.empty(); }
  /// The connection stands, and its greeting was taken.
  bool connected() const { return greeted_; }
  /// Requests that were sent more than once.
  uint64_t resent() const { return resent_; }

 private:
  /// A message about a request, which leaves after it.
  struct Note {
    uint64_t sequence = 0;
    Buffer bytes;
  };

  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_writable(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

  Status ready() const;
  Result<uint64_t> add(RequestWindow::Kind kind, Caller* caller, uint64_t token, uint64_t deadline_ns, Buffer bytes);
  void connect();
  /// Hands to the connection what may be sent.
  void pump();
  bool pump_notes();
  Status dispatch(Bytes message);
  Status greeted(wire::Opcode opcode, ByteReader& body);
  /// Tells the caller of request `sequence` of a kError.
  Status refused(uint64_t sequence, Caller& caller, uint64_t token, ByteReader& body);
  void lost(const Status& status);
  Status timeout_status(const RequestWindow::Ended& ended) const;

  net::Transport& transport_;
  const Options options_;
  const std::function<uint64_t()> now_ns_;
  net::Connection* connection_ = nullptr;
  bool connected_ = false;  // the handshake is done
  bool greeted_ = false;    // and the greeting was taken
  bool blocked_ = false;    // the connection takes nothing before on_writable()
  bool refused_ = false;    // the greeting was, for now: the connection ends
  bool fails_all_ = false;  // expire() fails all open requests: Options::fails_with_connection
  Status closed_;           // not ok: for good
  Status last_loss_;
  uint64_t retry_at_ns_ = 0;
  uint64_t connections_ = 0;  // made so far
  uint32_t failures_ = 0;     // connections that brought no answer, in a row
  uint64_t resent_ = 0;
  RequestWindow window_;
  std::deque<Note> notes_;
  uint64_t earliest_deadline_ns_ = kNoDeadline;
  std::vector<RequestWindow::Ended> ended_;  // reused
};

/// One request of a fiber, and its outcome. Lies on the fiber's stack, or lives longer; the destructor forgets the
/// request. The channel outlives the request. Views in the reply live as long as the call. Channel's thread only.
template <wire::Message Reply>
class Call final : private Caller {
 public:
  Call() = default;
  ~Call() {
    if (channel_ != nullptr) channel_->forget(sequence_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Sends the request; without a channel it has failed. Once.
  template <wire::Message M>
  void send(const Result<Channel*>& channel, const M& message, uint64_t deadline_ns) {
    if (!channel.ok()) return on_failure(0, channel.status(), Executed::kNotSent);
    send(**channel, message, deadline_ns);
  }
  template <wire::Message M>
  void send(Channel& channel, const M& message, uint64_t deadline_ns) {
    const auto sequence = channel.request(message, this, 0, deadline_ns);
    if (!sequence.ok()) return on_failure(0, sequence.status(), Executed::kNotSent);
    channel_ = &channel;
    sequence_ = *sequence;
  }
  /// In a fiber: until the outcome is there, or a limit of the fiber ends; the request is then forgotten. The status is
  /// ok if the server has executed the request.
  const Status& wait() {
    if (!ended_.wait_until(fiber::kForever)) give_up();
    return status_;
  }
  // After wait().
  Executed executed() const { return executed_; }
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
    end(ok_status(), Executed::kExecuted);
    return ok_status();
  }
  void on_failure(uint64_t, const Status& status, Executed executed) override { end(status, executed); }
  void give_up() {
    const bool sent = channel_->has_sent(sequence_);
    channel_->forget(sequence_);
    end({StatusCode::kTimeout, channel_->name() + " did not answer before the end of the call"},
        sent ? Executed::kUnknown : Executed::kNotSent);
  }
  void end(Status status, Executed executed) {
    channel_ = nullptr;
    status_ = std::move(status);
    executed_ = executed;
    ended_.notify();
  }

  Channel* channel_ = nullptr;  // while the request is open
  uint64_t sequence_ = 0;
  fiber::Event ended_;
  Status status_;
  Executed executed_ = Executed::kUnknown;
  Buffer bytes_;  // the body of a reply with views
  Reply reply_;
};

/// In a fiber: a request and its answer, for callers that do not care whether a request that failed was executed.
template <wire::Message Reply, wire::Message M>
Result<Reply> call(Channel& channel, const M& message, uint64_t deadline_ns) {
  Call<Reply> made;
  made.send(channel, message, deadline_ns);
  LOAM_RETURN_IF_ERROR(made.wait());
  return std::move(made.reply());
}

}  // namespace loam::rpc
