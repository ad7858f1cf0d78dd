// Answers that a session may ask for again (R3).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <loam/commit/core.h>

#include "common/base/bytes.h"

namespace loam::commit {

/// The last kReplyWindow requests of one session, by sequence, and the answers of those whose bytes still fit into
/// kReplyWindowBytes. So a request that comes twice is executed once, and one whose first answer is forgotten is told
/// apart from a new one.
///
/// Sequence s belongs to slot s mod kReplyWindow, and a slot's sequence only rises. Hence: a slot that holds s has seen
/// s; one that holds more has forgotten whether it has; one that holds less never saw s, also when s comes late.
///
/// Owner: Session. One thread. The bytes are allocated with the first answer.
class ReplyWindow {
 public:
  enum class Found {
    kNew,        ///< never seen: execute it, then answer through keep()
    kRunning,    ///< seen, and not answered yet: the answer will come
    kAnswered,   ///< `reply` is the first answer
    kForgotten,  ///< beyond the window: whether it was executed cannot be told
  };

  /// What is known of a request. A new one is running from now on.
  Found look_up(uint64_t sequence, Buffer& reply);

  /// The answer of a running request.
  void keep(uint64_t sequence, Bytes reply);

 private:
  enum class State : uint8_t { kEmpty, kRunning, kAnswered };
  struct Slot {
    uint64_t sequence = 0;
    uint64_t begin = 0;  ///< position in the stream of all answers
    uint32_t size = 0;
    State state = State::kEmpty;
  };

  Slot& slot(uint64_t sequence) { return slots_[sequence % kReplyWindow]; }

  std::array<Slot, kReplyWindow> slots_{};
  Buffer ring_;       // the last kReplyWindowBytes of the stream of answers
  uint64_t end_ = 0;  // of the stream
};

}  // namespace loam::commit
