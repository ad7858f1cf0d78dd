// Answers that a session may ask for again (R3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/base/bytes.h"

namespace loam::wire {

/// How far back a server remembers the requests of one session. Beyond either limit a repetition cannot be told from
/// a new request, and the session ends.
struct ReplyWindowLimits {
  /// Requests. A client keeps the distance between its oldest unanswered request and its newest below this.
  size_t requests = 0;
  size_t bytes = 0;        ///< of answers, in a ring
  size_t large_bytes = 0;  ///< of answers beyond small_bytes(), outside the ring; 0: they are in the ring too

  /// The ring holds the answers of all `requests`, in any order, if none is larger than this: between the answer of a
  /// request and the moment when its slot is used again, every other slot is answered twice at most.
  constexpr size_t small_bytes() const { return bytes / (2 * requests); }
};

/// Largest answer of the commit manager that its window keeps as bytes: a TableCreated. A Begun may be larger, and is
/// kept as a reference.
inline constexpr size_t kMaxManagerAnswerBytes = 1u << 20;
/// At the commit manager: every answer of the requests that a client may have under way.
inline constexpr size_t kManagerWindowRequests = 128;
inline constexpr ReplyWindowLimits kManagerReplyWindow{kManagerWindowRequests, 64u << 10,
                                                       kManagerWindowRequests* kMaxManagerAnswerBytes};
/// At a storage node, where every fiber of a client may have a write under way; an answer takes some 10 bytes a record.
inline constexpr ReplyWindowLimits kNodeReplyWindow{4'096, 256u << 10};

/// Memory for the large answers of all windows of a server. Owner: the server, longer than the windows. One thread.
class ReplyBudget {
 public:
  explicit ReplyBudget(size_t limit) : limit_(limit) {}

  bool take(size_t bytes) {
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void give_back(size_t bytes) { used_ -= bytes; }
  size_t used() const { return used_; }

 private:
  const size_t limit_;
  size_t used_ = 0;
};

/// The last requests of one session at one server, by sequence, and the answers of those whose bytes still fit. So a
/// request that comes twice is executed once, and one whose first answer is forgotten is told apart from a new one.
///
/// Sequence s belongs to slot s mod `requests`, and a slot's sequence only rises. Hence: a slot that holds s has seen
/// s; one that holds more has forgotten whether it has; one that holds less never saw s, also when s comes late.
///
/// With a budget, answers of up to small_bytes() are never forgotten within `requests`, and neither are larger ones for
/// which room was booked before the request was executed, nor references: what the server needs to make the first
/// answer again.
///
/// Owner: the server's record of the session. One thread at a time. Memory is allocated with the first request and the
/// first answer.
class ReplyWindow {
 public:
  enum class Found {
    kNew,        ///< never seen: execute it, then answer through keep()
    kRunning,    ///< seen, and not answered yet: the answer will come
    kAnswered,   ///< `reply` is the first answer, or its reference
    kForgotten,  ///< beyond the window: whether it was executed cannot be told
  };

  /// `large` is null exactly if `limits.large_bytes` is 0.
  explicit ReplyWindow(ReplyWindowLimits limits, ReplyBudget* large = nullptr) : limits_(limits), budget_(large) {}
  ~ReplyWindow();
  ReplyWindow(const ReplyWindow&) = delete;
  ReplyWindow& operator=(const ReplyWindow&) = delete;

  /// What is known of a request. A new one is running from now on.
  Found look_up(uint64_t sequence, Buffer& reply);

  /// Tells for a request that look_up() has found answered whether the reply is what keep_reference() was given.
  bool is_reference(uint64_t sequence) { return slot(sequence).state == State::kReference; }

  /// Books room for an answer of `bytes` bytes to a running request. False: the windows of all sessions, or this one,
  /// have no room for it; refuse the request before it is executed.
  bool book(uint64_t sequence, size_t bytes);
  /// The answer of a running request. A large one that does not fit, because no room was booked, is forgotten at once.
  void keep(uint64_t sequence, Bytes reply);
  /// As keep(), with a reference of at most small_bytes() in place of the answer: the caller can make the answer again.
  void keep_reference(uint64_t sequence, Bytes reference);

 private:
  enum class State : uint8_t { kEmpty, kRunning, kAnswered, kReference, kLarge, kForgotten };
  struct Slot {
    uint64_t sequence = 0;
    uint64_t begin = 0;  ///< position in the stream of all answers
    uint32_t size = 0;
    State state = State::kEmpty;
  };

  struct Large {
    size_t booked = 0;
    Buffer reply;
  };

  Slot& slot(uint64_t sequence) { return slots_[sequence % limits_.requests]; }
  bool runs(uint64_t sequence) {
    return slot(sequence).sequence == sequence && slot(sequence).state == State::kRunning;
  }
  void drop_large(uint64_t sequence);
  void put_in_ring(Slot& running, Bytes reply, State state);

  const ReplyWindowLimits limits_;
  ReplyBudget* const budget_;
  std::vector<Slot> slots_;
  std::unordered_map<uint64_t, Large> large_;  // by sequence
  size_t large_bytes_ = 0;                     // booked
  Buffer ring_;                                // the last limits_.bytes of the stream of answers
  uint64_t end_ = 0;                           // of the stream
};

}  // namespace loam::wire
