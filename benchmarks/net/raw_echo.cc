// The echo of raw_echo.h. It makes the system calls that a batch needs and nothing else, so its rate is the ceiling
// for a transport over TCP.
#include "benchmarks/net/raw_echo.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "benchmarks/harness/measure.h"
#include "common/base/assert.h"

namespace loam::bench {
namespace {

constexpr size_t kBufferBytes = 128 * 1024;
constexpr size_t kHeaderBytes = 8;
constexpr int kMaxEvents = 64;

using Events = std::array<epoll_event, kMaxEvents>;

void check_ok(bool condition) { LOAM_CHECK(condition, "a system call of the raw echo failed"); }

/// One end of a connection: a socket, and the received part of an incomplete message.
struct RawEnd {
  int fd = -1;
  std::vector<char> in = std::vector<char>(kBufferBytes);
  size_t in_bytes = 0;
  std::vector<char> out;
  size_t answers = 0;
  uint64_t sequence = 0;
};

void send_all(RawEnd& end) {
  // Batches are smaller than socket buffers, so this does not wait.
  check_ok(::send(end.fd, end.out.data(), end.out.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(end.out.size()));
  end.out.clear();
}

/// Reads the available bytes and calls `use(payload, size)` for every complete message. False at the end of the stream.
template <class Use>
bool read_messages(RawEnd& end, Use use) {
  const ssize_t size = ::recv(end.fd, end.in.data() + end.in_bytes, end.in.size() - end.in_bytes, MSG_DONTWAIT);
  if (size < 0) return errno == EAGAIN;
  if (size == 0) return false;
  end.in_bytes += static_cast<size_t>(size);
  size_t at = 0;
  while (end.in_bytes - at >= kHeaderBytes) {
    uint64_t payload = 0;
    std::memcpy(&payload, end.in.data() + at, sizeof(payload));
    if (end.in_bytes - at < kHeaderBytes + payload) break;
    use(end.in.data() + at + kHeaderBytes, payload);
    at += kHeaderBytes + payload;
  }
  end.in_bytes -= at;
  if (end.in_bytes > 0) std::memmove(end.in.data(), end.in.data() + at, end.in_bytes);
  return true;
}

void append_message(RawEnd& end, const char* payload, uint64_t size) {
  const size_t at = end.out.size();
  end.out.resize(at + kHeaderBytes + size);
  std::memcpy(end.out.data() + at, &size, sizeof(size));
  std::memcpy(end.out.data() + at + kHeaderBytes, payload, size);
}

void watch(int epoll, RawEnd& end) {
  const int on = 1;
  ::setsockopt(end.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &end;
  check_ok(epoll_ctl(epoll, EPOLL_CTL_ADD, end.fd, &event) == 0);
}

int wait(int epoll, Events& events, uint64_t spin_ns) {
  if (spin_ns > 0) {
    const uint64_t until = wall_ns() + spin_ns;
    do {
      // Yields between two polls, because both threads may share one core.
      const int count = epoll_wait(epoll, events.data(), kMaxEvents, 0);
      if (count != 0) return count;
      sched_yield();
    } while (wall_ns() < until);
  }
  return epoll_wait(epoll, events.data(), kMaxEvents, 100);
}

void serve(int epoll, const std::atomic<bool>& stop, uint64_t spin_ns) {
  Events events;
  while (!stop.load(std::memory_order_relaxed)) {  // relaxed: seen within a wait
    const int count = wait(epoll, events, spin_ns);
    for (int i = 0; i < count; ++i) {
      RawEnd& end = *static_cast<RawEnd*>(events[static_cast<size_t>(i)].data.ptr);
      read_messages(end, [&](const char* payload, uint64_t size) { append_message(end, payload, size); });
      if (!end.out.empty()) send_all(end);
    }
  }
}

class RawClient {
 public:
  RawClient(int epoll, const EchoLoad& load) : epoll_(epoll), load_(load), payload_(load.message_bytes, 'x') {}

  void send_batch(RawEnd& end) {
    for (size_t i = 0; i < load_.batch; ++i) {
      const uint64_t sequence = end.sequence + i;
      std::memcpy(payload_.data(), &sequence, sizeof(sequence));
      append_message(end, payload_.data(), payload_.size());
    }
    send_all(end);
  }

  EchoResult drive(std::vector<RawEnd>& ends) {
    for (RawEnd& end : ends) send_batch(end);
    Events events;
    const uint64_t cpu_from = thread_cpu_ns();
    const uint64_t from = wall_ns();
    uint64_t now = from;
    while (now - from < load_.duration_ns) {
      const int count = wait(epoll_, events, load_.spin_ns);
      for (int i = 0; i < count; ++i) receive(*static_cast<RawEnd*>(events[static_cast<size_t>(i)].data.ptr));
      now = wall_ns();
    }
    const auto calls = static_cast<double>(calls_);
    return {calls * 1e9 / static_cast<double>(now - from), static_cast<double>(thread_cpu_ns() - cpu_from) / calls};
  }

 private:
  void receive(RawEnd& end) {
    const bool open = read_messages(end, [&](const char* payload, uint64_t size) {
      std::memcpy(payload_.data(), &end.sequence, sizeof(end.sequence));
      LOAM_CHECK(size == payload_.size() && std::memcmp(payload, payload_.data(), size) == 0, "a wrong reply");
      ++end.sequence;
      ++end.answers;
      ++calls_;
    });
    check_ok(open);
    if (end.answers < load_.batch) return;
    end.answers = 0;
    send_batch(end);
  }

  const int epoll_;
  const EchoLoad& load_;
  std::vector<char> payload_;
  uint64_t calls_ = 0;
};

}  // namespace

EchoResult raw_echo(const EchoLoad& load) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  socklen_t address_size = sizeof(address);
  check_ok(::bind(listener, where, address_size) == 0 && ::listen(listener, 64) == 0);
  check_ok(::getsockname(listener, where, &address_size) == 0);

  const int server_epoll = epoll_create1(0);
  const int client_epoll = epoll_create1(0);
  // All connections exist before the server thread starts, so the server never accepts while the clock runs.
  std::vector<RawEnd> served(load.connections), ends(load.connections);
  for (size_t i = 0; i < load.connections; ++i) {
    ends[i].fd = ::socket(AF_INET, SOCK_STREAM, 0);
    check_ok(::connect(ends[i].fd, where, address_size) == 0);
    served[i].fd = ::accept(listener, nullptr, nullptr);
    check_ok(served[i].fd >= 0);
    watch(client_epoll, ends[i]);
    watch(server_epoll, served[i]);
  }
  std::atomic<bool> stop{false};
  uint64_t server_cpu_ns = 0;
  std::thread server([&] {
    const uint64_t from = thread_cpu_ns();
    serve(server_epoll, stop, load.spin_ns);
    server_cpu_ns = thread_cpu_ns() - from;
  });
  EchoResult result = RawClient(client_epoll, load).drive(ends);
  stop.store(true, std::memory_order_relaxed);  // relaxed: see serve()
  server.join();
  for (const RawEnd& end : ends) ::close(end.fd);
  for (const RawEnd& end : served) ::close(end.fd);
  for (const int fd : {listener, server_epoll, client_epoll}) ::close(fd);
  const double calls = result.calls_per_s * static_cast<double>(load.duration_ns) / 1e9;
  result.cpu_ns_per_call += static_cast<double>(server_cpu_ns) / calls;
  return result;
}

}  // namespace loam::bench
