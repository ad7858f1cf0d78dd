#include "common/wire/reply_window.h"

#include <algorithm>

namespace loam::wire {

ReplyWindow::Found ReplyWindow::look_up(uint64_t sequence, Buffer& reply) {
  if (slots_.empty()) slots_.resize(limits_.requests);
  Slot& known = slot(sequence);
  if (known.state == State::kEmpty || known.sequence < sequence) {
    if (!large_.empty()) drop_large(known.sequence);
    known = {sequence, 0, 0, State::kRunning};
    return Found::kNew;
  }
  if (known.sequence > sequence) return Found::kForgotten;
  if (known.state == State::kRunning) return Found::kRunning;
  if (known.state == State::kForgotten) return Found::kForgotten;
  if (known.state == State::kLarge) {
    reply = large_.at(sequence).reply;
    return Found::kAnswered;
  }
  if (end_ - known.begin > limits_.bytes) return Found::kForgotten;
  reply.resize(known.size);
  const size_t at = known.begin % limits_.bytes;
  const size_t first = std::min<size_t>(known.size, limits_.bytes - at);
  std::copy_n(ring_.data() + at, first, reply.data());  // not memcpy: an empty answer has no address
  std::copy_n(ring_.data(), known.size - first, reply.data() + first);
  return Found::kAnswered;
}

ReplyWindow::~ReplyWindow() {
  if (budget_ != nullptr) budget_->give_back(large_bytes_);
}

bool ReplyWindow::book(uint64_t sequence, size_t bytes) {
  if (budget_ == nullptr || bytes <= limits_.small_bytes() || !runs(sequence)) return true;
  const auto at = large_.find(sequence);
  const size_t booked = at == large_.end() ? 0 : at->second.booked;
  if (bytes <= booked) return true;
  const size_t more = bytes - booked;
  if (more > limits_.large_bytes - large_bytes_ || !budget_->take(more)) return false;
  large_bytes_ += more;
  large_[sequence].booked = bytes;
  return true;
}

void ReplyWindow::drop_large(uint64_t sequence) {
  const auto at = large_.find(sequence);
  if (at == large_.end()) return;
  large_bytes_ -= at->second.booked;
  budget_->give_back(at->second.booked);
  large_.erase(at);
}

void ReplyWindow::keep(uint64_t sequence, Bytes reply) {
  if (!runs(sequence)) return;  // overtaken by newer requests
  Slot& running = slot(sequence);
  if (budget_ == nullptr || reply.size() <= limits_.small_bytes()) {
    if (!large_.empty()) drop_large(sequence);
    return put_in_ring(running, reply, State::kAnswered);
  }
  if (!book(sequence, reply.size())) {
    drop_large(sequence);
    running.state = State::kForgotten;
    return;
  }
  Large& large = large_.at(sequence);
  large.reply.assign(reply.begin(), reply.end());
  const size_t left_over = large.booked - reply.size();
  large.booked = reply.size();
  large_bytes_ -= left_over;
  budget_->give_back(left_over);
  running.state = State::kLarge;
}

void ReplyWindow::keep_reference(uint64_t sequence, Bytes reference) {
  if (runs(sequence)) put_in_ring(slot(sequence), reference, State::kReference);
}

void ReplyWindow::put_in_ring(Slot& running, Bytes reply, State state) {
  running.state = state;
  running.begin = end_;
  running.size = static_cast<uint32_t>(reply.size());
  end_ += reply.size();
  if (reply.size() > limits_.bytes) return;  // forgotten at once
  if (ring_.empty()) ring_.resize(limits_.bytes);
  const size_t at = running.begin % limits_.bytes;
  const size_t first = std::min(reply.size(), limits_.bytes - at);
  std::copy_n(reply.data(), first, ring_.data() + at);
  std::copy_n(reply.data() + first, reply.size() - first, ring_.data());
}

}  // namespace loam::wire
