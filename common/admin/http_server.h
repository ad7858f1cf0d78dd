// The HTTP/1.1 part of an administration port.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace loam {

/// The reply to an HTTP request.
struct HttpReply {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Limits of the HTTP connections of one port.
struct HttpLimits {
  size_t connections = 64;                       ///< further ones are closed at once
  size_t header_bytes = 8'192;                   ///< of one request
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
/// It answers GET and HEAD for the paths that have a handler. It answers 404 for any other path, 405 for any other
/// method and 400 for a malformed request. It ignores the query of a path.
///
/// Owner: the administration of a server. Threads: take() from any thread. Handlers and `http2` run on the server's
/// own thread, which has a low priority; a handler that takes long delays only other HTTP requests.
class HttpServer {
 public:
  using Handler = std::function<HttpReply()>;
  /// Path → handler.
  using Routes = std::map<std::string, Handler, std::less<>>;
  /// Receives a connected, non-blocking socket of an HTTP/2 connection, and owns it.
  using Http2 = std::function<void(int fd)>;

  HttpServer(Routes routes, Http2 http2, const HttpLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Serves a connected, non-blocking socket, and owns it.
  void take(int fd);
  /// Closes all connections and ends the thread. No handler runs afterwards. Idempotent.
  void stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace loam
