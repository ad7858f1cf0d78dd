// Answers that a session may ask for again (R3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/bytes.h"

namespace loam::wire {

/// How far back a server remembers the requests of one session. Beyond either limit a repetition cannot be told from
/// a new request, and the session ends.
struct ReplyWindowLimits {
  /// Requests. A client keeps the distance between its oldest unanswered request and its newest below this.
  size_t requests = 0;
  size_t bytes = 0;  ///< of answers
};

/// At the commit manager: 128 answers with a few hundred open transactions each.
inline constexpr ReplyWindowLimits kManagerReplyWindow{128, 64u << 10};
/// At a storage node, where every fiber of a client may have a write under way; an answer takes some 10 bytes a record.
inline constexpr ReplyWindowLimits kNodeReplyWindow{4'096, 256u << 10};

/// The last requests of one session at one server, by sequence, and the answers of those whose bytes still fit. So a
/// request that comes twice is executed once, and one whose first answer is forgotten is told apart from a new one.
///
/// Sequence s belongs to slot s mod `requests`, and a slot's sequence only rises. Hence: a slot that holds s has seen
/// s; one that holds more has forgotten whether it has; one that holds less never saw s, also when s comes late.
///
/// Owner: the server's record of the session. One thread at a time. Memory is allocated with the first request and the
/// first answer.
class ReplyWindow {
 public:
  enum class Found {
    kNew,        ///< never seen: execute it, then answer through keep()
    kRunning,    ///< seen, and not answered yet: the answer will come
    kAnswered,   ///< `reply` is the first answer
    kForgotten,  ///< beyond the window: whether it was executed cannot be told
  };

  explicit ReplyWindow(ReplyWindowLimits limits) : limits_(limits) {}

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

  Slot& slot(uint64_t sequence) { return slots_[sequence % limits_.requests]; }

  const ReplyWindowLimits limits_;
  std::vector<Slot> slots_;
  Buffer ring_;       // the last limits_.bytes of the stream of answers
  uint64_t end_ = 0;  // of the stream
};

}  // namespace loam::wire
