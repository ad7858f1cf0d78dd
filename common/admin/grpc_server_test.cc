#include "common/admin/grpc_server.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/method_handler.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/admin/http_get.h"
#include "common/base/log.h"
#include "common/base/log_rate_limiter.h"
#include "common/base/process_report.h"
#include "common/testing/eventually.h"

namespace loam {
namespace {

/// A service with one method, because gRPC does not start a server without a method.
class OneMethod final : public grpc::Service {
 public:
  OneMethod() {
    using grpc::internal::RpcMethod;
    AddMethod(new grpc::internal::RpcServiceMethod("/test.Test/Call", RpcMethod::NORMAL_RPC,
                                                   new grpc::internal::UnknownMethodHandler("not known")));
  }
};

/// Calls grpc.health.v1.Health/Check for the whole server. Returns the number of its ServingStatus, or −1 if the call
/// fails.
int health(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + testing::kTestTimeout);
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

/// A peer with a plain TCP socket, which does not speak gRPC.
class Peer {
 public:
  Peer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Peer(const std::string& address) : Peer() { EXPECT_TRUE(connect(address)); }
  ~Peer() { ::close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] bool connect(const std::string& address) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    const bool connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    return connected && ::fcntl(fd_, F_SETFL, O_NONBLOCK) == 0;
  }
  bool send(std::string_view bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  bool heard() const {
    char byte = 0;
    return ::recv(fd_, &byte, 1, 0) == 1;
  }
  /// Appends the bytes that have arrived to `text`. Returns whether the server has closed the connection.
  bool read(std::string& text) const {
    char bytes[4'096];
    for (;;) {
      const ssize_t size = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (size < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
      if (size == 0) return true;
      text.append(bytes, static_cast<size_t>(size));
    }
  }
  /// Reads all bytes that have arrived. Returns whether the server has closed the connection.
  bool closed() const {
    std::string ignored;
    return read(ignored);
  }

 private:
  const int fd_;
};

HttpContent no_content() {
  return {.metrics = [] { return std::string(); }};
}

TEST(GrpcServer, HealthServiceFollowsSetServing) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content());
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
  const auto server = GrpcServer::start("127.0.0.1:0", service, no_content());
  ASSERT_TRUE(server.ok());
  const auto second = GrpcServer::start((*server)->address(), service, no_content());
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find((*server)->address()), std::string_view::npos);
}

/// Returns the reply to a GET request, headers included; empty if none came.
std::string get(const std::string& address, const std::string& path, const std::string& host = "127.0.0.1") {
  const Peer peer(address);
  EXPECT_TRUE(peer.send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"));
  std::string text;
  EXPECT_TRUE(testing::eventually([&] { return peer.read(text); })) << "no end of the reply";
  return text;
}

TEST(GrpcServer, TheSamePortAnswersHttp) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service,
                                  {.metrics = [] { return std::string("loam_test 1\n"); }, .protocol_version = 8});
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const std::string address = (*server)->address();
  const std::string metrics = get(address, "/metrics");
  EXPECT_NE(metrics.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos) << metrics;
  EXPECT_TRUE(metrics.ends_with("\r\n\r\nloam_test 1\n")) << metrics;
  EXPECT_TRUE(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
  EXPECT_TRUE(get(address, "/readyz").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
  (*server)->set_serving(true);
  EXPECT_TRUE(get(address, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
  const std::string version = get(address, "/version");
  EXPECT_NE(version.find(R"({"version":")"), std::string::npos) << version;
  EXPECT_NE(version.find(R"("protocol":8})"), std::string::npos) << version;
  EXPECT_EQ(health(address), 1) << "gRPC on the same port";
}

TEST(GrpcServer, ShowsTheReportOfTheProcess) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content());
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const std::string address = (*server)->address();
  EXPECT_TRUE(get(address, "/options").starts_with("HTTP/1.1 404 Not Found\r\n")) << "the process has no report";
  EXPECT_TRUE(get(address, "/logs").starts_with("HTTP/1.1 404 Not Found\r\n"));
  set_process_report({.options = [] { return "{}\n"; }, .last_log = [] { return "a line\n"; }});
  const std::string options = get(address, "/options");
  EXPECT_NE(options.find("Content-Type: application/json\r\n"), std::string::npos) << options;
  EXPECT_TRUE(options.ends_with("\r\n\r\n{}\n")) << options;
  EXPECT_TRUE(get(address, "/logs").ends_with("\r\n\r\na line\n"));
  // A name of another site may be resolved to this server. Only probes and Prometheus may use any name.
  for (const char* path : {"/options", "/logs"}) {
    EXPECT_TRUE(get(address, path, "attacker.example").starts_with("HTTP/1.1 403 Forbidden\r\n")) << path;
  }
  for (const char* path : {"/metrics", "/healthz", "/version"}) {
    EXPECT_TRUE(get(address, path, "prometheus.example").starts_with("HTTP/1.1 200 OK\r\n")) << path;
  }
  // http_get() sends the IP address as the host. The server would refuse this spelling of it.
  const Result<HttpReply> reply =
      http_get("127.1" + address.substr(address.rfind(':')), "/logs", testing::kTestTimeout);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->body, "a line\n");
  (*server)->stop();
  set_process_report({});
}

TEST(GrpcServer, ErrorsKeepTheirMessage) {
  const grpc::Status status = to_grpc({StatusCode::kNotFound, "no such node"});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such node");
  EXPECT_TRUE(to_grpc(ok_status()).ok());
  EXPECT_EQ(to_grpc({StatusCode::kInternal, ""}).error_code(), grpc::StatusCode::INTERNAL);
}

/// The first bytes of an HTTP/2 client: the preface and empty settings.
constexpr std::string_view kHttp2Begin("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

/// Limits of a day. A test shortens the one that it checks, so that no other limit closes the connection first.
GrpcLimits patient() {
  constexpr std::chrono::hours kLong{24};
  return {.handshake = kLong, .idle = kLong, .probe_after = kLong, .probe_timeout = kLong};
}

TEST(GrpcServer, ClosesAConnectionWithoutAHandshake) {
  OneMethod service;
  GrpcLimits limits = patient();
  limits.handshake = std::chrono::milliseconds(50);
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content(), limits);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const Peer silent((*server)->address());
  const Peer slow((*server)->address());
  ASSERT_TRUE(slow.send(kHttp2Begin.substr(0, 20)));
  EXPECT_TRUE(testing::eventually([&] { return silent.closed(); }));
  EXPECT_TRUE(testing::eventually([&] { return slow.closed(); }));
  EXPECT_EQ(health((*server)->address()), 2) << "the server still serves other connections";
}

TEST(GrpcServer, ClosesAnIdleConnection) {
  OneMethod service;
  GrpcLimits limits = patient();
  limits.idle = std::chrono::milliseconds(50);
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content(), limits);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const Peer idle((*server)->address());
  ASSERT_TRUE(idle.send(kHttp2Begin));
  EXPECT_TRUE(testing::eventually([&] { return idle.closed(); }));
}

TEST(GrpcServer, ClosesAConnectionWhosePeerAnswersNoPing) {
  OneMethod service;
  GrpcLimits limits = patient();
  limits.probe_after = limits.probe_timeout = std::chrono::milliseconds(50);
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content(), limits);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const Peer dead((*server)->address());
  ASSERT_TRUE(dead.send(kHttp2Begin));
  EXPECT_TRUE(testing::eventually([&] { return dead.closed(); }));
}

