// A ring of the open requests, in which the number of a request is its place. Sent requests that are not repeated leave
// the ring for the table at_most_once_, so that they do not hold back the window.

#include "common/rpc/request_window.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"

namespace loam::rpc {
namespace {

constexpr size_t kFirstRing = 64;

}  // namespace

Buffer RequestWindow::acquire_buffer() {
  if (pool_.empty()) return {};
  Buffer bytes = std::move(pool_.back());
  pool_.pop_back();
  return bytes;
}

void RequestWindow::release_buffer(Buffer bytes) {
  if (bytes.capacity() == 0 || bytes.capacity() > kMaxPooledBytes) return;
  bytes.clear();
  pool_.push_back(std::move(bytes));
}

void RequestWindow::grow() {
  std::vector<Request> larger(ring_.empty() ? kFirstRing : ring_.size() * 2);
  // The size doubles, so the ring allocates only until it has the size of the largest number of open requests.
  for (uint64_t sequence = first_; sequence < next_; ++sequence) {
    larger[sequence & (larger.size() - 1)] = std::move(at(sequence));
  }
  ring_ = std::move(larger);
}

void RequestWindow::add(Kind kind, ResponseHandler* caller, uint64_t token, uint64_t deadline_ns, Buffer bytes,
                        uint64_t made_ns) {
  LOAM_DCHECK(!full(), "a request beyond the window's queue");
  if (next_ - first_ >= ring_.size()) grow();
  unsent_bytes_ += bytes.size();
  at(next_) = {caller, token, deadline_ns, kind, true, false, made_ns, 0, std::move(bytes)};
  ++next_;
  ++open_;
}

void RequestWindow::add_sent(ResponseHandler* caller, uint64_t token, uint64_t deadline_ns, uint64_t made_ns) {
  LOAM_DCHECK(!full(), "a request beyond the window's queue");
  if (next_ - first_ >= ring_.size()) grow();
  // The request has a number, and so a place in the ring, which is closed from the start: it neither waits nor delays.
  at(next_).open = false;
  at_most_once_[next_] = {caller, token, deadline_ns, Kind::kAtMostOnce, true, false, made_ns, made_ns, {}};
  ++next_;
  advance();
}

RequestWindow::Request* RequestWindow::next_to_send() {
  for (; sent_ + 1 < next_; ++sent_) {
    Request& request = at(sent_ + 1);
    if (!request.open || request.too_large) continue;
    // The server remembers `window_` requests. One more would take the slot of the oldest unanswered request, and the
    // server could not recognize its repetition (R3, idempotent requests within a session).
    return sent_ + 1 - first_ < window_ ? &request : nullptr;
  }
  return nullptr;
}

bool RequestWindow::mark_sent(uint64_t now_ns) {
  const uint64_t sequence = ++sent_;
  Request& request = at(sequence);
  unsent_bytes_ -= request.bytes.size();
  request.sent_ns = now_ns;
  const bool again = sequence <= highest_sent_;
  highest_sent_ = std::max(highest_sent_, sequence);
  if (request.kind == Kind::kResend) return again;
  // Any other kind leaves the ring once it is sent. So a slow answer does not keep `first_`, and thereby the window,
  // from advancing.
  if (request.kind != Kind::kOneWay) {
    Request& waiting = at_most_once_[sequence];
    waiting = {request.caller,
               request.token,
               request.deadline_ns,
               request.kind,
               true,
               false,
               request.made_ns,
               request.sent_ns,
               {}};
    if (request.kind == Kind::kStream) waiting.deadline_ns = kNoDeadline;
  }
  close(sequence);
  return again;
}

const RequestWindow::Request* RequestWindow::find(uint64_t sequence) const {
  if (sequence >= first_ && sequence <= sent_ && at(sequence).open) return &at(sequence);
  const auto found = at_most_once_.find(sequence);
  return found == at_most_once_.end() ? nullptr : &found->second;
}

void RequestWindow::finish(uint64_t sequence) {
  if (sequence >= first_ && sequence < next_ && at(sequence).open) {
    // mark_sent() has subtracted the bytes of a sent request.
    if (sequence > sent_) unsent_bytes_ -= at(sequence).bytes.size();
    return close(sequence);
  }
  at_most_once_.erase(sequence);
}

void RequestWindow::close(uint64_t sequence) {
  Request& request = at(sequence);
  request.open = false;
  release_buffer(std::move(request.bytes));
  request.bytes = {};
  --open_;
  advance();
}

void RequestWindow::advance() {
  while (first_ < next_ && !at(first_).open) ++first_;
  sent_ = std::max(sent_, first_ - 1);
}

RequestWindow::FailedRequest RequestWindow::ended(uint64_t sequence, const Request& request) const {
  const bool may_have = may_have_arrived(sequence) && !request.too_large;
  return {sequence, request.caller, request.token, request.too_large,
          may_have ? ExecutionStatus::kUnknown : ExecutionStatus::kNotSent};
}

void RequestWindow::mark_too_large() {
  // The request counts as sent, so that it does not keep the others from being sent.
  Request& request = at(++sent_);
  unsent_bytes_ -= request.bytes.size();
  request.bytes = {};
  request.too_large = true;
}

void RequestWindow::restart(bool established, std::vector<FailedRequest>& ended_requests) {
  // Without a handshake the server has received nothing, so its requests still count as not sent.
  if (established) delivered_ = std::max(delivered_, sent_);
  // Sent requests that are not repeated end. They may have an effect if the connection was established.
  for (const auto& [sequence, request] : at_most_once_) {
    ended_requests.push_back({sequence, request.caller, request.token, false,
                              established ? ExecutionStatus::kUnknown : ExecutionStatus::kNotSent});
  }
  at_most_once_.clear();
  // Requests of kind kResend wait again with their old numbers and bytes, so that the server recognizes a repetition.
  unsent_bytes_ = 0;
  for (uint64_t sequence = first_; sequence < next_; ++sequence) {
    if (at(sequence).open && at(sequence).kind == Kind::kOneWay) {
      close(sequence);
    } else if (at(sequence).open) {
      unsent_bytes_ += at(sequence).bytes.size();
    }
  }
  sent_ = first_ - 1;  // next_to_send() begins with the oldest unanswered request again
}

uint64_t RequestWindow::expire(uint64_t now_ns, std::vector<FailedRequest>& ended_requests) {
  // Visits every open request. Channel::expire() calls it only when the earliest deadline has passed.
  uint64_t earliest_ns = kNoDeadline;
  const uint64_t end = next_;
  for (uint64_t sequence = first_; sequence < end; ++sequence) {
    const Request& request = at(sequence);
    if (!request.open) continue;
    if (request.deadline_ns > now_ns && !request.too_large) {
      earliest_ns = std::min(earliest_ns, request.deadline_ns);
      continue;
    }
    ended_requests.push_back(ended(sequence, request));
    finish(sequence);
  }
  for (auto at = at_most_once_.begin(); at != at_most_once_.end();) {
    if (at->second.deadline_ns > now_ns) {
      earliest_ns = std::min(earliest_ns, at->second.deadline_ns);
      ++at;
    } else {
      ended_requests.push_back(ended(at->first, at->second));
      at = at_most_once_.erase(at);
    }
  }
  return earliest_ns;
}

}  // namespace loam::rpc
