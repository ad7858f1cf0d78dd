// The knowledge of a client about the execution of a request.
#pragma once

#include <cstdint>
#include <string_view>

namespace loam::rpc {

/// Whether a request has taken effect, as far as the client knows at the end of the call. A caller decides by this
/// alone whether to repeat the request. The Status only gives the reason of a failure.
enum class ExecutionStatus : uint8_t {
  kNotSent,   ///< the request has not reached the server and never will; it has no effect
  kRefused,   ///< the server has refused the request as a whole; it has no effect, now or later
  kExecuted,  ///< the server has executed and answered the request
  kUnknown,   ///< the request may have been executed, or may be executed later; its reply is lost
};

/// Whether the request has no effect, now or later. The caller may repeat it as a new request.
constexpr bool has_no_effect(ExecutionStatus executed) {
  return executed == ExecutionStatus::kNotSent || executed == ExecutionStatus::kRefused;
}

/// The name of the status for messages to people.
constexpr std::string_view to_string(ExecutionStatus executed) {
  switch (executed) {
    case ExecutionStatus::kNotSent:
      return "not sent";
    case ExecutionStatus::kRefused:
      return "refused";
    case ExecutionStatus::kExecuted:
      return "executed";
    case ExecutionStatus::kUnknown:
      return "unknown";
  }
  return "invalid";
}

}  // namespace loam::rpc
