// The thread that accepts administration connections. listeners.cc opens the sockets, and grpc_server.cc hands the
// accepted ones to gRPC.

#include "common/admin/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"

namespace loam {
namespace {

Status cannot_listen(const std::string& address, std::string_view why) {
  return {StatusCode::kUnavailable, "cannot listen on " + address + " for administration: " + std::string(why) +
                                        ": the port is in use, or the address is not one of this host; choose another "
                                        "one"};
}

}  // namespace

Result<int> Acceptor::listen(const std::string& address) {
  auto addresses = resolve_listen_addresses(address);
  // The error of a wrong address is kUnavailable, too, with the cause in the message.
  if (!addresses.ok()) return cannot_listen(address, addresses.status().message());
  return listen(*std::move(addresses), address);
}

Result<int> Acceptor::listen(std::vector<SocketAddress> addresses, const std::string& name) {
  auto listeners = listen_at(std::move(addresses));
  if (!listeners.ok()) return cannot_listen(name, listeners.status().message());
  listeners_ = *std::move(listeners);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0) return cannot_listen(name, std::strerror(errno));
  return port_of(listeners_.front());
}

void Acceptor::start(Receiver receiver) {
  receiver_ = std::move(receiver);
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "loam-admin");
}

void Acceptor::stop() {
  // The eventfd stays readable, so the thread also ends if it polls later.
  if (thread_.joinable()) {
    const uint64_t one = 1;
    static_cast<void>(::write(stop_fd_, &one, sizeof(one)));
    thread_.join();
  }
  for (const int listener : std::exchange(listeners_, {})) ::close(listener);
  if (stop_fd_ >= 0) ::close(std::exchange(stop_fd_, -1));
}

bool Acceptor::accept_one(int listener) const {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    receiver_(fd);
    return true;
  }
  // Any other error, such as ECONNABORTED, concerns one connection only.
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return true;
  log_warning("admin.connections_wait", std::string("administration: connections wait: ") + std::strerror(errno) +
                                            "; raise the limit on open files (ulimit -n, or LimitNOFILE of a service)");
  return false;
}

void Acceptor::run() {
  std::vector<pollfd> sources = {{stop_fd_, POLLIN, 0}};
  for (const int listener : listeners_) sources.push_back({listener, POLLIN, 0});
  // Waits for the first `count` of the sources. False: stop() has been called.
  const auto wait = [&](size_t count, int timeout_ms) {
    for (pollfd& source : sources) source.revents = 0;
    static_cast<void>(::poll(sources.data(), count, timeout_ms));
    return sources.front().revents == 0;
  };
  while (wait(sources.size(), -1)) {
    // Accepts one connection of each readable listener, so that no listener delays the others.
    const bool accepted = std::all_of(sources.begin() + 1, sources.end(), [&](const pollfd& source) {
      return source.revents == 0 || accept_one(source.fd);
    });
    // The pause watches stop_fd_ alone. The waiting connection would make its listener readable at once.
    if (!accepted && !wait(1, kNoDescriptorsPauseMs)) return;
  }
}

}  // namespace loam
