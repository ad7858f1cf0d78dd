// loam-net-probe speaks the transport's protocol and nothing above it. Tests of networks and of their failures use it.
//
//   loam-net-probe serve ADDRESS           echoes; prints "listening ADDRESS" when it listens
//   loam-net-probe ping ADDRESS SECONDS [BYTES]
//                                          prints "connected", then "answered N" from time to time; at the end of the
//                                          time "done N", exit code 0; at the end of the connection "closed STATUS",
//                                          exit code 3. One message of BYTES (14 by default) is in flight at a time

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "common/base/env.h"
#include "common/net/make_transport.h"
#include "common/net/transport/transport.h"

namespace {

using namespace loam;       // NOLINT(google-build-using-namespace): a program of one file
using namespace loam::net;  // NOLINT(google-build-using-namespace)

constexpr int kFailed = 1;
constexpr int kWrongUse = 2;
constexpr int kClosed = 3;
constexpr size_t kPingBytes = 14;
constexpr uint64_t kTellNs = 500'000'000;

void say(std::string_view what, const std::string& more) {
  std::printf("%.*s %s\n", static_cast<int>(what.size()), what.data(), more.c_str());
  std::fflush(stdout);
}

int failed(const Status& status) {
  say("failed", status.to_string());
  return kFailed;
}

class Echo : public Handler {
 public:
  void on_messages(Connection& connection, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) {
      if (!connection.send(message).ok()) return;
    }
  }
  void on_closed(Connection& connection, const Status& status) override {
    say("closed", connection.peer().to_string() + " " + status.to_string());
  }
};

class Pinger : public Handler {
 public:
  explicit Pinger(size_t bytes) : text_(bytes, '?') {}
  void on_connected(Connection& connection) override {
    say("connected", connection.peer().to_string());
    send(connection);
  }
  void on_messages(Connection& connection, std::span<const Bytes> messages) override {
    answers += messages.size();
    send(connection);
  }
  void on_closed(Connection&, const Status& status) override {
    say("closed", status.to_string());
    closed = true;
  }

  uint64_t answers = 0;
  bool closed = false;

 private:
  void send(Connection& connection) { static_cast<void>(connection.send(as_bytes(text_))); }

  const std::string text_;
};

int serve(Transport& transport, const Address& address) {
  Echo echo;
  const auto listener = transport.listen(address, echo);
  if (!listener.ok()) return failed(listener.status());
  say("listening", (*listener)->address().to_string());
  for (;;) transport.poll(kForever);
}

int ping(Transport& transport, const Address& address, uint64_t duration_ns, size_t bytes) {
  Pinger pinger(bytes);
  const auto connection = transport.connect(address, pinger);
  if (!connection.ok()) return failed(connection.status());
  const uint64_t until = RealEnv::now_ns() + duration_ns;
  uint64_t next = RealEnv::now_ns() + kTellNs;
  for (uint64_t now = 0; now < until && !pinger.closed; now = RealEnv::now_ns()) {
    transport.poll(kTellNs / 10);
    if (now < next || pinger.closed) continue;
    next = now + kTellNs;
    say("answered", std::to_string(pinger.answers));
  }
  if (pinger.closed) return kClosed;
  say("done", std::to_string(pinger.answers));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view what = count >= 3 ? arguments[1] : "";
  if (!(what == "serve" && count == 3) && !(what == "ping" && (count == 4 || count == 5))) {
    std::fputs("usage: loam-net-probe serve ADDRESS | ping ADDRESS SECONDS [BYTES]\n", stderr);
    return kWrongUse;
  }
  const auto address = Address::parse(arguments[2]);
  if (!address.ok()) return failed(address.status());
  TransportOptions options;
  if (const char* timeout = std::getenv("PEER_TIMEOUT_MS"); timeout != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    options.peer_timeout_ns = std::strtoull(timeout, nullptr, 10) * 1'000'000;
  }
  const auto transport = make_transport(address->scheme, options);
  if (!transport.ok()) return failed(transport.status());
  if (what == "serve") return serve(**transport, *address);
  const size_t bytes = count == 5 ? std::strtoull(arguments[4], nullptr, 10) : kPingBytes;
  return ping(**transport, *address, std::strtoull(arguments[3], nullptr, 10) * 1'000'000'000, bytes);
}
