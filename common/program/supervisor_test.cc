#include "common/program/supervisor.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace loam::program {
namespace {

/// Plays systemd: a datagram socket, and the environment of a service.
class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() : path_(std::filesystem::path(::testing::TempDir()) / ("notify-" + std::to_string(::getpid()))) {
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  }
  ~SupervisorTest() override {
    ::close(socket_);
    std::filesystem::remove(path_);
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  }
  void set_watchdog(const char* microseconds, pid_t pid = ::getpid()) {
    ::setenv("WATCHDOG_USEC", microseconds, 1);
    ::setenv("WATCHDOG_PID", std::to_string(pid).c_str(), 1);
  }
  /// Returns the next message; empty if there is none.
  std::string message() const {
    std::array<char, 1'024> bytes{};
    const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
    return size <= 0 ? std::string() : std::string(bytes.data(), static_cast<size_t>(size));
  }

  const std::filesystem::path path_;
  int socket_ = -1;
};

TEST_F(SupervisorTest, TellsThatItServesAndStops) {
  Supervisor supervisor;
  EXPECT_EQ(message(), "") << "it does not serve yet";
  supervisor.serving("serving at tcp://127.0.0.1:7400");
  EXPECT_EQ(message(), "READY=1\nSTATUS=serving at tcp://127.0.0.1:7400");
  supervisor.stopping();
  EXPECT_EQ(message(), "STOPPING=1\nSTATUS=stopping");
}

TEST_F(SupervisorTest, FeedsTheWatchdogOnlyWhileTheLoopGoesOn) {
  set_watchdog("10000000");
  Supervisor supervisor;
  EXPECT_EQ(supervisor.feed_period(), std::chrono::milliseconds(2'500));
  supervisor.feed(7);
  EXPECT_EQ(message(), "WATCHDOG=1");
  supervisor.feed(7);
  EXPECT_EQ(message(), "") << "the loop hangs";
  supervisor.feed(8);
  EXPECT_EQ(message(), "WATCHDOG=1");
}

TEST_F(SupervisorTest, WithoutAWatchdogNothingIsFed) {
  Supervisor supervisor;
  EXPECT_EQ(supervisor.feed_period(), std::nullopt);
  supervisor.feed(1);
  EXPECT_EQ(message(), "");
}

TEST_F(SupervisorTest, AWatchdogOfAnotherProcessIsIgnored) {
  set_watchdog("10000000", ::getppid());
  EXPECT_EQ(Supervisor().feed_period(), std::nullopt);
}

TEST_F(SupervisorTest, WithoutSystemdNothingIsSent) {
  ::unsetenv("NOTIFY_SOCKET");
  Supervisor supervisor;
  supervisor.serving("serving");
  supervisor.stopping();
  EXPECT_EQ(message(), "");
}

}  // namespace
}  // namespace loam::program
