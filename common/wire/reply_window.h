// A server's memory of its last replies to a session, so that a repeated request is not executed twice (R3,
// idempotent requests within a session).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/base/bytes.h"

namespace loam::wire {

/// The limits of a ReplyWindow. If a client repeats a request beyond them, the server cannot tell whether it has
/// executed the request, and the session ends.
struct ReplyWindowLimits {
  /// Number of remembered requests. A client keeps the distance from its oldest unanswered request to its newest
  /// request below this number.
  size_t requests = 0;
  size_t bytes = 0;        ///< size of the ring of replies
  size_t large_bytes = 0;  ///< limit of replies larger than small_bytes(), outside the ring; 0: the ring holds them too

  /// Largest reply that the ring holds for as long as the window remembers the request, if all replies are at most
  /// this large. Between the reply of a request and the reuse of its slot, the server answers at most twice in every
  /// other slot.
  constexpr size_t small_bytes() const { return bytes / (2 * requests); }
};

/// Largest reply of the commit manager whose bytes a window keeps: a CreateTableReply. A BeginReply may be larger; the
/// window keeps a reference to it.
inline constexpr size_t kMaxManagerReplyBytes = 1u << 20;
/// Number of requests that a session's window at the commit manager remembers: the number of open requests of a client.
inline constexpr size_t kManagerWindowRequests = 128;
/// Limits of a session's window at the commit manager. They hold every reply of kManagerWindowRequests requests.
inline constexpr ReplyWindowLimits kManagerReplyWindow{kManagerWindowRequests, 64u << 10,
                                                       kManagerWindowRequests* kMaxManagerReplyBytes};
/// Limits of a session's window at a storage node, where every fiber of a client may have an open write. A reply
/// takes about 10 bytes for each record.
inline constexpr ReplyWindowLimits kNodeReplyWindow{4'096, 256u << 10};

/// Counts the memory of the large replies of all windows of a server against a limit.
///
/// Owner: the server; it outlives the windows. Threads: one.
class ReplyBudget {
 public:
  /// `limit` in bytes.
  explicit ReplyBudget(size_t limit) : limit_(limit) {}

  /// Counts `bytes` more. False: the limit would be exceeded, and nothing was counted.
  bool acquire(size_t bytes) {
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  /// Subtracts bytes that were acquired.
  void release(size_t bytes) { used_ -= bytes; }
  /// Counted bytes.
  size_t used() const { return used_; }

 private:
  const size_t limit_;
  size_t used_ = 0;
};

/// Remembers the last requests of one session at one server by their sequences, together with the replies that fit
/// into its memory. So the server executes a repeated request once, and detects a repetition whose reply it has
/// dropped.
///
/// The slot of sequence s is s mod `requests`, and the sequence in a slot only rises. Therefore a slot that holds s
/// has seen s. A slot that holds a lower sequence has never seen s, also if s arrives late. A slot that holds a higher
/// sequence cannot tell whether it has seen s.
///
/// With a budget, the window never drops a reply within `requests` if the reply has at most small_bytes(), if room
/// for it was reserved before the execution, or if it is a reference, that is, the data from which the server can
/// make the first reply again.
///
/// Owner: the server's state of the session. Threads: one at a time. The first request and the first reply allocate
/// the memory.
class ReplyWindow {
 public:
  /// The state of a request.
  enum class LookupResult {
    kNew,       ///< the request is new: execute it, then call store()
    kRunning,   ///< the request was seen and is not answered yet; its reply will be sent
    kAnswered,  ///< the request was answered; `reply` is the reply or its reference
    kEvicted,   ///< the request is older than the window, or its reply was dropped: its outcome is unknown
  };

  /// `large` counts the large replies. It is null if and only if `limits.large_bytes` is 0.
  explicit ReplyWindow(ReplyWindowLimits limits, ReplyBudget* large = nullptr) : limits_(limits), budget_(large) {}
  ~ReplyWindow();
  ReplyWindow(const ReplyWindow&) = delete;
  ReplyWindow& operator=(const ReplyWindow&) = delete;

  /// Returns the state of a request, and copies its reply into `reply` if it is answered. A new request counts as
  /// running from now on.
  LookupResult look_up(uint64_t sequence, Buffer& reply);

  /// Whether the reply of a request is a reference. Only after look_up() has returned kAnswered for it.
  bool is_reference(uint64_t sequence) { return slot(sequence).state == State::kReference; }

  /// Reserves room for a reply of `bytes` bytes to a running request. False: this window or the budget has no room.
  /// The caller then refuses the request before its execution.
  bool reserve(uint64_t sequence, size_t bytes);
  /// Stores the reply of a running request. A large reply is dropped at once if no room was reserved and it does
  /// not fit.
  void store(uint64_t sequence, Bytes reply);
  /// Stores a reference of at most small_bytes() instead of the reply. The caller can make the reply again from it.
  void store_reference(uint64_t sequence, Bytes reference);

 private:
  enum class State : uint8_t { kEmpty, kRunning, kAnswered, kReference, kLarge, kEvicted };
  struct Slot {
    uint64_t sequence = 0;
    uint64_t begin = 0;  ///< position of the reply in the stream of all replies
    uint32_t size = 0;
    State state = State::kEmpty;
  };

  struct Large {
    size_t reserved = 0;
    Buffer reply;
  };

  Slot& slot(uint64_t sequence) { return slots_[sequence % limits_.requests]; }
  bool is_running(uint64_t sequence) {
    return slot(sequence).sequence == sequence && slot(sequence).state == State::kRunning;
  }
  void drop_large(uint64_t sequence);
  void put_in_ring(Slot& running, Bytes reply, State state);

  const ReplyWindowLimits limits_;
  ReplyBudget* const budget_;
  std::vector<Slot> slots_;
  std::unordered_map<uint64_t, Large> large_;  // by sequence
  size_t large_bytes_ = 0;                     // bytes of large replies, stored or reserved
  Buffer ring_;                                // the last limits_.bytes bytes of the stream of replies
  uint64_t end_ = 0;                           // position of the end of the stream
};

}  // namespace loam::wire
