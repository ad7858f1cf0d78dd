// An HTTP client for requests from one administration port to another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "common/admin/http_server.h"
#include "common/base/status.h"

namespace loam {

/// Upper bound on the body that http_get() accepts: the statistics of 100,000 tables with some room.
inline constexpr size_t kMaxFetchedBytes = 64u << 20;

/// Sends "GET `target`" to "host:port" and returns status, type and body of the reply. Blocks until the reply is
/// complete, `timeout` has passed, or `cancelled` is true. kUnavailable: no reply came; the message names the address.
Result<HttpReply> http_get(const std::string& address, const std::string& target, std::chrono::milliseconds timeout,
                           const std::atomic<bool>& cancelled);

}  // namespace loam
