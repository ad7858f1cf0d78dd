// Exact-version writes with their repetitions. plain_table.cc, counter_impl.cc and tree_store.cc use them.
#include "client-lib/src/driver/plain_write.h"

#include <cstdint>
#include <string>

#include "client-lib/src/core/backoff.h"
#include "client-lib/src/core/describe.h"
#include "common/rpc/channel.h"

namespace loam::client {
namespace {

/// Waits between attempts at a storage node that does not answer. The deadline bounds their number.
constexpr RetryOptions kWriteRetry{UINT32_MAX, 5'000'000, 200'000'000};

/// True if the storage node refuses the whole request with this code, so that the write has no effect.
bool refuses_all(StatusCode code) {
  return code == StatusCode::kFenced || code == StatusCode::kUnavailable || code == StatusCode::kWrongShard;
}

/// True if a write that failed with this code, without an effect, may succeed later.
bool is_transient(Engine& engine, StatusCode code) {
  return code == StatusCode::kFenced || code == StatusCode::kWrongShard ||
         (code == StatusCode::kUnavailable && !engine.records_lost() && !engine.closing());
}

/// Sends the write once. `detail` receives the storage node's explanation of a refusal.
Result<wire::WriteResult> attempt(Engine& engine, std::shared_ptr<Session> session, const wire::PlainWrite& message,
                                  uint64_t deadline_ns, std::string& detail) {
  const wire::RecordId& record = message.operations[0].record;
  if (session == nullptr) {
    LOAM_ASSIGN_OR_RETURN(session, engine.session(deadline_ns));
  }
  LOAM_RETURN_IF_ERROR(session->status());
  LOAM_ASSIGN_OR_RETURN(rpc::Channel* const channel, session->owner(record.table, record.key));
  rpc::Call<wire::PlainWriteReply> write;
  write.send(*channel, message, deadline_ns);
  const Status& answered = write.wait();
  // The write was sent, and its reply will not come. It is not repeated, because another session could execute it a
  // second time (R3, idempotent requests within a session).
  if (write.executed() == rpc::ExecutionStatus::kUnknown) {
    return Status(StatusCode::kUnknownOutcome,
                  "the reply was lost; read the record to learn the outcome: " + std::string(answered.message()));
  }
  LOAM_RETURN_IF_ERROR(answered);
  if (write.reply().results.size() != 1) {
    return Status(StatusCode::kUnknownOutcome, "a storage node sent another number of results than there were writes");
  }
  const wire::WriteResult result = write.reply().results[0];
  if (result.code != StatusCode::kOk) detail = write.reply().detail;
  const Status refusal(result.code, "the storage node refused the write");
  if (result.code == StatusCode::kFenced) session->on_fenced(refusal);
  if (refuses_all(result.code)) return refusal;
  return result;
}

}  // namespace

wire::PlainWrite::Operation plain_operation(const Table& table, Key key, wire::WriteKind kind, Version expected,
                                            Bytes row, Reserve reserve) {
  if (kind == wire::WriteKind::kUpdate && table.projected()) kind = wire::WriteKind::kUpdateFields;
  return {kind, reserve, {table.id(), key}, expected, row, table.projection(), table.added()};
}

Result<Version> plain_write(Engine& engine, const std::shared_ptr<Session>& session, const Table& table,
                            const wire::PlainWrite::Operation& operation, std::span<const wire::IndexIntent> intents) {
  wire::PlainWrite message;
  message.operations.push_back(operation);
  message.intents.assign(intents.begin(), intents.end());
  const uint64_t deadline_ns = engine.request_deadline();
  const auto again = [&](StatusCode code) {
    return is_transient(engine, code) && (session == nullptr || session->status().ok());
  };
  std::string detail;
  auto result = attempt(engine, session, message, deadline_ns, detail);
  for (uint32_t retry = 0; !result.ok() && again(result.code()); ++retry) {
    const uint64_t wait_ns = backoff_ns(kWriteRetry, retry, engine.random());
    if (engine.worker().now_ns() + wait_ns >= deadline_ns) break;
    if (!engine.sleep_before_retry(wait_ns)) break;
    // The owner of the record may have changed, or its storage node may have returned.
    const std::shared_ptr<Session> present = engine.current_session();
    static_cast<void>(present->manager().refresh_catalog());  // after a failure the cached catalog is used
    result = attempt(engine, session, message, deadline_ns, detail);
  }
  const Key key = operation.record.key;
  if (!result.ok()) {
    return Status(result.code(), describe(table, key) + ": " + std::string(result.status().message()));
  }
  if (result->code == StatusCode::kOk) return result->version;
  return record_error(table, key, wire::plain_write_code(operation.kind, result->code), detail);
}

}  // namespace loam::client
