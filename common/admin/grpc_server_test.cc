#include "common/admin/grpc_server.h"

#include <string>
#include <string_view>
#include <vector>

#include <grpc/support/log.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/method_handler.h>
#include <gtest/gtest.h>

#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/testing/patience.h"

namespace loam {
namespace {

/// gRPC starts no server without a method.
class OneMethod final : public grpc::Service {
 public:
  OneMethod() {
    using grpc::internal::RpcMethod;
    AddMethod(new grpc::internal::RpcServiceMethod("/test.Test/Call", RpcMethod::NORMAL_RPC,
                                                   new grpc::internal::UnknownMethodHandler("not known")));
  }
};

/// What grpc.health.v1.Health/Check answers for the whole server: the number of its ServingStatus, or −1.
int health(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + testing::kPatience);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const grpc::Slice nothing;  // a HealthCheckRequest without a service
  const grpc::ByteBuffer request(&nothing, 1);
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  if (!queue.Next(&tag, &ok) || !status.ok()) return -1;
  grpc::Slice bytes;
  if (!reply.TrySingleSlice(&bytes).ok() || bytes.size() != 2) return 0;  // 0 is not encoded
  return bytes.begin()[1];
}

TEST(GrpcServer, TellsItsHealth) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const std::string address = (*server)->address();
  EXPECT_NE(address, "127.0.0.1:0");
  EXPECT_EQ(health(address), 2) << "NOT_SERVING";
  (*server)->set_serving(true);
  EXPECT_EQ(health(address), 1) << "SERVING";
  (*server)->set_serving(false);
  EXPECT_EQ(health(address), 2);
  (*server)->stop();
  (*server)->stop();
  EXPECT_EQ(health(address), -1);
}

TEST(GrpcServer, RefusesAPortInUse) {
  OneMethod service;
  const auto server = GrpcServer::start("127.0.0.1:0", service);
  ASSERT_TRUE(server.ok());
  const auto second = GrpcServer::start((*server)->address(), service);
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find((*server)->address()), std::string_view::npos);
}

TEST(GrpcServer, ErrorsKeepTheirMessage) {
  const grpc::Status status = to_grpc({StatusCode::kNotFound, "no such node"});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such node");
  EXPECT_TRUE(to_grpc(ok_status()).ok());
  EXPECT_EQ(to_grpc({StatusCode::kInternal, ""}).error_code(), grpc::StatusCode::INTERNAL);
}

std::vector<std::string> lines;

TEST(GrpcServer, ItsLinesGoIntoTheLogAndFillNoDisk) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  lines.clear();
  set_log_sink([](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) lines.emplace_back(line);
  });
  for (uint64_t i = 0; i < LogLimit::kLines + 5; ++i) gpr_log(GPR_ERROR, "a peer sent %s", "nonsense");
  log_left_out(true);
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), LogLimit::kLines + 1);
  EXPECT_EQ(lines.front(), "gRPC: a peer sent nonsense");
  EXPECT_EQ(lines.back(), "5 lines left out, such as: gRPC: a peer sent nonsense");
}

}  // namespace
}  // namespace loam
