// The oracle's model of client sessions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/wire/opcode.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The model of sessions (R3, idempotent requests; R8, completion by the owner; R14, refusal of old snapshots). A
/// client has one session after another. A session is named by the number of the client's sessions that ended before
/// it.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock.
class SessionModel {
 public:
  explicit SessionModel(Verdict& verdict) : verdict_(verdict) {}

  /// A read in that session was answered kSnapshotTooOld, and the client has not heard of the session's end.
  void too_old(uint32_t process, uint64_t session);
  /// A commit with writes was acknowledged in that session, which had not ended by then. `requested_at`: a moment
  /// before the call.
  void committed(uint32_t process, uint64_t session, LogicalTime requested_at);
  /// A commit with writes was asked for `open_ns` after the transaction's begin, and acknowledged.
  void committed_after(uint32_t process, TransactionId id, uint64_t open_ns, uint64_t max_age_ns);
  /// For `idle_ns` the client had nothing open and nothing was wrong; the session it had at first has ended, or not.
  void idled(uint32_t process, uint64_t idle_ns, bool ended);

  /// A process that serves sessions. Its number is never reused, so a restarted server is another one.
  struct Server {
    uint32_t process = 0;
    std::string_view name;
  };
  /// A server received a message of a session, in which `sequence` numbers the requests to this server. A repetition
  /// has the bytes of the first request: a channel keeps them until the reply (common/rpc/request_window.h). Takes no
  /// logical time.
  void request_received(Server server, SessionId session, uint64_t sequence, Bytes message);

 private:
  /// A request as a server received it.
  struct Request {
    wire::Opcode opcode{};
    size_t bytes = 0;
    uint64_t digest = 0;  // of the whole message
    uint64_t received_ns = 0;
  };
  struct Refusal {
    uint64_t session = 0;
    LogicalTime at = 0;
  };

  static std::string to_string(const Request& request);

  Verdict& verdict_;
  std::map<uint32_t, Refusal> refusals_;  // the last of each process
  // The first requests of each session to each server process, by sequence.
  std::map<std::pair<uint32_t, SessionId>, std::unordered_map<uint64_t, Request>> requests_;
};

}  // namespace loam::sim
