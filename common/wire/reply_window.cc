#include "common/wire/reply_window.h"

#include <algorithm>

namespace loam::wire {

ReplyWindow::Found ReplyWindow::look_up(uint64_t sequence, Buffer& reply) {
  if (slots_.empty()) slots_.resize(limits_.requests);
  Slot& known = slot(sequence);
  if (known.state == State::kEmpty || known.sequence < sequence) {
    known = {sequence, 0, 0, State::kRunning};
    return Found::kNew;
  }
  if (known.sequence > sequence) return Found::kForgotten;
  if (known.state == State::kRunning) return Found::kRunning;
  if (end_ - known.begin > limits_.bytes) return Found::kForgotten;
  reply.resize(known.size);
  const size_t at = known.begin % limits_.bytes;
  const size_t first = std::min<size_t>(known.size, limits_.bytes - at);
  std::copy_n(ring_.data() + at, first, reply.data());  // not memcpy: an empty answer has no address
  std::copy_n(ring_.data(), known.size - first, reply.data() + first);
  return Found::kAnswered;
}

void ReplyWindow::keep(uint64_t sequence, Bytes reply) {
  Slot& running = slot(sequence);
  if (running.sequence != sequence || running.state != State::kRunning) return;  // overtaken by newer requests
  running.state = State::kAnswered;
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
