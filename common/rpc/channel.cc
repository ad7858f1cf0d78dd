#include "common/rpc/channel.h"

#include <algorithm>
#include <utility>

namespace loam::rpc {

Status unexpected_reply(wire::Opcode opcode) {
  return {StatusCode::kMalformed,
          "the server answers with " + std::string(wire::to_string(opcode)) + ", which was not asked for"};
}

namespace {

/// The body of a kError.
Status decode_error(ByteReader& body, wire::Error& error) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, error));
  if (error.status.ok()) return {StatusCode::kMalformed, "the server answers with an error that is none"};
  return ok_status();
}

}  // namespace

Channel::Channel(net::Transport& transport, Options options, std::function<uint64_t()> now_ns)
    : transport_(transport), options_(std::move(options)), now_ns_(std::move(now_ns)), window_(options_.window) {}

Channel::~Channel() { LOAM_DCHECK(idle(), "a channel dies while it is in use"); }

Status Channel::ready() const {
  if (!closed_.ok()) return closed_;
  if (!window_.full()) return ok_status();
  return {StatusCode::kOverloaded, options_.name + " owes more answers than wait for it; try again later"};
}

Result<uint64_t> Channel::add(RequestWindow::Kind kind, Caller* caller, uint64_t token, uint64_t deadline_ns,
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
  window_.add(kind, caller, token, deadline_ns, std::move(bytes));
  earliest_deadline_ns_ = std::min(earliest_deadline_ns_, deadline_ns);
  if (connection_ != nullptr) {
    pump();
  } else if (now_ns_() >= retry_at_ns_) {
    connect();
  }
  return sequence;
}

Status Channel::start() {
  connect();
  return connection_ != nullptr ? ok_status() : last_loss_;
}

void Channel::connect() {
  const auto address = net::Address::parse(options_.address);
  const auto connection =
      address.ok() ? transport_.connect(*address, *this) : Result<net::Connection*>(address.status());
  if (!connection.ok()) {
    fails_all_ = options_.fails_with_connection;
    if (fails_all_) earliest_deadline_ns_ = 0;
    return lost(connection.status());
  }
  connection_ = *connection;
  ++connections_;
  if (options_.greeting) {
    Buffer message = window_.take_buffer();
    options_.greeting(message);
    static_cast<void>(connection_->send(message));  // a new connection takes it, or ends, which is told
    window_.give_back(std::move(message));
  }
  pump();
}

bool Channel::pump_notes() {
  while (!notes_.empty() && window_.may_have_arrived(notes_.front().sequence)) {
    if (connection_->send(notes_.front().bytes).code() == StatusCode::kOverloaded) return false;
    notes_.pop_front();
  }
  return true;
}

void Channel::pump() {
  if (blocked_ || connection_ == nullptr) return;
  while (RequestWindow::Request* request = window_.next_to_send()) {
    // A request that is sent once must not be lost with a connection whose greeting fails.
    if (request->kind != RequestWindow::Kind::kKept && !greeted_) break;
    const Status status = connection_->send(request->bytes);
    if (status.ok()) {
      if (window_.mark_sent()) ++resent_;
    } else if (status.code() == StatusCode::kInvalidArgument) {
      window_.mark_too_large();  // over what the peer takes
      earliest_deadline_ns_ = 0;
    } else {
      blocked_ = true;  // until on_writable(), or the connection's end
      return;
    }
  }
  if (!notes_.empty() && !pump_notes()) blocked_ = true;
}

Channel::Offer Channel::offer(size_t bytes) {
  if (!greeted_ || blocked_ || !window_.sends_next()) return {};
  const auto region = connection_->offer_region(bytes);
  return region.ok() ? Offer{*region, connections_} : Offer{};
}

void Channel::withdraw(const Offer& offer) {
  if (connection_ != nullptr && offer.connection == connections_) connection_->withdraw_region(offer.region.remote);
}

void Channel::on_writable(net::Connection&) {
  blocked_ = false;
  pump();
}

void Channel::on_connected(net::Connection&) {
  connected_ = true;
  if (options_.greeting) return;
  greeted_ = true;
  pump();
}

void Channel::on_messages(net::Connection&, std::span<const Bytes> messages) {
  for (const Bytes message : messages) {
    if (Status status = dispatch(message); !status.ok()) return reject(status);
    if (connection_ == nullptr || !closed_.ok()) return;  // ended by what the message led to
  }
  pump();  // the window has moved
}

Status Channel::greeted(wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kError) {
    if (options_.on_greeted) LOAM_RETURN_IF_ERROR(options_.on_greeted(opcode, body));
    greeted_ = true;  // on_messages() pumps
    return ok_status();
  }
  // Refused: nothing that was sent behind it is executed.
  wire::Error error;
  const Status valid = decode_error(body, error);
  const Status& refusal = valid.ok() ? error.status : valid;
  const Status named(refusal.code(), options_.name + ": " + std::string(refusal.message()));
  const bool passing = refusal == StatusCode::kUnavailable || refusal == StatusCode::kOverloaded ||
                       refusal == StatusCode::kTimeout || refusal == StatusCode::kMalformed;
  if (!passing) close(named);
  refused_ = passing;
  if (!passing && options_.on_ended) options_.on_ended(named);
  return refusal;
}

