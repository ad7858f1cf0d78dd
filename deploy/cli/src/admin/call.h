// Calls of the gRPC services of the servers.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/program/descriptors.h"

namespace loam::cli {

/// A server that does not answer within this time counts as unreachable.
inline constexpr uint64_t kAnswerWithinNs = 5'000'000'000;

/// Converts a reply into JSON. All fields are present, also those with their default value.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

/// Calls one method of a service and turns the reply into JSON.
template <class Service, class Request, class Reply>
Result<nlohmann::ordered_json> call(const std::string& address, const Request& request,
                                    grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                                    uint64_t timeout_ns = kAnswerWithinNs) {
  // gRPC aborts the process if it cannot open a descriptor, so the check comes before every call.
  LOAM_RETURN_IF_ERROR(program::ensure_descriptors(program::kClientDescriptors));
  // Each call has a connection of its own, because a shared one waits for seconds after the server was unreachable
  // once.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto stub = Service::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout_ns));
  Reply reply;
  const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      break;
    // The callers distinguish only these two refusals. Every other error counts as no reply.
    case grpc::StatusCode::INVALID_ARGUMENT:
      return Status(StatusCode::kInvalidArgument, status.error_message());
    case grpc::StatusCode::NOT_FOUND:
      return Status(StatusCode::kNotFound, status.error_message());
    default:
      return Status(StatusCode::kUnavailable,
                    fmt::format("the administration at {} does not answer: {}", address, status.error_message()));
  }
  return to_json(reply);
}

}  // namespace loam::cli
