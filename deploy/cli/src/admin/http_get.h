// One HTTP request to an administration port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace loam::cli {

/// Upper bound on the bytes of a reply. The metrics of 100,000 tables take less.
inline constexpr size_t kMaxHttpReplyBytes = size_t{256} << 20;

/// Returns the body of the reply to `GET path` at "host:port". Any thread; opens a connection, and blocks until the
/// reply or the deadline. kNotFound: the server has no such page. kUnavailable: it does not answer in time, or answers
/// with another error; the message says which.
Result<std::string> http_get(const std::string& address, const std::string& path, uint64_t timeout_ns);

}  // namespace loam::cli
