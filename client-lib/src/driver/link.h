// The conversation with one server: requests out, answers back to whoever asked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "client-lib/src/core/request_window.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/net/transport.h"
#include "common/wire/manager.h"
#include "common/wire/message.h"
#include "common/wire/reply_window.h"
#include "common/wire/storage.h"

namespace loam::client {

/// Messages that wait to be sent, bytes per link. Beyond it requests get kOverloaded.
inline constexpr size_t kMaxBacklogBytes = 64 << 20;
/// Between attempts to connect: kFirstReconnectNs * 2^n, at most kMaxReconnectNs.
inline constexpr uint64_t kFirstReconnectNs = 2'000'000;
inline constexpr uint64_t kMaxReconnectNs = 500'000'000;

/// Who asks. Lives until every request of its is answered, failed, or forgotten.
class Asker {
 public:
  /// An answer (wire::more_follow(): one of several), a kError among them. Bytes die when the call returns. An error
  /// says that the bytes are no valid answer: the connection is then closed.
  virtual Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) = 0;
  /// There will be no answer. `sent`: the request may have reached the server.
  virtual void on_failure(uint64_t token, const Status& status, bool sent) = 0;

 protected:
  ~Asker() = default;
};

/// What kError or an opcode that was not expected says.
Status unexpected_reply(wire::Opcode opcode, ByteReader& body);

/// How often a message is executed when its connection is lost: those that are repeated with their sequence are kept,
/// those whose repetition would cost or mean something else are asked once.
template <wire::Message M>
inline constexpr RequestWindow::Kind kRequestKind = RequestWindow::Kind::kKept;
template <>
inline constexpr RequestWindow::Kind kRequestKind<wire::Scan> = RequestWindow::Kind::kStream;
// Slow where a node hangs: must not hold up the window of the begins. Asked anew by whoever needs them.
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
class Link final : private net::Handler {
 public:
  struct Options {
    std::string address;  ///< "tcp://127.0.0.1:7401"
    std::string name;     ///< for messages: "storage node 1 at tcp://127.0.0.1:7401"
    /// How far the newest request may be ahead of the oldest without an answer.
    size_t window = wire::kNodeReplyWindow.requests;
    /// A lost connection is made anew also when nothing is asked.
    bool stays = false;
    /// First message of every connection (kAttach), encoded with sequence 0. Answered with kUnavailable, kOverloaded or
    /// kTimeout it is tried again on another connection; with any other error the link has ended. Empty: none.
    std::function<void(Buffer& out)> greeting;
    /// Its answer, unless an error. An error returned closes the connection.
    std::function<Status(wire::Opcode opcode, ByteReader& body)> on_greeted;
    /// Told when a connection is lost; `refused`: because its greeting was refused for now.
    std::function<void(const Status&, bool refused)> on_lost;
    /// Told when the greeting was refused for good.
    std::function<void(const Status&)> on_ended;
    /// Told of every answer that is an error as a whole, after who asked.
    std::function<void(const wire::Error&)> on_error;
  };

  Link(net::Transport& transport, Options options, std::function<uint64_t()> now_ns);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Connects before there is anything to ask. kUnavailable, kInvalidArgument: that cannot even be tried.
  Status start();

  /// Sends, in the frame that leaves at the end of the round, or as soon as there is a connection and room in the
  /// window. The number of the request, or why it never will be sent: kOverloaded, kInvalidArgument (too large), the
  /// link's end.
  template <wire::Message M>
  Result<uint64_t> request(const M& message, Asker* asker, uint64_t token, uint64_t deadline_ns) {
    LOAM_RETURN_IF_ERROR(ready());
    Buffer bytes = window_.take_buffer();
    wire::encode_message(message, window_.next(), bytes);
    return add(kRequestKind<M>, asker, token, deadline_ns, std::move(bytes));
  }
  /// The same for what must not wait behind others: sent now or not at all, and not repeated.
  template <wire::Message M>
  bool request_aside(const M& message, Asker* asker, uint64_t token, uint64_t deadline_ns) {
    if (!greeted_ || blocked_ || !ready().ok()) return false;
    Buffer bytes = window_.take_buffer();
    wire::encode_message(message, window_.next(), bytes);
    const bool sent = connection_->send(bytes).ok();
    if (sent) window_.add_sent(asker, token, deadline_ns);
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
  /// Nobody waits for that request any more.
  void forget(uint64_t sequence) { window_.finish(sequence); }

  /// Fails what is past its deadline (kTimeout; kUnavailable without a connection), connects anew when it is time.
  void expire(uint64_t now_ns);
  /// expire() has nothing to do before that (it may find that a request has ended).
  uint64_t earliest_deadline_ns() const;
  /// Ends the connection, fails all open requests, and refuses new ones with `status` for good.
  void close(const Status& status);
  /// The peer broke the protocol: the connection ends, and is made anew.
  void reject(const Status& status);
  /// Gives what was sent to the network now.
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
  Result<uint64_t> add(RequestWindow::Kind kind, Asker* asker, uint64_t token, uint64_t deadline_ns, Buffer bytes);
  void connect();
  /// Hands to the connection what may be sent.
  void pump();
  bool pump_notes();
  Status dispatch(Bytes message);
  Status greeted(wire::Opcode opcode, ByteReader& body);
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
