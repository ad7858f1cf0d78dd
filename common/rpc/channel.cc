// The connections of a channel, its startup message, the dispatch of replies, and deadlines. request_window.cc decides
// which request is sent next, and which requests are repeated on another connection.

#include "common/rpc/channel.h"

#include <algorithm>
#include <utility>

namespace loam::rpc {

Status unexpected_reply(wire::Opcode opcode) {
  return {StatusCode::kMalformed,
          "the server answers with " + std::string(wire::to_string(opcode)) + ", which does not answer the request"};
}

namespace {

/// Decodes the body of a kError. An error without an error code is malformed.
Status decode_error(ByteReader& body, wire::Error& error) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, error));
  if (error.status.ok()) return {StatusCode::kMalformed, "the server answers with an error that has the code kOk"};
  return ok_status();
}

}  // namespace

Channel::Channel(net::Transport& transport, Options options, std::function<uint64_t()> now_ns)
    : transport_(transport),
      options_(std::move(options)),
      now_ns_(std::move(now_ns)),
      window_(options_.window, options_.first_sequence) {}

Channel::~Channel() { LOAM_DCHECK(idle(), "a channel dies while it is in use"); }

Status Channel::ready() const {
  if (!closed_.ok()) return closed_;
  if (!window_.full()) return ok_status();
  return {StatusCode::kOverloaded, options_.name + " has too many unanswered requests; try again later"};
}

Result<uint64_t> Channel::add(RequestWindow::Kind kind, ResponseHandler* caller, uint64_t token, uint64_t deadline_ns,
                              Buffer bytes) {
  if (bytes.size() > transport_.options().max_message_bytes) {
    return Status(StatusCode::kInvalidArgument, "a message of " + std::to_string(bytes.size()) + " bytes, at most " +
                                                    std::to_string(transport_.options().max_message_bytes) +
                                                    " can be sent");
  }
  if (window_.unsent_bytes() + bytes.size() > kMaxBacklogBytes) {
    return Status(StatusCode::kOverloaded, options_.name + " receives requests too slowly; try again later");
  }
  const uint64_t sequence = window_.next();
  window_.add(kind, caller, token, deadline_ns, std::move(bytes), round_ns());
  earliest_deadline_ns_ = std::min(earliest_deadline_ns_, deadline_ns);
  if (connection_ != nullptr) {
    send_pending();
  } else if (now_ns_() >= retry_at_ns_) {
    connect();
  }
  return sequence;
}

Status Channel::start() {
  connect();
  return connection_ != nullptr ? ok_status() : last_error_;
}

void Channel::connect() {
  const auto address = net::Address::parse(options_.address);
  const auto connection =
      address.ok() ? transport_.connect(*address, *this) : Result<net::Connection*>(address.status());
  if (!connection.ok()) {
    // A request fails in the next expire(), because its callback must not come from inside request().
    fail_all_pending_ = options_.fail_on_disconnect;
    if (fail_all_pending_) earliest_deadline_ns_ = 0;
    return handle_disconnect(connection.status());
  }
  connection_ = *connection;
  ++connections_;
  // The startup message leaves first. Requests of kind kResend follow without waiting for its reply.
  if (options_.startup_message) {
    Buffer message = window_.acquire_buffer();
    options_.startup_message(message);
    static_cast<void>(connection_->send(message));  // the empty queue accepts it, unless the connection has ended
    window_.release_buffer(std::move(message));
  }
  send_pending();
}

bool Channel::send_one_way_messages() {
  // A message about a request must not overtake the request, because the server would not know it yet.
  while (!one_way_messages_.empty() && window_.may_have_arrived(one_way_messages_.front().sequence)) {
    if (connection_->send(one_way_messages_.front().bytes).code() == StatusCode::kOverloaded) return false;
    one_way_messages_.pop_front();
  }
  return true;
}

void Channel::send_pending() {
  if (blocked_ || connection_ == nullptr) return;
  while (RequestWindow::Request* request = window_.next_to_send()) {
    // The server drops all requests behind a startup message that it refuses. Requests that are not repeated wait for
    // its reply; the others need not, which saves a round trip.
    if (request->kind != RequestWindow::Kind::kResend && !startup_done_) break;
    const Status status = connection_->send(request->bytes);
    if (status.ok()) {
      if (window_.mark_sent(round_ns())) ++resent_;
    } else if (status.code() == StatusCode::kInvalidArgument) {
      window_.mark_too_large();  // larger than the peer accepts
      earliest_deadline_ns_ = 0;
    } else {
      blocked_ = true;  // until on_writable() or the end of the connection
      return;
    }
  }
  if (!one_way_messages_.empty() && !send_one_way_messages()) blocked_ = true;
}

