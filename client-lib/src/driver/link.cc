#include "client-lib/src/driver/link.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace loam::client {

Status unexpected_reply(wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kError) {
    return {StatusCode::kMalformed,
            "the server answers with " + std::string(wire::to_string(opcode)) + ", which was not asked for"};
  }
  wire::Error error;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, error));
  if (error.status.ok()) return {StatusCode::kMalformed, "the server answers with an error that is none"};
  return error.status;
}

Link::Link(net::Transport& transport, Options options, std::function<uint64_t()> now_ns)
    : transport_(transport), options_(std::move(options)), now_ns_(std::move(now_ns)) {}

Link::~Link() { LOAM_DCHECK(connection_ == nullptr && open_.empty(), "a link dies while it is in use"); }

Status Link::ready() {
  if (!closed_.ok()) return closed_;
  if (connection_ != nullptr) return ok_status();
  if (!last_loss_.ok() && (!options_.reconnects || now_ns_() < retry_at_ns_)) return last_loss_;
  LOAM_ASSIGN_OR_RETURN(const net::Address address, net::Address::parse(options_.address));
  LOAM_ASSIGN_OR_RETURN(connection_, transport_.connect(address, *this));
  connected_ = false;
  if (!options_.greeting) return ok_status();
  greeting_sequence_ = ++sequence_;
  scratch_.clear();
  options_.greeting(scratch_, greeting_sequence_);
  return send_bytes(scratch_);
}

Status Link::send_bytes(Bytes message) {
  if (backlog_.empty()) {
    Status status = connection_->send(message);
    if (status.code() != StatusCode::kOverloaded) return status;
  }
  if (backlog_bytes_ + message.size() > kMaxBacklogBytes) {
    return {StatusCode::kOverloaded, options_.name + " does not take what is sent to it fast enough; try again later"};
  }
  backlog_bytes_ += message.size();
  backlog_.emplace_back(message.begin(), message.end());
  return ok_status();
}

void Link::on_writable(net::Connection& connection) {
  while (!backlog_.empty()) {
    // Any other refusal closes the connection, whose end fails all that is open.
    if (connection.send(backlog_.front()).code() == StatusCode::kOverloaded) return;
    backlog_bytes_ -= backlog_.front().size();
    backlog_.pop_front();
  }
}

void Link::on_connected(net::Connection&) { connected_ = true; }

void Link::on_messages(net::Connection&, std::span<const Bytes> messages) {
  for (const Bytes message : messages) {
    if (Status status = dispatch(message); !status.ok()) return reject(status);
    if (connection_ == nullptr) return;  // closed by what the message led to
  }
}

Status Link::dispatch(Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  if (envelope.sequence == greeting_sequence_ && options_.greeting) {
    if (envelope.opcode != wire::Opcode::kError) return ok_status();
    // Refused: nothing that was sent behind it is executed.
    const Status refusal = unexpected_reply(envelope.opcode, reader);
    fail_all({refusal.code(), options_.name + ": " + std::string(refusal.message())}, false);
    return refusal;
  }
  const auto found = open_.find(envelope.sequence);
  if (found == open_.end()) return ok_status();  // forgotten, or too late
  const Open open = found->second;
  if (envelope.opcode != wire::Opcode::kScanChunk) open_.erase(found);
  return open.asker->on_reply(open.token, envelope.opcode, reader);
}

void Link::reject(const Status& status) {
  if (connection_ != nullptr) connection_->close({status.code(), options_.name + ": " + std::string(status.message())});
}

void Link::on_closed(net::Connection&, const Status& status) {
  const bool sent = connected_;
  connection_ = nullptr;
  connected_ = false;
  backlog_.clear();
  backlog_bytes_ = 0;
  last_loss_ = {status.ok() ? StatusCode::kUnavailable : status.code(),
                options_.name + ": " + std::string(status.ok() ? "the connection was closed" : status.message())};
  retry_at_ns_ = now_ns_() + kReconnectAfterNs;
  const Status loss = closed_.ok() ? last_loss_ : closed_;
  fail_all(loss, sent);
  if (options_.on_lost) options_.on_lost(loss);
}

void Link::fail_all(const Status& status, bool sent) {
  std::vector<Open> failed;
  failed.reserve(open_.size());
  for (const auto& [sequence, open] : open_) failed.push_back(open);
  open_.clear();
  for (const Open& open : failed) open.asker->on_failure(open.token, status, sent);
}

void Link::expire(uint64_t now_ns) {
  if (now_ns < earliest_deadline_ns_) return;
  earliest_deadline_ns_ = kNoDeadline;
  std::vector<Open> failed;
  for (auto at = open_.begin(); at != open_.end();) {
    if (at->second.deadline_ns <= now_ns) {
      failed.push_back(at->second);
      at = open_.erase(at);
    } else {
      earliest_deadline_ns_ = std::min(earliest_deadline_ns_, at->second.deadline_ns);
      ++at;
    }
  }
  const Status status(StatusCode::kTimeout, options_.name + " did not answer in time");
  for (const Open& open : failed) open.asker->on_failure(open.token, status, connected_);
}

void Link::close(const Status& status) {
  if (!closed_.ok()) return;
  closed_ = status;
  if (connection_ != nullptr) connection_->close(status);  // on_closed() follows
}

}  // namespace loam::client
