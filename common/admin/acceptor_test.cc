#include "common/admin/acceptor.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/testing/eventually.h"

namespace loam {
namespace {

SocketAddress address_at(const std::string& text) { return resolve_listen_addresses(text).value().front(); }

/// The socket of a client.
class Connection {
 public:
  explicit Connection(const SocketAddress& to)
      : fd_(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        connected_(::connect(fd_, reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0) {}
  Connection(SocketAddress to, int port) : Connection(with_port(to, port)) {}
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  /// Whether the server has closed the connection. Blocks until it sends or closes.
  bool closed() const {
    char byte = 0;
    return ::recv(fd_, &byte, 1, 0) == 0;
  }

 private:
  static SocketAddress with_port(SocketAddress address, int port) {
    address.set_port(static_cast<uint16_t>(port));
    return address;
  }

  const int fd_;
  const bool connected_;
};

/// Whether this machine has the address: a socket can be bound to it. Needs no server.
bool machine_has(const SocketAddress& address) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0;
  if (fd >= 0) ::close(fd);
  return bound;
}

TEST(Acceptor, AcceptedSocketsSendWithoutDelay) {
  Acceptor acceptor;
  const auto port = acceptor.listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status().to_string();
  std::promise<int> no_delay;
  acceptor.start([&](int fd) {
    int value = -1;
    socklen_t size = sizeof(value);
    static_cast<void>(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size));
    ::close(fd);
    no_delay.set_value(value);
  });
  const Connection client(address_at("127.0.0.1:0"), *port);
  ASSERT_TRUE(client.connected());
  auto no_delay_result = no_delay.get_future();
  ASSERT_EQ(no_delay_result.wait_for(testing::kTestTimeout), std::future_status::ready);
  EXPECT_EQ(no_delay_result.get(), 1);
}

TEST(Acceptor, AcceptsAtEveryAddressOnOnePort) {
  const std::vector<SocketAddress> addresses = {address_at("127.0.0.2:0"), address_at("127.0.0.1:0")};
  Acceptor acceptor;
  const auto port = acceptor.listen(addresses, "a name");
  ASSERT_TRUE(port.ok()) << port.status().to_string();
  std::atomic<int> accepted{0};
  acceptor.start([&](int fd) {
    ++accepted;
    ::close(fd);
  });
  for (const SocketAddress& address : addresses) {
    const Connection client(address, *port);
    ASSERT_TRUE(client.connected()) << address.to_string();
    EXPECT_TRUE(client.closed()) << address.to_string();
  }
  EXPECT_EQ(accepted, 2);
}

TEST(Acceptor, ListensAtAllAddressesOfAHostName) {
  Acceptor acceptor;
  const auto port = acceptor.listen("localhost:0");
  ASSERT_TRUE(port.ok()) << port.status().to_string();
  acceptor.start([](int fd) { ::close(fd); });
  for (const char* const text : {"127.0.0.1:0", "[::1]:0"}) {
    const SocketAddress address = address_at(text);
    const auto named = resolve_listen_addresses("localhost:0").value();
    const bool meant =
        std::ranges::any_of(named, [&](const SocketAddress& one) { return one.to_string() == address.to_string(); });
    if (!meant || !machine_has(address)) continue;  // a machine without IPv6
    const Connection client(address, *port);
    EXPECT_TRUE(client.connected()) << text;
    EXPECT_TRUE(client.closed()) << text;
  }
}

TEST(Acceptor, SkipsAddressesOfOtherMachines) {
  const SocketAddress elsewhere = address_at("192.0.2.1:0");  // reserved for documentation (RFC 5737)
  if (machine_has(elsewhere)) GTEST_SKIP() << "this machine has every address (net.ipv4.ip_nonlocal_bind)";
  {
    Acceptor acceptor;
    const auto port = acceptor.listen({elsewhere, address_at("127.0.0.1:0")}, "a name");
    ASSERT_TRUE(port.ok()) << port.status().to_string();
    EXPECT_TRUE(Connection(address_at("127.0.0.1:0"), *port).connected());
  }
  Acceptor acceptor;
  const auto none = acceptor.listen({elsewhere}, "a name");
  EXPECT_EQ(none.code(), StatusCode::kUnavailable);
  EXPECT_NE(none.status().message().find("192.0.2.1:0"), std::string_view::npos) << none.status().message();
}

TEST(Acceptor, ErrorNamesTheAddressInUse) {
  Acceptor first;
  const int port = first.listen("127.0.0.2:0").value();
  const std::string text = ":" + std::to_string(port);
  Acceptor second;
  const auto refused = second.listen({address_at("127.0.0.1" + text), address_at("127.0.0.2" + text)}, "a name");
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("127.0.0.2" + text), std::string_view::npos) << refused.status().message();
  EXPECT_FALSE(Connection(address_at("127.0.0.1" + text)).connected()) << "it listens nowhere";
}

TEST(Acceptor, IPv4WildcardDoesNotListenOnIPv6) {
  if (!machine_has(address_at("[::1]:0"))) GTEST_SKIP() << "this machine has no IPv6";
  Acceptor acceptor;
  const int port = acceptor.listen("0.0.0.0:0").value();
  EXPECT_TRUE(Connection(address_at("127.0.0.1:0"), port).connected());
  EXPECT_FALSE(Connection(address_at("[::1]:0"), port).connected());
}

TEST(Acceptor, EmptyHostListensOnIPv4AndIPv6) {
  if (!machine_has(address_at("[::1]:0"))) GTEST_SKIP() << "this machine has no IPv6";
  Acceptor acceptor;
  const auto port = acceptor.listen(":0");
  ASSERT_TRUE(port.ok()) << port.status().to_string();
  EXPECT_TRUE(Connection(address_at("127.0.0.1:0"), *port).connected());
  EXPECT_TRUE(Connection(address_at("[::1]:0"), *port).connected());
}

}  // namespace
}  // namespace loam
