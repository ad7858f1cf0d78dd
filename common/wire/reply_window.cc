// Small replies and references lie in a ring of bytes, and large replies in a table. The position of a reply counts
// the bytes of all replies before it, so its distance from end_ tells whether the ring still holds it.

#include "common/wire/reply_window.h"

#include <algorithm>

namespace loam::wire {

ReplyWindow::LookupResult ReplyWindow::look_up(uint64_t sequence, Buffer& reply) {
  if (slots_.empty()) slots_.resize(limits_.requests);
  Slot& known = slot(sequence);
  if (known.state == State::kEmpty || known.sequence < sequence) {
    // A new request takes the slot of the one `requests` before it. The client has the reply to that one, because it
    // keeps its distance (R3). The state kRunning keeps a repetition from being executed at the same time.
    if (!large_.empty()) drop_large(known.sequence);
    known = {sequence, 0, 0, State::kRunning};
    return LookupResult::kNew;
  }
  // A later request has taken the slot, so the window no longer knows whether this one was executed.
  if (known.sequence > sequence) return LookupResult::kEvicted;
  if (known.state == State::kRunning) return LookupResult::kRunning;
  if (known.state == State::kEvicted) return LookupResult::kEvicted;
  if (known.state == State::kLarge) {
    reply = large_.at(sequence).reply;
    return LookupResult::kAnswered;
  }
  // Later replies have overwritten a part of this one in the ring.
  if (end_ - known.begin > limits_.bytes) return LookupResult::kEvicted;
  reply.resize(known.size);
  const size_t at = known.begin % limits_.bytes;
  const size_t first = std::min<size_t>(known.size, limits_.bytes - at);
  std::copy_n(ring_.data() + at, first, reply.data());  // not memcpy: the address of an empty reply may be null
  std::copy_n(ring_.data(), known.size - first, reply.data() + first);
  return LookupResult::kAnswered;
}

ReplyWindow::~ReplyWindow() {
  if (budget_ != nullptr) budget_->release(large_bytes_);
}

bool ReplyWindow::reserve(uint64_t sequence, size_t bytes) {
  if (budget_ == nullptr || bytes <= limits_.small_bytes() || !is_running(sequence)) return true;
  const auto at = large_.find(sequence);
  const size_t reserved = at == large_.end() ? 0 : at->second.reserved;
  if (bytes <= reserved) return true;
  const size_t more = bytes - reserved;
  // Two limits: that of this session, so that one client cannot take all memory, and that of all sessions.
  if (more > limits_.large_bytes - large_bytes_ || !budget_->acquire(more)) return false;
  large_bytes_ += more;
  large_[sequence].reserved = bytes;
  return true;
}

void ReplyWindow::drop_large(uint64_t sequence) {
  const auto at = large_.find(sequence);
  if (at == large_.end()) return;
  large_bytes_ -= at->second.reserved;
  budget_->release(at->second.reserved);
  large_.erase(at);
}

void ReplyWindow::store(uint64_t sequence, Bytes reply) {
  if (!is_running(sequence)) return;  // a newer request has taken the slot
  Slot& running = slot(sequence);
  if (budget_ == nullptr || reply.size() <= limits_.small_bytes()) {
    if (!large_.empty()) drop_large(sequence);
    return put_in_ring(running, reply, State::kAnswered);
  }
  if (!reserve(sequence, reply.size())) {
    // The request has been executed, so it cannot be refused any more. Only a repetition fails, with kEvicted.
    drop_large(sequence);
    running.state = State::kEvicted;
    return;
  }
  Large& large = large_.at(sequence);
  large.reply.assign(reply.begin(), reply.end());
  // The caller reserved an upper bound before the execution; the difference becomes free now.
  const size_t left_over = large.reserved - reply.size();
  large.reserved = reply.size();
  large_bytes_ -= left_over;
  budget_->release(left_over);
  running.state = State::kLarge;
}

void ReplyWindow::store_reference(uint64_t sequence, Bytes reference) {
  if (is_running(sequence)) put_in_ring(slot(sequence), reference, State::kReference);
}

void ReplyWindow::put_in_ring(Slot& running, Bytes reply, State state) {
  running.state = state;
  running.begin = end_;
  running.size = static_cast<uint32_t>(reply.size());
  end_ += reply.size();
  if (reply.size() > limits_.bytes) return;  // larger than the ring: look_up() finds it overwritten
  if (ring_.empty()) ring_.resize(limits_.bytes);
  const size_t at = running.begin % limits_.bytes;
  const size_t first = std::min(reply.size(), limits_.bytes - at);
  std::copy_n(reply.data(), first, ring_.data() + at);
  std::copy_n(reply.data() + first, reply.size() - first, ring_.data());
}

}  // namespace loam::wire
