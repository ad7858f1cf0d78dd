#include "common/admin/http_server.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/admin/acceptor.h"
#include "common/testing/eventually.h"

namespace loam {
namespace {

class HttpServerTest : public ::testing::Test {
 protected:
  void start(const HttpLimits& limits = {}) {
    server_ = std::make_unique<HttpServer>(
        HttpServer::Routes{
            {"/number",
             [this](const HttpRequest&) { return HttpReply{200, "text/plain", std::to_string(++requests_)}; }},
            {"/large", [](const HttpRequest&) { return HttpReply{200, "text/plain", std::string(8u << 20, 'x')}; }},
            {"/busy", [](const HttpRequest&) { return HttpReply{503, "text/plain", "busy\n"}; }}},
        [this](int fd) {
          const std::lock_guard lock(mutex_);
          http2_.push_back(fd);
          passed_on_.notify_all();
        },
        limits, [this](const HttpRequest& request) { return other(request); });
    port_ = acceptor_.listen("127.0.0.1:0").value();
    acceptor_.start([this](int fd) { server_->take(fd); });
  }
  /// Answers /echo with the parts of the request; /wait waits for release().
  std::optional<HttpReply> other(const HttpRequest& request) {
    if (request.path == "/wait") {
      std::unique_lock lock(mutex_);
      ++waiting_;
      passed_on_.notify_all();
      passed_on_.wait(lock, [this] { return released_; });
      return HttpReply{200, "text/plain", "released"};
    }
    if (request.path != "/echo") return std::nullopt;
    return HttpReply{200,
                     "text/plain",
                     request.method + " " + request.query + " " + request.host + " " + request.origin + " " +
                         request.authorization + " " + request.content_type + " " + request.body,
                     {{"X-Further", "yes"}}};
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    passed_on_.notify_all();
  }

  ~HttpServerTest() override {
    release();
    acceptor_.stop();
    if (server_ != nullptr) server_->stop();
    for (const int fd : clients_) ::close(fd);
    for (const int fd : http2_) ::close(fd);
  }

