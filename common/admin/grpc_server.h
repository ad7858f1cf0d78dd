// What the administrations of the servers share: a port, health, and errors.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "common/admin/acceptor.h"
#include "common/base/status.h"

namespace loam {

/// As gRPC tells it; the message stays.
grpc::Status to_grpc(const Status& status);

/// How long a peer may hold a connection without using it. Without such limits a peer that says nothing, or whose host
/// is gone, keeps a descriptor of the server for ever.
struct GrpcLimits {
  std::chrono::milliseconds handshake{5'000};      ///< until the HTTP/2 settings have come, as long as on the data path
  std::chrono::milliseconds idle{60'000};          ///< without a call; gRPC's clients connect again by themselves
  std::chrono::milliseconds probe_after{10'000};   ///< a peer that is silent for this time is sent a ping
  std::chrono::milliseconds probe_timeout{5'000};  ///< and must answer it within this time
};

/// Role: a gRPC server with one service of its owner's, and the standard health service (grpc.health.v1.Health) beside
/// it, which says NOT_SERVING until set_serving(true). Owner: a server's administration, which also owns the service.
/// Threads: gRPC's own run the handlers; set_serving() from any; the rest from one.
class GrpcServer {
 public:
  /// Listens on "host:port" (Acceptor::listen()); port 0 takes a free one. kUnavailable if the port is in use.
  static Result<std::unique_ptr<GrpcServer>> start(const std::string& address, grpc::Service& service,
                                                   const GrpcLimits& limits = {});
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// Ends: health says NOT_SERVING, no more calls are taken, and those under way are cancelled after kGrace.
  /// Idempotent.
  void stop();

  void set_serving(bool serving);

  /// With the port that was taken.
  const std::string& address() const { return address_; }

  /// For calls under way at stop(). Handlers that wait look whether they were cancelled.
  static constexpr std::chrono::milliseconds kGrace{200};

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Acceptor> acceptor,
             std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> receiver, std::string address);

  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<Acceptor> acceptor_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> receiver_;
  const std::string address_;
};

}  // namespace loam
