// An HTTP client for requests to administration ports.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "common/admin/http_server.h"
#include "common/base/status.h"

namespace loam {

/// Upper bound on the body that http_get() accepts. The metrics of 100,000 tables take less.
inline constexpr size_t kMaxFetchedBytes = size_t{256} << 20;

/// Sends "GET `target`" to "host:port" and returns status, type and body of the reply. Blocks until the reply is
/// complete, `timeout` has passed, or `*cancelled` is true. kUnavailable: no reply came; the message says why.
Result<HttpReply> http_get(const std::string& address, const std::string& target, std::chrono::milliseconds timeout,
                           const std::atomic<bool>* cancelled = nullptr);

}  // namespace loam