  int connect() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    clients_.push_back(fd);
    return fd;
  }
  static void send(int fd, const std::string& text) {
    ASSERT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  /// Reads until the text contains `end`, or the server closes the connection.
  static std::string receive(int fd, const std::string& end = "\1") {
    std::string text;
    std::string part(65'536, '\0');
    const auto test_ms = std::chrono::duration_cast<std::chrono::milliseconds>(testing::kTestTimeout).count();
    while (text.find(end) == std::string::npos) {
      pollfd source{fd, POLLIN, 0};
      if (::poll(&source, 1, static_cast<int>(test_ms)) <= 0) return text + " (nothing more came in time)";
      const ssize_t got = ::recv(fd, part.data(), part.size(), 0);
      if (got <= 0) return text;
      text.append(part, 0, static_cast<size_t>(got));
    }
    return text;
  }
  std::string ask(const std::string& request) {
    const int fd = connect();
    send(fd, request);
    return receive(fd);
  }

  Acceptor acceptor_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
  int requests_ = 0;  // number of requests for /number; only the thread of the server uses it
  std::mutex mutex_;
  std::condition_variable passed_on_;
  std::vector<int> http2_;  // guarded by mutex_
  size_t waiting_ = 0;      // guarded by mutex_; requests for /wait that have begun
  bool released_ = false;   // guarded by mutex_
  std::vector<int> clients_;
};

TEST_F(HttpServerTest, AnswersGetAndHead) {
  start();
  const std::string got = ask("GET /number?x=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
  EXPECT_NE(got.find("Content-Type: text/plain\r\n"), std::string::npos) << got;
  EXPECT_TRUE(got.ends_with("\r\n\r\n1")) << got;
  const std::string head = ask("HEAD /number HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 1\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(HttpServerTest, OneConnectionServesSeveralRequests) {
  start();
  const int fd = connect();
  for (const char* number : {"1", "2", "3"}) {
    send(fd, "GET /number HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string got = receive(fd, std::string("\r\n\r\n") + number);
    EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
  }
}

TEST_F(HttpServerTest, RefusesWhatItDoesNotServe) {
  start();
  const std::string unknown = ask("GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(unknown.starts_with("HTTP/1.1 404 Not Found\r\n")) << unknown;
  EXPECT_NE(unknown.find("/number"), std::string::npos) << "the known paths are named: " << unknown;
  const std::string put = ask("PUT /number HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(put.starts_with("HTTP/1.1 405 Method Not Allowed\r\n")) << put;
  EXPECT_NE(put.find("Allow: GET, HEAD\r\n"), std::string::npos) << put;
  EXPECT_TRUE(ask("no such protocol\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
  const std::string large = ask("GET /number HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_TRUE(large.empty() || large.starts_with("HTTP/1.1 400")) << large;
  EXPECT_TRUE(ask("GET /busy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, RequestsWithoutARouteGoToTheWorkers) {
  start();
  const std::string got =
      ask("POST /echo?a=1&b=%20 HTTP/1.1\r\nHost: h:1\r\nOrigin: o\r\nAuthorization: Bearer t\r\nContent-Type: c\r\n"
          "Content-Length: 4\r\nConnection: close\r\n\r\nbody");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
  EXPECT_NE(got.find("X-Further: yes\r\n"), std::string::npos) << got;
  EXPECT_TRUE(got.ends_with("\r\n\r\nPOST a=1&b=%20 h:1 o Bearer t c body")) << got;
  const std::string head = ask("HEAD /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << "no body: " << head;
  const std::string put = ask("PUT /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(put.starts_with("HTTP/1.1 405 ")) << "neither has this path: " << put;
}

TEST_F(HttpServerTest, RefusesABodyAboveTheLimit) {
  start({.body_bytes = 8});
  const std::string request = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ";
  EXPECT_TRUE(ask(request + "8\r\n\r\n12345678").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(ask(request + "9\r\n\r\n").starts_with("HTTP/1.1 400 ")) << "refused before the body has arrived";
  EXPECT_TRUE(ask(request + "x\r\n\r\n").starts_with("HTTP/1.1 400 "));
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n";
  EXPECT_FALSE(ask(chunked).starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, WorkersThatWaitDelayNoRoute) {
  start();
  std::vector<int> waiting;
  for (size_t i = 0; i < HttpServer::kWorkers; ++i) {
    waiting.push_back(connect());
    send(waiting.back(), "GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  }
  {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(passed_on_.wait_for(lock, testing::kTestTimeout, [&] { return waiting_ == HttpServer::kWorkers; }));
  }
  EXPECT_TRUE(ask("GET /number HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
  release();
  for (const int fd : waiting) EXPECT_TRUE(receive(fd).ends_with("released"));
}

TEST_F(HttpServerTest, StopDropsTheReplyOfAWorkerThatStillRuns) {
  start();
  const int late = connect();
  send(late, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(passed_on_.wait_for(lock, testing::kTestTimeout, [&] { return waiting_ == 1; }));
  }
  std::thread stopping([this] { server_->stop(); });
  release();
  stopping.join();
  server_.reset();
  receive(late);  // ends, with the reply or without
}

TEST_F(HttpServerTest, PassesHttp2OnWithAllItsBytes) {
  start();
  const int fd = connect();
  send(fd, "PR");  // a part of the preface alone decides nothing
  send(fd, "I * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(passed_on_.wait_for(lock, testing::kTestTimeout, [&] { return !http2_.empty(); }));
  std::string bytes(64, '\0');
  bytes.resize(static_cast<size_t>(::recv(http2_[0], bytes.data(), bytes.size(), 0)));
  EXPECT_EQ(bytes.substr(0, 16), "PRI * HTTP/2.0\r\n");
}

TEST_F(HttpServerTest, ASilentConnectionIsClosed) {
  start({.first_bytes = std::chrono::milliseconds(20), .request = std::chrono::milliseconds(20)});
  EXPECT_EQ(receive(connect()), "");
  const int half = connect();
  send(half, "GET /number HT");
  EXPECT_EQ(receive(half), "");
  EXPECT_EQ(requests_, 0);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreClosed) {
  start({.connections = 2});
  const int first = connect();
  const int second = connect();
  for (const int fd : {first, second}) {
    send(fd, "GET /number HTTP/1.1\r\nHost: a\r\n\r\n");
    receive(fd, "\r\n\r\n");
  }
  EXPECT_EQ(receive(connect()), "") << "the third one";
  send(first, "GET /number HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(receive(first).ends_with("3")) << "the first two are still served";
}

TEST_F(HttpServerTest, APeerThatDoesNotReadDelaysNoOther) {
  start();
  const int lazy = connect();
  send(lazy, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string got = ask("GET /number HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
}

TEST_F(HttpServerTest, StopClosesAllConnections) {
  start();
  const int idle = connect();
  send(idle, "GET /number HTTP/1.1\r\nHost: a\r\n\r\n");
  receive(idle, "\r\n\r\n1");
  acceptor_.stop();
  server_->stop();
  server_.reset();
  EXPECT_EQ(receive(idle), "");
}

}  // namespace
}  // namespace loam
