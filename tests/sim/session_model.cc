// The checks of sessions: a refused snapshot, a commit after too long a time, the end of an idle session, and
// two requests with one sequence.
#include "tests/sim/session_model.h"

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>

#include "common/wire/message.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

void SessionModel::too_old(uint32_t process, uint64_t session) {
  const std::lock_guard lock(verdict_.mutex());
  refusals_[process] = {session, verdict_.next()};
}

void SessionModel::committed(uint32_t process, uint64_t session, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  const auto refusal = refusals_.find(process);
  if (refusal == refusals_.end() || refusal->second.session != session || refusal->second.at >= requested_at) return;
  // The commit manager has not ended the session, so all snapshots of it are still protected.
  verdict_.violate("snapshot-refused", "process " + std::to_string(process) + " was told kSnapshotTooOld at event " +
                                           std::to_string(refusal->second.at) +
                                           ", and committed later in the same session");
}

void SessionModel::committed_after(uint32_t process, TransactionId id, uint64_t open_ns, uint64_t max_age_ns) {
  const std::lock_guard lock(verdict_.mutex());
  // The margin of one half covers clocks that differ and the interval at which the commit manager checks ages.
  if (open_ns <= max_age_ns / 2 * 3) return;
  verdict_.violate("over-age", "process " + std::to_string(process) + " committed transaction " +
                                   std::to_string(id.value) + " after " + std::to_string(open_ns / kMs) + " ms, and " +
                                   std::to_string(max_age_ns / kMs) + " are allowed");
}

void SessionModel::idled(uint32_t process, uint64_t idle_ns, bool ended) {
  const std::lock_guard lock(verdict_.mutex());
  if (!ended) return;
  verdict_.violate("idle-session-ended", "process " + std::to_string(process) + " had nothing open for " +
                                             std::to_string(idle_ns / kMs) +
                                             " ms without any fault, and its session was ended meanwhile");
}

std::string SessionModel::to_string(const Request& request) {
  char text[96];
  std::snprintf(text, sizeof(text), " of %zu bytes with digest %016llx, received at %.6f s", request.bytes,
                static_cast<unsigned long long>(request.digest), static_cast<double>(request.received_ns) * 1e-9);
  return std::string(wire::to_string(request.opcode)) + text;
}

void SessionModel::request_received(Server server, SessionId session, uint64_t sequence, Bytes message) {
  const std::lock_guard lock(verdict_.mutex());
  ByteReader reader(message);
  wire::Envelope envelope;
  if (!wire::decode_envelope(reader, envelope).ok()) return;  // the server refuses it
  const Request request{envelope.opcode, message.size(), std::hash<std::string_view>()(as_text(message)),
                        verdict_.now_ns()};
  const auto [first, is_new] = requests_[{server.process, session}].try_emplace(sequence, request);
  if (is_new || first->second.digest == request.digest) return;
  // The server would answer the second request with the reply to the first one, or execute it under its sequence.
  verdict_.violate("sequence-reused", std::string(server.name) + " received two different requests with sequence " +
                                          std::to_string(sequence) + " of session " + std::to_string(session.value) +
                                          ": first " + to_string(first->second) + ", and now " + to_string(request));
}

}  // namespace loam::sim
