#include "client-lib/src/driver/limit_status.h"

#include <string>

#include "common/fiber/limit.h"

namespace loam::client {

Status limit_status() {
  if (fiber::Limit::cancelled()) return {StatusCode::kCancelled, "the call was cancelled"};
  return {StatusCode::kTimeout, "the time of the call's scope is over"};
}

void name_end(Status& status) {
  const bool waited = status == StatusCode::kTimeout || status == StatusCode::kUnavailable ||
                      status == StatusCode::kOverloaded || status == StatusCode::kWrongShard;
  if (!waited || !fiber::Limit::ended()) return;
  const Status end = limit_status();
  status = {end.code(), std::string(end.message()) + ": " + std::string(status.message())};
}

}  // namespace loam::client