Channel::Offer Channel::offer(size_t bytes) {
  if (!startup_done_ || blocked_ || !window_.can_send_next()) return {};
  const auto region = connection_->offer_region(bytes);
  return region.ok() ? Offer{*region, connections_} : Offer{};
}

void Channel::withdraw(const Offer& offer) {
  if (connection_ != nullptr && offer.connection == connections_) connection_->withdraw_region(offer.region.remote);
}

void Channel::on_writable(net::Connection&) {
  blocked_ = false;
  send_pending();
}

void Channel::on_connected(net::Connection&) {
  connected_ = true;
  if (options_.startup_message) return;
  startup_done_ = true;
  send_pending();
}

void Channel::on_messages(net::Connection&, std::span<const Bytes> messages) {
  for (const Bytes message : messages) {
    if (Status status = dispatch(message); !status.ok()) return reject(status);
    if (connection_ == nullptr || !closed_.ok()) return;  // the callback has ended the connection or the channel
  }
  send_pending();  // replies may have moved the window
}

Status Channel::handle_startup_reply(wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kError) {
    if (options_.on_startup_reply) LOAM_RETURN_IF_ERROR(options_.on_startup_reply(opcode, body));
    startup_done_ = true;  // on_messages() calls send_pending()
    return ok_status();
  }
  // Refused. The server executes no request that was sent behind the startup message. After a passing error the
  // channel tries again; any other error would come again, so it ends the channel.
  wire::Error error;
  const Status valid = decode_error(body, error);
  const Status& refusal = valid.ok() ? error.status : valid;
  const Status named(refusal.code(), options_.name + ": " + std::string(refusal.message()));
  const bool passing = refusal == StatusCode::kUnavailable || refusal == StatusCode::kOverloaded ||
                       refusal == StatusCode::kTimeout || refusal == StatusCode::kMalformed;
  if (!passing) close(named);
  refused_ = passing;
  if (!passing && options_.on_rejected) options_.on_rejected(named);
  return refusal;
}

Status Channel::dispatch(Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  if (envelope.sequence == 0) return handle_startup_reply(envelope.opcode, reader);
  const RequestWindow::Request* found = window_.find(envelope.sequence);
  if (found == nullptr) return ok_status();  // cancelled, or its deadline has passed
  ResponseHandler* const caller = found->caller;
  const uint64_t token = found->token;
  // A request ends before the callback of its last reply, which may send others. `found` is invalid from then on.
  // A request that is no stream ends with its first reply, also if the server says that more follow.
  const bool more = wire::more_follow(envelope.opcode) && found->kind == RequestWindow::Kind::kStream;
  if (!more && options_.timer != nullptr) {
    options_.timer->answered(latency::kind_of(envelope.opcode), options_.node, envelope.sequence, found->made_ns,
                             found->sent_ns);
  }
  if (!more) window_.finish(envelope.sequence);
  if (envelope.opcode == wire::Opcode::kError) return refused(envelope.sequence, *caller, token, reader);
  Status valid = caller->on_reply(token, envelope.opcode, reader);
  if (valid.ok()) failures_ = 0;
  if (valid.ok() && options_.on_answer) options_.on_answer();
  // If more replies follow, the request is still open. It fails when reject() closes the connection.
  if (!valid.ok() && !more) caller->on_failure(token, valid, ExecutionStatus::kUnknown);
  return valid;
}

Status Channel::refused(uint64_t sequence, ResponseHandler& caller, uint64_t token, ByteReader& body) {
  wire::Error error;
  if (Status valid = decode_error(body, error); !valid.ok()) {
    caller.on_failure(token, valid, ExecutionStatus::kUnknown);
    return valid;
  }
  failures_ = 0;
  // A server that has ended the session has no reply window, and one without room for a window refuses with
  // kOverloaded. Neither remembers the refusal. So a request that was also sent over an earlier connection may have
  // been executed, or may yet be, and so may one that is beyond the window (kUnknownOutcome).
  const bool unremembered = error.status == StatusCode::kFenced || error.status == StatusCode::kOverloaded;
  const bool lost_before = unremembered && window_.sent_before(sequence);
  const bool forgotten = error.status == StatusCode::kUnknownOutcome;
  caller.on_failure(token, error.status,
                    lost_before || forgotten ? ExecutionStatus::kUnknown : ExecutionStatus::kRefused);
  if (options_.on_error) options_.on_error(error);
  return ok_status();
}

