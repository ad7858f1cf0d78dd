// The gRPC server of an administration: start, limits of connections, health, and the order of the stop.

#include "common/admin/grpc_server.h"

#include <string>
#include <utility>

#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>

#include "common/admin/metrics.h"
#include "common/base/log.h"
#include "common/base/process_report.h"

namespace loam {
namespace {

// Writes the log lines of gRPC into Loam's log, with its rate limit: a peer can cause any number of them.
void log_for_grpc(gpr_log_func_args* line) {
  const std::string message = "gRPC: " + std::string(line->message);
  log({line->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kInfo, "grpc.message", message});
}

void set_limits(grpc::ServerBuilder& builder, const GrpcLimits& limits) {
  const auto milliseconds = [](std::chrono::milliseconds time) { return static_cast<int>(time.count()); };
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, milliseconds(limits.handshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(limits.idle));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(limits.probe_after));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(limits.probe_timeout));
  // Pings also go to peers without an open call, because such a peer may be gone, too.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Without this, gRPC stops its own keep-alive pings after two pings without data.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

/// The reply with a part of the report of this process.
HttpReply reported(const std::function<std::string()>& part, const std::string& content_type) {
  if (!part) return {.status = 404, .body = "this process runs several servers; it has no report of one server\n"};
  return {.content_type = content_type, .body = part()};
}

/// Probes and Prometheus use names of their own for this server, so only `api` checks the host names of requests.
HttpServer::Routes routes(const HttpContent& content, const std::atomic<bool>& serving, const Api& api) {
  const auto text = [](unsigned status, std::string body) {
    return HttpReply{.status = status, .body = std::move(body)};
  };
  return {
      {"/metrics",
       [metrics = content.metrics](const HttpRequest&) {
         return HttpReply{.content_type = std::string(Metrics::kContentType), .body = metrics()};
       }},
      {"/healthz", [text](const HttpRequest&) { return text(200, "ok\n"); }},
      {"/readyz",
       [text, &serving](const HttpRequest&) {
         return serving.load(std::memory_order_relaxed) ? text(200, "serving\n") : text(503, "not serving\n");
       }},
      {"/version",
       [protocol = content.protocol_version](const HttpRequest&) {
         return HttpReply{.content_type = "application/json",
                          .body = R"({"version":")" LOAM_VERSION R"(","protocol":)" + std::to_string(protocol) + "}\n"};
       }},
      {"/options",
       [&api](const HttpRequest& request) {
         return api.guard(request, [] { return reported(process_report().options, "application/json"); });
       }},
      {"/logs",
       [&api](const HttpRequest& request) {
         return api.guard(request, [] { return reported(process_report().last_log, "text/plain; charset=utf-8"); });
       }},
  };
}

}  // namespace

grpc::Status to_grpc(const Status& status) {
  const auto code = [&] {
    switch (status.code()) {
      case StatusCode::kOk:
        return grpc::StatusCode::OK;
      case StatusCode::kInvalidArgument:
      case StatusCode::kWrongTableKind:
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

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const std::string& address, grpc::Service& service,
                                                      const HttpContent& content, const GrpcLimits& limits) {
  gpr_set_log_function(log_for_grpc);
  grpc::EnableDefaultHealthCheckService(true);
  // The port is opened before gRPC starts, so that a port in use is reported without a running server. gRPC gets no
  // port of its own: the acceptor hands it connected sockets.
  auto acceptor = std::make_unique<Acceptor>();
  LOAM_ASSIGN_OR_RETURN(const int port, acceptor->listen(address));
  grpc::ServerBuilder builder;
  auto receiver = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  set_limits(builder, limits);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return Status(StatusCode::kUnavailable, "gRPC cannot start the administration on " + address);
  }
  const std::string host = address.substr(0, address.rfind(':') + 1);
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), std::move(acceptor), std::move(receiver),
                                                    host + std::to_string(port), content, limits));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Acceptor> acceptor,
                       std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> receiver, std::string address,
                       const HttpContent& content, const GrpcLimits& limits)
    : server_(std::move(server)),
      acceptor_(std::move(acceptor)),
      receiver_(std::move(receiver)),
      address_(std::move(address)),
      api_(*server_, address_, content.api),
      http_(
          routes(content, serving_, api_),
          [this](int fd) {
            grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
            connection.fd = fd;
            receiver_->HandleNewConnection(&connection);
          },
          {.first_bytes = limits.handshake}, [this](const HttpRequest& request) { return api_.answer(request); }) {
  // The health service exists before the first connection is accepted, and must not report a server that still starts.
  set_serving(false);
  acceptor_->start([this](int fd) { http_.take(fd); });
}

GrpcServer::~GrpcServer() { stop(); }

void GrpcServer::stop() {
  // The acceptor and the HTTP thread stop before the server, so that no socket reaches a server that shuts down.
  set_serving(false);
  acceptor_->stop();
  api_.cancel();
  http_.stop();
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGracePeriod);
  server_->Wait();
}

void GrpcServer::set_serving(bool serving) {
  serving_.store(serving, std::memory_order_relaxed);
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

}  // namespace loam
