// The common part of the servers' administrations: a port for gRPC and HTTP, the health service, and errors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "common/admin/acceptor.h"
#include "common/admin/api.h"
#include "common/admin/http_server.h"
#include "common/base/status.h"

namespace loam {

/// Converts a status into that of gRPC, with the same message.
grpc::Status to_grpc(const Status& status);

/// Time limits of connections. Without them a peer that sends nothing, or whose host is gone, would keep a file
/// descriptor of the server for ever.
struct GrpcLimits {
  std::chrono::milliseconds handshake{5'000};  ///< until the HTTP/2 settings have arrived; the same as on the data path
  std::chrono::milliseconds idle{60'000};      ///< without a call; clients of gRPC connect again by themselves
  std::chrono::milliseconds probe_after{10'000};   ///< silence of a peer after which the server sends it a ping
  std::chrono::milliseconds probe_timeout{5'000};  ///< time within which the peer must answer the ping
};

/// What a server adds to the HTTP replies of its administration port.
struct HttpContent {
  std::function<std::string()> metrics;  ///< returns the text for /metrics; the HTTP thread calls it until stop()
  uint16_t protocol_version = 0;         ///< version of the protocol between the processes, for /version
  ApiOptions api = {};                   ///< the service of the status page
};

/// A gRPC server with one service of its owner and the standard health service (grpc.health.v1.Health), which answers
/// NOT_SERVING until set_serving(true). The same port answers these HTTP requests:
///
/// | path       | reply                                                                                   |
/// | ---------- | --------------------------------------------------------------------------------------- |
/// | `/metrics` | the metrics of the server for Prometheus                                                |
/// | `/healthz` | 200: the process answers                                                                |
/// | `/readyz`  | 200 or 503: the state of the health service                                             |
/// | `/version` | the version of the program and of the protocol between the processes, as a JSON object  |
/// | `/options` | the options of the program without secrets, and its build id, as a JSON object         |
/// | `/logs`    | the newest lines of the program's log                                                  |
/// | others     | the status page and its API (Api)                                                       |
///
/// Owner: the administration of a server, which also owns the service. Threads: gRPC's own threads run the handlers;
/// set_serving() from any thread, the other functions from one.
class GrpcServer {
 public:
  /// Starts a server that listens on "host:port", as Acceptor::listen() does. kUnavailable: the port is in use.
  static Result<std::unique_ptr<GrpcServer>> start(const std::string& address, grpc::Service& service,
                                                   const HttpContent& content, const GrpcLimits& limits = {});
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// Stops the server: the health service answers NOT_SERVING, new calls are refused, and running calls are cancelled
  /// after kShutdownGracePeriod. Idempotent.
  void stop();

  /// Sets the status that the health service reports.
  void set_serving(bool serving);

  /// The address with its real port.
  const std::string& address() const { return address_; }

  /// Time for running calls at stop(). A handler that waits must check whether its call was cancelled.
  static constexpr std::chrono::milliseconds kShutdownGracePeriod{200};

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Acceptor> acceptor,
             std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> receiver, std::string address,
             const HttpContent& content, const GrpcLimits& limits);

  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<Acceptor> acceptor_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> receiver_;
  const std::string address_;
  std::atomic<bool> serving_{false};  // relaxed: each reader reports a recent state
  Api api_;
  HttpServer http_;
};

}  // namespace loam