void Channel::reject(const Status& status) {
  if (connection_ == nullptr || !closed_.ok()) return;
  connection_->close({status.code(), options_.name + ": " + std::string(status.message())});
}

void Channel::handle_disconnect(const Status& status) {
  last_error_ = {status.ok() ? StatusCode::kUnavailable : status.code(),
                 options_.name + ": " + std::string(status.ok() ? "the connection was closed" : status.message())};
  // Only a reply to a request resets failures_. So the pauses also grow for a server that accepts connections and
  // then ends them.
  retry_at_ns_ = now_ns_() + std::min(kMaxReconnectNs, kFirstReconnectNs << std::min(failures_, 20u));
  ++failures_;
}

void Channel::on_closed(net::Connection&, const Status& status) {
  // Step 1: reset the state of the connection, so that the callbacks below may send requests. These wait for the next
  // connection, which expire() makes after the pause.
  const bool established = connected_;
  connection_ = nullptr;
  connected_ = startup_done_ = blocked_ = false;
  one_way_messages_.clear();
  handle_disconnect(status);
  // Step 2: decide which requests the loss has ended. The list is local, because a callback may call expire(), which
  // uses ended_.
  std::vector<RequestWindow::FailedRequest> ended;
  window_.restart(established, ended);
  if (options_.fail_on_disconnect) static_cast<void>(window_.expire(UINT64_MAX, ended));
  // Step 3: report them, and then the loss itself.
  const Status loss(StatusCode::kUnavailable, std::string(last_error_.message()));
  for (const auto& request : ended) {
    if (request.caller != nullptr)
      request.caller->on_failure(request.token, closed_.ok() ? loss : closed_, request.executed);
  }
  const bool refused = std::exchange(refused_, false);
  if (closed_.ok() && options_.on_disconnect) options_.on_disconnect(last_error_, refused);
}

Status Channel::timeout_status(const RequestWindow::FailedRequest& ended) const {
  if (!closed_.ok()) return closed_;
  if (ended.too_large) return {StatusCode::kInvalidArgument, options_.name + " does not take a message of that size"};
  // Without a connection, the reason is why the server cannot be reached, which says more than a time-out.
  const std::string why = last_error_.ok() || connected_ ? "" : "; " + std::string(last_error_.message());
  if (!connected_ || ended.executed == ExecutionStatus::kNotSent)
    return {StatusCode::kUnavailable, options_.name + " could not be reached in time" + why};
  return {StatusCode::kTimeout, options_.name + " did not answer in time" + why};
}

uint64_t Channel::earliest_deadline_ns() const {
  const bool wants = closed_.ok() && connection_ == nullptr && (options_.keep_connected || window_.open() > 0);
  return wants ? std::min(earliest_deadline_ns_, retry_at_ns_) : earliest_deadline_ns_;
}

void Channel::expire(uint64_t now_ns) {
  if (now_ns < earliest_deadline_ns()) return;
  if (now_ns >= earliest_deadline_ns_) {
    // Moved to a local vector, so that a callback below may cause another call of expire().
    std::vector<RequestWindow::FailedRequest> ended = std::move(ended_);
    ended.clear();
    earliest_deadline_ns_ = kNoDeadline;  // the callbacks below may send requests, which lower it again
    const bool all = std::exchange(fail_all_pending_, false) || !closed_.ok();
    const uint64_t left_ns = window_.expire(all ? UINT64_MAX : now_ns, ended);
    earliest_deadline_ns_ = std::min(earliest_deadline_ns_, left_ns);
    for (const auto& request : ended) {
      if (request.caller != nullptr)
        request.caller->on_failure(request.token, timeout_status(request), request.executed);
    }
    ended_ = std::move(ended);
    send_pending();
  }
  if (closed_.ok() && connection_ == nullptr && (options_.keep_connected || window_.open() > 0) &&
      now_ns >= retry_at_ns_) {
    connect();
  }
}

void Channel::close(const Status& status) {
  if (!closed_.ok()) return;
  closed_ = status;
  earliest_deadline_ns_ = 0;  // the next expire() fails the open requests
  if (connection_ != nullptr) connection_->close(status);
}

}  // namespace loam::rpc