Status Channel::dispatch(Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  if (envelope.sequence == 0) return greeted(envelope.opcode, reader);
  const RequestWindow::Request* found = window_.find(envelope.sequence);
  if (found == nullptr) return ok_status();  // forgotten, or too late
  Caller* const caller = found->caller;
  const uint64_t token = found->token;
  // A request that is no stream ends with its first answer, also if the server claims that more follow.
  const bool more = wire::more_follow(envelope.opcode) && found->kind == RequestWindow::Kind::kStream;
  if (!more) window_.finish(envelope.sequence);
  if (envelope.opcode == wire::Opcode::kError) return refused(envelope.sequence, *caller, token, reader);
  Status valid = caller->on_reply(token, envelope.opcode, reader);
  if (valid.ok()) failures_ = 0;
  if (valid.ok() && options_.on_answer) options_.on_answer();
  // With more to come the request is open: it fails with the connection.
  if (!valid.ok() && !more) caller->on_failure(token, valid, Executed::kUnknown);
  return valid;
}

Status Channel::refused(uint64_t sequence, Caller& caller, uint64_t token, ByteReader& body) {
  wire::Error error;
  if (Status valid = decode_error(body, error); !valid.ok()) {
    caller.on_failure(token, valid, Executed::kUnknown);
    return valid;
  }
  failures_ = 0;
  // A server that has ended the session remembers nothing of it: what an earlier connection brought may be executed.
  const bool lost_before = error.status == StatusCode::kFenced && window_.sent_before(sequence);
  const bool forgotten = error.status == StatusCode::kUnknownOutcome;
  caller.on_failure(token, error.status, lost_before || forgotten ? Executed::kUnknown : Executed::kRefused);
  if (options_.on_error) options_.on_error(error);
  return ok_status();
}

void Channel::reject(const Status& status) {
  if (connection_ == nullptr || !closed_.ok()) return;
  connection_->close({status.code(), options_.name + ": " + std::string(status.message())});
}

void Channel::lost(const Status& status) {
  last_loss_ = {status.ok() ? StatusCode::kUnavailable : status.code(),
                options_.name + ": " + std::string(status.ok() ? "the connection was closed" : status.message())};
  retry_at_ns_ = now_ns_() + std::min(kMaxReconnectNs, kFirstReconnectNs << std::min(failures_, 20u));
  ++failures_;
}

void Channel::on_closed(net::Connection&, const Status& status) {
  const bool established = connected_;
  connection_ = nullptr;
  connected_ = greeted_ = blocked_ = false;
  notes_.clear();
  lost(status);
  std::vector<RequestWindow::Ended> ended;
  window_.restart(established, ended);
  if (options_.fails_with_connection) static_cast<void>(window_.expire(UINT64_MAX, ended));
  const Status loss(StatusCode::kUnavailable, std::string(last_loss_.message()));
  for (const auto& request : ended) {
    if (request.caller != nullptr)
      request.caller->on_failure(request.token, closed_.ok() ? loss : closed_, request.executed);
  }
  const bool refused = std::exchange(refused_, false);
  if (closed_.ok() && options_.on_lost) options_.on_lost(last_loss_, refused);
}

Status Channel::timeout_status(const RequestWindow::Ended& ended) const {
  if (!closed_.ok()) return closed_;
  if (ended.too_large) return {StatusCode::kInvalidArgument, options_.name + " does not take a message of that size"};
  const std::string why = last_loss_.ok() || connected_ ? "" : "; " + std::string(last_loss_.message());
  if (!connected_ || ended.executed == Executed::kNotSent)
    return {StatusCode::kUnavailable, options_.name + " could not be reached in time" + why};
  return {StatusCode::kTimeout, options_.name + " did not answer in time" + why};
}

uint64_t Channel::earliest_deadline_ns() const {
  const bool wants = closed_.ok() && connection_ == nullptr && (options_.stays || window_.open() > 0);
  return wants ? std::min(earliest_deadline_ns_, retry_at_ns_) : earliest_deadline_ns_;
}

void Channel::expire(uint64_t now_ns) {
  if (now_ns < earliest_deadline_ns()) return;
  if (now_ns >= earliest_deadline_ns_) {
    std::vector<RequestWindow::Ended> ended = std::move(ended_);
    ended.clear();
    earliest_deadline_ns_ = kNoDeadline;  // requests that the callbacks make lower it again
    const bool all = std::exchange(fails_all_, false) || !closed_.ok();
    const uint64_t left_ns = window_.expire(all ? UINT64_MAX : now_ns, ended);
    earliest_deadline_ns_ = std::min(earliest_deadline_ns_, left_ns);
    for (const auto& request : ended) {
      if (request.caller != nullptr)
        request.caller->on_failure(request.token, timeout_status(request), request.executed);
    }
    ended_ = std::move(ended);
    pump();
  }
  if (closed_.ok() && connection_ == nullptr && (options_.stays || window_.open() > 0) && now_ns >= retry_at_ns_) {
    connect();
  }
}

void Channel::close(const Status& status) {
  if (!closed_.ok()) return;
  closed_ = status;
  earliest_deadline_ns_ = 0;  // open requests fail in expire()
  if (connection_ != nullptr) connection_->close(status);
}

}  // namespace loam::rpc
