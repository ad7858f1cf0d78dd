// The HTTP/1.1 part of an administration port.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loam {

/// The parts of an HTTP request that handlers use. A header field that the request does not have is empty.
struct HttpRequest {
  std::string method;                                     ///< in upper case, such as "GET"
  std::string path;                                       ///< the target before its '?'
  std::string query;                                      ///< the target after its '?', still percent-encoded
  std::string host, origin, authorization, content_type;  ///< header fields
  std::string body;
};

/// The reply to an HTTP request.
struct HttpReply {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string_view, std::string>> headers = {};  ///< further header fields; names are constants
};

/// Limits of the HTTP connections of one port.
struct HttpLimits {
  size_t connections = 64;                       ///< further ones are closed at once
  size_t header_bytes = 8'192;                   ///< of one request
  size_t body_bytes = 65'536;                    ///< of one request
  std::chrono::milliseconds first_bytes{5'000};  ///< until a new connection has sent its first bytes
  std::chrono::milliseconds request{5'000};      ///< until a request has arrived; also the idle time between two
  std::chrono::milliseconds reply{10'000};       ///< until the peer has read the reply
};

/// Answers HTTP/1.1 requests on connected sockets, and passes HTTP/2 connections on.
///
/// An administration port serves browsers and Prometheus by HTTP/1.1, and gRPC by HTTP/2. The first bytes of a
/// connection tell which: HTTP/2 begins with "PRI ". The server looks at them without reading them, so that gRPC finds
/// them in the socket.
///
/// It answers GET and HEAD for the paths that have a route, and ignores the query of such a path. All other requests go
/// to `other`. What this leaves without a reply gets 404, or 405 for another method than GET and HEAD. A malformed
/// request gets 400.
///
/// Owner: the administration of a server. Threads: take() from any thread. Routes and `http2` run on the server's own
/// thread, which has a low priority; a handler that takes long delays only other HTTP requests. `other` runs on
/// kWorkers threads of the same priority, so that it may wait for other servers without a delay of the routes.
class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  /// Path → handler.
  using Routes = std::map<std::string, Handler, std::less<>>;
  /// Receives a connected, non-blocking socket of an HTTP/2 connection, and owns it.
  using Http2 = std::function<void(int fd)>;
  /// Answers a request whose path has no route; no value if it does not know the path either.
  using Other = std::function<std::optional<HttpReply>(const HttpRequest&)>;

  /// Number of threads that run `other`.
  static constexpr size_t kWorkers = 2;

  /// `other` may be empty.
  HttpServer(Routes routes, Http2 http2, const HttpLimits& limits = {}, Other other = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Serves a connected, non-blocking socket, and owns it.
  void take(int fd);
  /// Closes all connections and ends the threads. Waits for handlers that run; none runs afterwards. Idempotent.
  void stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace loam
