// One connection over a TCP socket: connecting, reading, writing. tcp_transport.cc has listening and polling.

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "common/net/tcp/tcp_transport_impl.h"

namespace loam::net {
namespace {

/// Frames passed to the kernel in one system call.
constexpr size_t kMaxPieces = 64;
/// Reads from one socket in one round, so that one busy peer does not delay the others.
constexpr int kMaxReads = 4;

}  // namespace

TcpConnection::TcpConnection(TcpTransport& transport, Handler& handler, Address peer, bool announced)
    : ConnectionBase(transport, handler, std::move(peer), announced),
      Source(Kind::kConnection),
      transport_(transport) {}

TcpConnection::~TcpConnection() {
  if (lookup_ != 0) transport_.host_resolver().cancel(lookup_);
  if (fd_ && watched_ != 0) transport_.watch(fd_.get(), EPOLL_CTL_DEL, 0, nullptr);
  // The peer may not have read the goodbye yet, so the socket is closed later.
  if (fd_ && state() == State::kEnded) transport_.linger(std::move(fd_));
}

void TcpConnection::watch(uint32_t events) {
  if (events == watched_) return;
  transport_.watch(fd_.get(), watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, events, this);
  watched_ = events;
}

void TcpConnection::connect(std::vector<SocketAddress> candidates) {
  std::reverse(candidates.begin(), candidates.end());
  candidates_ = std::move(candidates);
  try_next(0);
}

void TcpConnection::connect_by_name() {
  lookup_ = transport_.host_resolver().submit(peer(), [this](HostResolver::ResolveResult found) {
    if (state() == State::kEnded) return;
    if (found.ok()) return connect(std::move(found).value());
    transport_.counters_.connections_refused.add(1);
    fail({found.code(), "cannot connect: " + std::string(found.status().message())});
  });
}

void TcpConnection::try_next(int last_error) {
  while (!candidates_.empty()) {
    const SocketAddress where = candidates_.back();
    candidates_.pop_back();
    if (fd_) transport_.watch(fd_.get(), EPOLL_CTL_DEL, 0, nullptr);
    watched_ = 0;
    fd_.reset(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd_) tune_socket(fd_.get(), host().options().peer_timeout_ns);
    // The socket becomes writable when the connect has ended. finish_connect() then reads its result.
    if (fd_ && (::connect(fd_.get(), where.get(), where.size) == 0 || errno == EINPROGRESS)) {
      watch(EPOLLOUT);
      return;
    }
    last_error = errno;
  }
  transport_.counters_.connections_refused.add(1);
  std::string message = "cannot connect to " + peer().to_string() + ": " + error_text(last_error);
  if (last_error == ECONNREFUSED) message += "; does the server run, and listen there?";
  fail({StatusCode::kUnavailable, std::move(message)});
}

void TcpConnection::finish_connect() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  // The next address of the host gets its attempt. The deadline of the handshake limits all attempts together.
  if (error != 0) {
    try_next(error);
    return;
  }
  candidates_.clear();
  watch(EPOLLIN);
  start(true);
}

void TcpConnection::accepted(Fd fd) {
  fd_ = std::move(fd);
  tune_socket(fd_.get(), host().options().peer_timeout_ns);
  watch(EPOLLIN);
  start(false);
}

void TcpConnection::on_event(uint32_t events) {
  if (state() == State::kEnded) return;
  if (state() == State::kOpening) {
    finish_connect();
    return;
  }
  if ((events & EPOLLOUT) != 0) {
    blocked_ = false;
    watch(EPOLLIN);
    transmit();
  }
  // After an error, recv() first returns the bytes that have arrived, and then the error.
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read();
}

void TcpConnection::read() {
  for (int turn = 0; turn < kMaxReads && state() != State::kEnded; ++turn) {
    const MutableBytes space = input_space();
    const ssize_t size = ::recv(fd_.get(), space.data(), space.size(), 0);
    if (size > 0) {
      received(static_cast<size_t>(size));
      // A short read means that the socket is empty. A complete greeting fills its space exactly, so the loop continues
      // with the frames behind it.
      if (static_cast<size_t>(size) < space.size()) return;
      continue;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size == 0) {
      fail({StatusCode::kUnavailable, "the peer " + peer().to_string() + " closed the connection without a goodbye"});
    } else {
      fail({StatusCode::kUnavailable, "the connection to " + peer().to_string() + " broke: " + error_text(errno)});
    }
  }
}

void TcpConnection::transmit() {
  std::array<iovec, kMaxPieces> pieces;
  while (!blocked_) {
    const size_t count = gather(pieces.data(), pieces.size());
    if (count == 0) return;
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) offered += pieces[i].iov_len;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t size = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    transport_.counters_.flushes.add(1);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno != EAGAIN) {
      // The last messages of the peer and its goodbye may still be unread. read() reads them and then finds the end.
      blocked_ = true;
      return;
    }
    if (size > 0) sent(static_cast<size_t>(size));
    if (size < 0 || static_cast<size_t>(size) < offered) {
      blocked_ = true;
      // epoll reports a writable socket in every round, so EPOLLOUT is watched only while the socket is full.
      if (state() != State::kEnded) watch(EPOLLIN | EPOLLOUT);
    }
  }
}

}  // namespace loam::net
