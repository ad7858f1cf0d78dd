// The unanswered requests of a channel, with their bytes for a repetition (R3, idempotent requests within a session).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/base/bytes.h"
#include "common/rpc/execution_status.h"

namespace loam::rpc {

class ResponseHandler;

/// Largest number of requests of one channel that may wait for room in the server's reply window. The channel refuses
/// others with kOverloaded.
inline constexpr size_t kMaxWaitingRequests = 16'384;
/// Largest buffer that is kept for reuse after its request has been answered.
inline constexpr size_t kMaxPooledBytes = 4'096;
/// The deadline of a request without a deadline.
inline constexpr uint64_t kNoDeadline = UINT64_MAX;

/// Numbers the requests of a channel, keeps their bytes until they are answered, and decides which request may be
/// sent next.
///
///     answered … | unanswered, sent … | unanswered, not sent on this connection … |
///                  ^first              ^sent()+1                                    ^next()
///
/// Invariants: (1) requests are sent in the order of their numbers; (2) no request is sent whose number is `window`
/// or more above that of the oldest unanswered one; (3) after restart() all unanswered requests of kind kResend are
/// sent again, with the same bytes, before any new request; (4) at most window + kMaxWaitingRequests numbers lie
/// between first and next.
///
/// Owner: a channel. Threads: one. Allocates while it grows to the number of open requests, not for each request.
class RequestWindow {
 public:
  /// How a request is treated when its connection is lost.
  enum class Kind : uint8_t {
    kResend,      ///< it is sent again on the next connection
    kAtMostOnce,  ///< once sent, it is not repeated: it fails with its connection, and does not delay the window
    kStream,      ///< as kAtMostOnce, for several replies; its deadline counts only until it is sent
    kOneWay,      ///< it has no reply; if its connection is lost, no error is reported
  };
  /// An unanswered request.
  struct Request {
    ResponseHandler* caller = nullptr;
    uint64_t token = 0;  ///< the caller's own number for the request
    uint64_t deadline_ns = kNoDeadline;
    Kind kind = Kind::kResend;
    bool open = false;       ///< false: the request has ended, or has moved to the table of sent requests
    bool too_large = false;  ///< whether the connection has refused the request because of its size
    uint64_t made_ns = 0;    ///< the caller's time at which the request was added
    uint64_t sent_ns = 0;    ///< the caller's time at which it was sent last
    Buffer bytes;            ///< the encoded message
  };
  /// A request that has ended without a reply.
  struct FailedRequest {
    uint64_t sequence = 0;
    ResponseHandler* caller = nullptr;
    uint64_t token = 0;
    bool too_large = false;                                ///< whether the connection refused it because of its size
    ExecutionStatus executed = ExecutionStatus::kNotSent;  ///< kNotSent or kUnknown
  };

  /// `window` is the number of requests that the server's reply window remembers. `first` is the number of the first
  /// request, at least 1.
  explicit RequestWindow(size_t window, uint64_t first = 1)
      : window_(window), first_(first), next_(first), sent_(first - 1), highest_sent_(first - 1) {}

  /// Whether no request can be added now.
  bool full() const { return next_ - first_ >= window_ + kMaxWaitingRequests; }
  /// The sequence of the next request, which the encoded message contains.
  uint64_t next() const { return next_; }
  /// An empty buffer for the encoding of a request. A caller that does not add the request returns it by
  /// release_buffer().
  Buffer acquire_buffer();
  /// Keeps the memory of a buffer for acquire_buffer().
  void release_buffer(Buffer bytes);
  /// Adds a request with the number next(). Only if not full().
  void add(Kind kind, ResponseHandler* caller, uint64_t token, uint64_t deadline_ns, Buffer bytes,
           uint64_t made_ns = 0);

  /// Adds a request of kind kAtMostOnce with the number next() that the caller has already sent, ahead of waiting
  /// requests. Only if not full().
  void add_sent(ResponseHandler* caller, uint64_t token, uint64_t deadline_ns, uint64_t made_ns = 0);

  /// The first request that waits to be sent, if the window permits to send it; otherwise null.
  Request* next_to_send();
  /// Whether the next added request could be sent at once.
  bool can_send_next() const { return sent_ + 1 == next_ && next_ - first_ < window_; }
  /// The number of the request that next_to_send() has returned.
  uint64_t sending() const { return sent_ + 1; }
  /// Notes that the connection has accepted the request of next_to_send(). Returns whether it was sent before.
  bool mark_sent(uint64_t now_ns = 0);

  /// The open request with this number, if it was sent on this connection; otherwise null.
  const Request* find(uint64_t sequence) const;
  /// Ends a request that was answered, or whose caller no longer wants a reply.
  void finish(uint64_t sequence);
  /// Notes that the connection never accepts the request of next_to_send(). The request ends in the next expire().
  void mark_too_large();
  /// Whether the request may have reached the server.
  bool may_have_arrived(uint64_t sequence) const {
    // add_sent() sends a request ahead of waiting ones with lower numbers.
    return sequence <= sent_ || sent_before(sequence) || at_most_once_.contains(sequence);
  }
  /// Whether the request may have reached the server over an earlier connection.
  bool sent_before(uint64_t sequence) const { return sequence <= delivered_; }

  /// Notes the loss of the connection. Requests of kind kResend will be sent again. Sent requests of kinds
  /// kAtMostOnce and kStream end and are appended to `ended`. Requests of kind kOneWay end without a report.
  /// `established` says whether the server may have received messages of this connection.
  void restart(bool established, std::vector<FailedRequest>& ended);
  /// Ends the requests whose deadline has passed and those that are too large, and appends them to `ended`. Returns
  /// the earliest deadline of the others.
  uint64_t expire(uint64_t now_ns, std::vector<FailedRequest>& ended);

  /// Whether no request is open.
  bool empty() const { return first_ == next_ && at_most_once_.empty(); }
  /// Number of unanswered requests.
  size_t open() const { return open_ + at_most_once_.size(); }
  /// Bytes of requests that wait to be sent.
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  Request& at(uint64_t sequence) { return ring_[sequence & (ring_.size() - 1)]; }
  const Request& at(uint64_t sequence) const { return ring_[sequence & (ring_.size() - 1)]; }
  void grow();
  void close(uint64_t sequence);
  void advance();
  FailedRequest ended(uint64_t sequence, const Request& request) const;

  const size_t window_;
  std::vector<Request> ring_;                           // by sequence; the size is a power of two
  std::vector<Buffer> pool_;                            // last in, first out: the last buffer is still in the cache
  std::unordered_map<uint64_t, Request> at_most_once_;  // sent requests of the kinds kAtMostOnce and kStream
  uint64_t first_;
  uint64_t next_;
  uint64_t sent_;           // highest number sent on this connection
  uint64_t highest_sent_;   // highest number sent on any connection
  uint64_t delivered_ = 0;  // highest number sent on an earlier connection that was established
  size_t open_ = 0;
  size_t unsent_bytes_ = 0;
};

}  // namespace loam::rpc
