// Whether a server has executed a request.
#pragma once

#include <cstdint>
#include <string_view>

namespace loam::rpc {

/// Tells whether a request had an effect, as far as the client knows when the call has ended. Callers decide by it
/// alone whether to repeat a request: a status gives the reason only.
enum class Executed : uint8_t {
  kNotSent,   ///< it has not reached the server and never will: no effect
  kRefused,   ///< the server has refused it as a whole: no effect, now or later
  kExecuted,  ///< the server has answered it
  kUnknown,   ///< it may have been executed, or may be executed later: the answer is lost, or the server forgot it
};

/// The request has no effect, now or later: it may be repeated as a new one.
constexpr bool has_no_effect(Executed executed) {
  return executed == Executed::kNotSent || executed == Executed::kRefused;
}

constexpr std::string_view to_string(Executed executed) {
  switch (executed) {
    case Executed::kNotSent:
      return "not sent";
    case Executed::kRefused:
      return "refused";
    case Executed::kExecuted:
      return "executed";
    case Executed::kUnknown:
      return "unknown";
  }
  return "invalid";
}

}  // namespace loam::rpc
