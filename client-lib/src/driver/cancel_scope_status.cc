#include "client-lib/src/driver/cancel_scope_status.h"

#include <string>

#include "common/fiber/cancel_scope.h"

namespace loam::client {

Status cancel_scope_status() {
  if (fiber::CancelScope::cancelled()) return {StatusCode::kCancelled, "the call was cancelled"};
  return {StatusCode::kTimeout, "the time-out of the call's scope has passed"};
}

void apply_cancel_scope_status(Status& status) {
  // Only these codes can come from a wait that was cut short. Any other code is a server's reply, and stays.
  const bool waited = status == StatusCode::kTimeout || status == StatusCode::kUnavailable ||
                      status == StatusCode::kOverloaded || status == StatusCode::kWrongShard;
  if (!waited || !fiber::CancelScope::ended()) return;
  const Status end = cancel_scope_status();
  status = {end.code(), std::string(end.message()) + ": " + std::string(status.message())};
}

}  // namespace loam::client
