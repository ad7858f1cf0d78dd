// An exception as a status.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam {

/// In a catch block: the exception that is being handled as kUnknownOutcome, "an index change was not finished:
/// std::bad_alloc". Without memory for the message it has none.
inline Status unfinished(std::string_view what) noexcept {
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
