#include "common/rpc/request_window.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"

namespace loam::rpc {
namespace {

constexpr size_t kFirstRing = 64;

}  // namespace

Buffer RequestWindow::take_buffer() {
  if (pool_.empty()) return {};
  Buffer bytes = std::move(pool_.back());
  pool_.pop_back();
  return bytes;
}

void RequestWindow::give_back(Buffer bytes) {
  if (bytes.capacity() == 0 || bytes.capacity() > kMaxPooledBytes) return;
  bytes.clear();
  pool_.push_back(std::move(bytes));
}

void RequestWindow::grow() {
  std::vector<Request> larger(ring_.empty() ? kFirstRing : ring_.size() * 2);
  for (uint64_t sequence = first_; sequence < next_; ++sequence) {
    larger[sequence & (larger.size() - 1)] = std::move(at(sequence));
  }
  ring_ = std::move(larger);
}

void RequestWindow::add(Kind kind, Caller* caller, uint64_t token, uint64_t deadline_ns, Buffer bytes) {
  LOAM_DCHECK(!full(), "a request beyond the window's queue");
  if (next_ - first_ >= ring_.size()) grow();
  unsent_bytes_ += bytes.size();
  at(next_) = {caller, token, deadline_ns, kind, true, false, std::move(bytes)};
  ++next_;
  ++open_;
}

void RequestWindow::add_sent(Caller* caller, uint64_t token, uint64_t deadline_ns) {
  LOAM_DCHECK(!full(), "a request beyond the window's queue");
  if (next_ - first_ >= ring_.size()) grow();
  at(next_).open = false;
  once_[next_] = {caller, token, deadline_ns, Kind::kOnce, true, false, {}};
  ++next_;
  advance();
}

RequestWindow::Request* RequestWindow::next_to_send() {
  for (; sent_ + 1 < next_; ++sent_) {
    Request& request = at(sent_ + 1);
    if (!request.open || request.too_large) continue;
    return sent_ + 1 - first_ < window_ ? &request : nullptr;
  }
  return nullptr;
}

bool RequestWindow::mark_sent() {
  const uint64_t sequence = ++sent_;
  Request& request = at(sequence);
  unsent_bytes_ -= request.bytes.size();
  const bool again = sequence <= highest_sent_;
  highest_sent_ = std::max(highest_sent_, sequence);
  if (request.kind == Kind::kKept) return again;
  if (request.kind != Kind::kTold) {
    Request& waiting = once_[sequence];
    waiting = {request.caller, request.token, request.deadline_ns, request.kind, true, false, {}};
    if (request.kind == Kind::kStream) waiting.deadline_ns = kNoDeadline;
  }
  close(sequence);
  return again;
}

const RequestWindow::Request* RequestWindow::find(uint64_t sequence) const {
  if (sequence >= first_ && sequence <= sent_ && at(sequence).open) return &at(sequence);
  const auto found = once_.find(sequence);
  return found == once_.end() ? nullptr : &found->second;
}

void RequestWindow::finish(uint64_t sequence) {
  if (sequence >= first_ && sequence < next_ && at(sequence).open) {
    if (sequence > sent_) unsent_bytes_ -= at(sequence).bytes.size();
    return close(sequence);
  }
  once_.erase(sequence);
}

void RequestWindow::close(uint64_t sequence) {
  Request& request = at(sequence);
  request.open = false;
  give_back(std::move(request.bytes));
  request.bytes = {};
  --open_;
  advance();
}

void RequestWindow::advance() {
  while (first_ < next_ && !at(first_).open) ++first_;
  sent_ = std::max(sent_, first_ - 1);
}

RequestWindow::Ended RequestWindow::ended(uint64_t sequence, const Request& request) const {
  const bool may_have = may_have_arrived(sequence) && !request.too_large;
  return {sequence, request.caller, request.token, request.too_large,
          may_have ? Executed::kUnknown : Executed::kNotSent};
}

void RequestWindow::mark_too_large() {
  Request& request = at(++sent_);
  unsent_bytes_ -= request.bytes.size();
  request.bytes = {};
  request.too_large = true;
}

void RequestWindow::restart(bool established, std::vector<Ended>& ended_requests) {
  if (established) delivered_ = std::max(delivered_, sent_);
  for (const auto& [sequence, request] : once_) {
    ended_requests.push_back({sequence, request.caller, request.token, false,
                              sent_before(sequence) ? Executed::kUnknown : Executed::kNotSent});
  }
  once_.clear();
  unsent_bytes_ = 0;
  for (uint64_t sequence = first_; sequence < next_; ++sequence) {
    if (at(sequence).open && at(sequence).kind == Kind::kTold) {
      close(sequence);
    } else if (at(sequence).open) {
      unsent_bytes_ += at(sequence).bytes.size();
    }
  }
  sent_ = first_ - 1;
}

uint64_t RequestWindow::expire(uint64_t now_ns, std::vector<Ended>& ended_requests) {
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
  for (auto at = once_.begin(); at != once_.end();) {
    if (at->second.deadline_ns > now_ns) {
      earliest_ns = std::min(earliest_ns, at->second.deadline_ns);
      ++at;
    } else {
      ended_requests.push_back(ended(at->first, at->second));
      at = once_.erase(at);
    }
  }
  return earliest_ns;
}

}  // namespace loam::rpc
