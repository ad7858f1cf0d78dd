#include "common/admin/acceptor.h"

#include <cstdint>
#include <future>
#include <string>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/testing/patience.h"

namespace loam {
namespace {

/// A client's socket, connected to a port of 127.0.0.1.
class Connection {
 public:
  explicit Connection(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }

 private:
  const int fd_;
  bool connected_ = false;
};

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
  const Connection client(*port);
  ASSERT_TRUE(client.connected());
  auto told = no_delay.get_future();
  ASSERT_EQ(told.wait_for(testing::kPatience), std::future_status::ready);
  EXPECT_EQ(told.get(), 1);
}

}  // namespace
}  // namespace loam