std::atomic<size_t> warnings{0};  // relaxed: a count

TEST(GrpcServer, AcceptsAgainAfterFileDescriptorsRanOut) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content());
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  set_log_sink([](const LogLine& line) {
    if (line.message.find("Too many open files") != std::string_view::npos)
      warnings.fetch_add(1, std::memory_order_relaxed);
  });
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const Peer late;
  rlimit low = limit;
  low.rlim_cur = 3;  // the descriptors 0 to 2 are in use
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const bool connected = late.connect((*server)->address());  // the kernel connects; the server cannot accept
  const bool warned = testing::eventually([] { return warnings.load(std::memory_order_relaxed) > 0; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  set_log_sink(nullptr);
  ASSERT_TRUE(connected && warned);
  ASSERT_TRUE(late.send(kHttp2Begin));
  EXPECT_TRUE(testing::eventually([&] { return late.heard(); })) << "accepted when descriptors are free again";
  EXPECT_EQ(health((*server)->address()), 2);
}

std::vector<std::string> lines;

TEST(GrpcServer, GrpcLinesGoToTheLogUnderItsLimit) {
  OneMethod service;
  auto server = GrpcServer::start("127.0.0.1:0", service, no_content());
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  lines.clear();
  set_log_sink([](const LogLine& line) {
    if (line.level == LogLevel::kWarning) lines.emplace_back(line.message);
  });
  for (uint64_t i = 0; i < LogRateLimiter::kMaxLinesPerWindow + 5; ++i)
    gpr_log(GPR_ERROR, "a peer sent %s", "nonsense");
  log_suppressed(true);
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), LogRateLimiter::kMaxLinesPerWindow + 1);
  EXPECT_EQ(lines.front(), "gRPC: a peer sent nonsense");
  EXPECT_EQ(lines.back(), "5 lines suppressed, such as: gRPC: a peer sent nonsense");
}

}  // namespace
}  // namespace loam
