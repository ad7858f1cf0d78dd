// Conversion of an exception into a Status.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam {

/// Converts the exception that is being handled into kUnknownOutcome, with a message such as "an index change was not
/// finished: std::bad_alloc". Call it in a catch block only. `what` names the operation. If no memory is left for the
/// message, the status has an empty message.
inline Status status_from_exception(std::string_view what) noexcept {
  const auto status = [what](std::string_view why) {
    return Status(StatusCode::kUnknownOutcome, std::string(what) + " was not finished: " + std::string(why));
  };
  try {
    try {
      throw;
    } catch (const std::exception& error) {
      return status(error.what());
    } catch (...) {
      return status("an exception of an unknown type");
    }
  } catch (...) {
    return {StatusCode::kUnknownOutcome, std::string()};
  }
}

}  // namespace loam
