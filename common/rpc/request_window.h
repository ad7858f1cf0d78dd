// The requests of a channel without an answer, and their bytes, kept to send them again [protocol R3].
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/base/bytes.h"
#include "common/rpc/executed.h"

namespace loam::rpc {

class Caller;

/// Most requests that wait for room in the server's window, per channel. Beyond it requests get kOverloaded.
inline constexpr size_t kMaxWaitingRequests = 16'384;
/// Buffers larger than this are given back when their request has been answered.
inline constexpr size_t kMaxPooledBytes = 4'096;
/// A request without a deadline.
inline constexpr uint64_t kNoDeadline = UINT64_MAX;

/// Numbers requests, keeps their bytes until they are answered, and says which one may be sent next.
///
///     answered … | unanswered, sent … | unanswered, not sent on this connection … |
///                  ^first              ^sent()+1                                    ^next()
///
/// Invariants: (1) requests are sent in the order of their numbers; (2) none is sent that is `window` or more beyond
/// the oldest one without an answer; (3) after restart() everything unanswered that is kept is sent again, with the
/// same bytes, before anything new; (4) at most window + kMaxWaitingRequests numbers lie between first and next.
///
/// Owner: a channel. One thread. Allocates while it grows to the number of open requests, not per request.
class RequestWindow {
 public:
  enum class Kind : uint8_t {
    kKept,    ///< sent again after a lost connection
    kOnce,    ///< not repeated once it was sent: fails with its connection, and does not hold the window up
    kStream,  ///< the same, and its deadline counts until it is sent only
    kTold,    ///< has no answer; lost in silence with its connection
  };
  struct Request {
    Caller* caller = nullptr;
    uint64_t token = 0;
    uint64_t deadline_ns = kNoDeadline;
    Kind kind = Kind::kKept;
    bool open = false;
    bool too_large = false;  ///< for the connection, which will never take it
    Buffer bytes;
  };
  /// What expire() and its like hand out.
  struct Ended {
    uint64_t sequence = 0;
    Caller* caller = nullptr;
    uint64_t token = 0;
    bool too_large = false;                  ///< for the connection
    Executed executed = Executed::kNotSent;  ///< kNotSent or kUnknown
  };

  explicit RequestWindow(size_t window) : window_(window) {}

  /// No more requests are taken now.
  bool full() const { return next_ - first_ >= window_ + kMaxWaitingRequests; }
  /// The sequence of the next request, which its encoding contains.
  uint64_t next() const { return next_; }
  /// An empty buffer to encode into; give_back() if it is not needed after all.
  Buffer take_buffer();
  void give_back(Buffer bytes);
  /// A request with the number next(). Not when full().
  void add(Kind kind, Caller* caller, uint64_t token, uint64_t deadline_ns, Buffer bytes);

  /// A request with the number next() that does not wait for its turn: it has been sent already, and is asked once. Not
  /// when full().
  void add_sent(Caller* caller, uint64_t token, uint64_t deadline_ns);

  /// The first that waits to be sent, if the window lets it; null if there is none.
  Request* next_to_send();
  /// The next request that is added would be sent at once.
  bool sends_next() const { return sent_ + 1 == next_ && next_ - first_ < window_; }
  /// The number of what next_to_send() gave.
  uint64_t sending() const { return sent_ + 1; }
  /// It was handed to the connection. True if it was not the first time.
  bool mark_sent();

  /// The open request of that number which has been sent, or null.
  const Request* find(uint64_t sequence) const;
  /// It is over: answered or forgotten.
  void finish(uint64_t sequence);
  /// What next_to_send() gave is not taken by the connection, and never will be: it ends with the next expire().
  void mark_too_large();
  bool may_have_arrived(uint64_t sequence) const { return sequence <= sent_ || sent_before(sequence); }
  /// It may have reached the server over an earlier connection.
  bool sent_before(uint64_t sequence) const { return sequence <= delivered_; }

  /// The connection is lost: requests of kind kKept will be sent again, the others end and are added to `ended`.
  /// `established`: the server may have received what this connection was given.
  void restart(bool established, std::vector<Ended>& ended);
  /// Ends requests past their deadline and those that are too large; returns the earliest deadline of the others.
  uint64_t expire(uint64_t now_ns, std::vector<Ended>& ended);

  bool empty() const { return first_ == next_ && once_.empty(); }
  /// Requests without an answer.
  size_t open() const { return open_ + once_.size(); }
  /// Bytes that wait to be sent.
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  Request& at(uint64_t sequence) { return ring_[sequence & (ring_.size() - 1)]; }
  const Request& at(uint64_t sequence) const { return ring_[sequence & (ring_.size() - 1)]; }
  void grow();
  void close(uint64_t sequence);
  void advance();
  Ended ended(uint64_t sequence, const Request& request) const;

  const size_t window_;
  std::vector<Request> ring_;                   // by sequence; a power of two of them
  std::vector<Buffer> pool_;                    // the last one given back is taken first: it is warm
  std::unordered_map<uint64_t, Request> once_;  // kOnce and kStream, sent
  uint64_t first_ = 1;
  uint64_t next_ = 1;
  uint64_t sent_ = 0;          // on this connection
  uint64_t highest_sent_ = 0;  // on any
  uint64_t delivered_ = 0;     // highest that was handed to a connection that was established
  size_t open_ = 0;
  size_t unsent_bytes_ = 0;
};

}  // namespace loam::rpc
