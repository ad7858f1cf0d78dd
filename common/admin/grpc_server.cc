#include "common/admin/grpc_server.h"

#include <string>
#include <utility>

#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>

#include "common/base/log.h"

namespace loam {
namespace {

// gRPC's own lines go where all others go, and are limited as those are: its peers may cause them at will.
void log_for_grpc(gpr_log_func_args* line) {
  log(line->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kInfo,
      "gRPC: " + std::string(line->message));
}

}  // namespace

grpc::Status to_grpc(const Status& status) {
  const auto code = [&] {
    switch (status.code()) {
      case StatusCode::kOk:
        return grpc::StatusCode::OK;
      case StatusCode::kInvalidArgument:
        return grpc::StatusCode::INVALID_ARGUMENT;
      case StatusCode::kAlreadyExists:
        return grpc::StatusCode::ALREADY_EXISTS;
      case StatusCode::kNoSuchTable:
      case StatusCode::kNotFound:
        return grpc::StatusCode::NOT_FOUND;
      case StatusCode::kOverloaded:
      case StatusCode::kNoSpace:
        return grpc::StatusCode::RESOURCE_EXHAUSTED;
      case StatusCode::kUnknownOutcome:
        return grpc::StatusCode::DEADLINE_EXCEEDED;
      case StatusCode::kUnavailable:
        return grpc::StatusCode::UNAVAILABLE;
      case StatusCode::kCancelled:
        return grpc::StatusCode::CANCELLED;
      default:
        return grpc::StatusCode::INTERNAL;
    }
  }();
  return {code, std::string(status.message())};
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const std::string& address, grpc::Service& service) {
  gpr_set_log_function(log_for_grpc);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  // A second server must not share the port in silence.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return Status(StatusCode::kUnavailable, "cannot listen on " + address +
                                                " for administration: the port is in use, or the address is not one of "
                                                "this host; choose another one");
  }
  const std::string host = address.substr(0, address.rfind(':') + 1);
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), host + std::to_string(port)));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {
  set_serving(false);
}

GrpcServer::~GrpcServer() { stop(); }

void GrpcServer::stop() {
  set_serving(false);
  server_->Shutdown(std::chrono::system_clock::now() + kGrace);
  server_->Wait();
}

void GrpcServer::set_serving(bool serving) { server_->GetHealthCheckService()->SetServingStatus(serving); }

}  // namespace loam
