// The client of memcached. It builds requests in one buffer, sends a batch by one system call, and parses replies in
// place, so that the client stays cheaper than the server.
#include "benchmarks/peers/memcached.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <sys/socket.h>

namespace loam::bench {
namespace {

constexpr std::string_view kEnd = "\r\n";
constexpr size_t kReadBytes = 128 * 1024;
constexpr int kMaxEvents = 64;
/// A server that acknowledges no bytes for this time counts as dead.
constexpr uint64_t kSilenceNs = 15'000'000'000;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("memcached: " + what); }

}  // namespace

MetaAnswer parse_meta_answer(std::string_view bytes) {
  const size_t line_end = bytes.find(kEnd);
  if (line_end == std::string_view::npos) return {};
  const std::string_view line = bytes.substr(0, line_end);
  const size_t line_bytes = line_end + kEnd.size();
  if (line == "HD") return {MetaAnswer::Kind::kStored, {}, line_bytes};
  if (line == "EN") return {MetaAnswer::Kind::kMissing, {}, line_bytes};
  size_t size = 0;
  constexpr std::string_view kValue = "VA ";
  if (!line.starts_with(kValue)) return {MetaAnswer::Kind::kOther, line, line_bytes};
  const auto [end, error] = std::from_chars(line.data() + kValue.size(), line.data() + line.size(), size);
  if (error != std::errc() || end != line.data() + line.size()) return {MetaAnswer::Kind::kOther, line, line_bytes};
  // A value may contain line ends, so only its announced size says where it ends.
  const size_t rest = bytes.size() - line_bytes;
  if (rest < kEnd.size() || rest - kEnd.size() < size) return {};
  if (bytes.substr(line_bytes + size, kEnd.size()) != kEnd) return {MetaAnswer::Kind::kOther, line, line_bytes};
  return {MetaAnswer::Kind::kValue, bytes.substr(line_bytes, size), line_bytes + size + kEnd.size()};
}

MemcachedPeer::MemcachedPeer(const net::Address& address, size_t connections, const Content& content)
    : content_(content), epoll_(::epoll_create1(EPOLL_CLOEXEC)), channels_(connections) {
  const auto resolved = net::resolve(address);
  if (!epoll_ || !resolved.ok()) fail("no epoll, or no address " + address.to_string());
  const net::SocketAddress where = resolved->front();
  for (size_t i = 0; i < channels_.size(); ++i) {
    Channel& channel = channels_[i];
    channel.fd.reset(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!channel.fd || ::connect(channel.fd.get(), where.get(), where.size) != 0) {
      fail("cannot connect to " + address.to_string() + ": " + net::error_text(errno));
    }
    net::tune_socket(channel.fd.get(), kSilenceNs);
    channel.in.resize(kReadBytes);
    watch(i, EPOLL_CTL_ADD, EPOLLIN);
  }
}

void MemcachedPeer::watch(size_t connection, int operation, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection;
  if (::epoll_ctl(epoll_.get(), operation, channels_[connection].fd.get(), &event) != 0) fail("epoll_ctl");
}

void MemcachedPeer::append(Channel& channel, const Operation& operation) const {
  const size_t at = channel.out.size();
  const std::string size = operation.put ? " " + std::to_string(content_.value_bytes()) : std::string();
  const std::string_view tail = operation.put ? std::string_view(size) : std::string_view(" v");
  const size_t value = operation.put ? content_.value_bytes() + kEnd.size() : 0;
  channel.out.resize(at + 3 + kKeyBytes + tail.size() + kEnd.size() + value);
  char* to = channel.out.data() + at;
  std::memcpy(to, operation.put ? "ms " : "mg ", 3);
  write_key(operation.record, to + 3);
  to += 3 + kKeyBytes;
  std::memcpy(to, tail.data(), tail.size());
  std::memcpy(to + tail.size(), kEnd.data(), kEnd.size());
  if (!operation.put) return;
  to += tail.size() + kEnd.size();
  content_.write_value(operation.record, operation.stamp, to);
  std::memcpy(to + content_.value_bytes(), kEnd.data(), kEnd.size());
}

void MemcachedPeer::send(size_t connection, std::span<const Operation> batch) {
  Channel& channel = channels_[connection];
  channel.batch.assign(batch.begin(), batch.end());
  channel.next = 0;
  for (const Operation& operation : batch) append(channel, operation);
  flush(connection);
}

void MemcachedPeer::flush(size_t connection) {
  Channel& channel = channels_[connection];
  const ssize_t size = ::send(channel.fd.get(), channel.out.data() + channel.out_sent,
                              channel.out.size() - channel.out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size < 0 && errno != EAGAIN) fail("it takes no more: " + net::error_text(errno));
  channel.out_sent += size > 0 ? static_cast<size_t>(size) : 0;
  if (channel.out_sent == channel.out.size()) {
    channel.out.clear();
    channel.out_sent = 0;
  }
  // The socket buffer is full. EPOLLOUT reports when it has room, and the rest of the batch is sent then.
  const bool blocked = !channel.out.empty();
  if (blocked == channel.blocked) return;
  channel.blocked = blocked;
  watch(connection, EPOLL_CTL_MOD, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void MemcachedPeer::poll(uint64_t timeout_ns, const std::function<void(size_t, size_t)>& answered) {
  std::array<epoll_event, kMaxEvents> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, static_cast<int>(timeout_ns / 1'000'000));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto connection = static_cast<size_t>(event.data.u64);
    if ((event.events & EPOLLOUT) != 0) flush(connection);
    if ((event.events & ~uint32_t{EPOLLOUT}) == 0) continue;
    const size_t answers = read(channels_[connection]);
    if (answers > 0) answered(connection, answers);
  }
}

size_t MemcachedPeer::read(Channel& channel) {
  const ssize_t size = ::recv(channel.fd.get(), channel.in.data() + channel.in_bytes,
                              channel.in.size() - channel.in_bytes, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return 0;
  if (size <= 0) fail("it has closed a connection");
  channel.in_bytes += static_cast<size_t>(size);
  const size_t before = channel.next;
  size_t at = 0;
  for (;;) {
    const MetaAnswer answer = parse_meta_answer({channel.in.data() + at, channel.in_bytes - at});
    if (answer.kind == MetaAnswer::Kind::kIncomplete) break;
    check(channel, answer);
    at += answer.size_bytes;
  }
  // Keeps the beginning of an incomplete reply for the next read.
  channel.in_bytes -= at;
  if (channel.in_bytes > 0) std::memmove(channel.in.data(), channel.in.data() + at, channel.in_bytes);
  if (channel.in_bytes == channel.in.size()) fail("an answer without end");
  return channel.next - before;
}

void MemcachedPeer::check(Channel& channel, const MetaAnswer& answer) const {
  if (answer.kind == MetaAnswer::Kind::kOther) fail("it answers " + std::string(answer.value));
  if (channel.next == channel.batch.size()) fail("a reply without a request");
  const Operation& operation = channel.batch[channel.next++];
  if (operation.put && answer.kind != MetaAnswer::Kind::kStored) fail("a put that was not stored");
  if (!operation.put && answer.kind == MetaAnswer::Kind::kMissing) fail("a record is gone; give it more memory");
  if (!operation.put && (answer.kind != MetaAnswer::Kind::kValue ||
                         !content_.is_value(operation.record, operation.stamp, answer.value))) {
    fail("a wrong value of record " + std::to_string(operation.record));
  }
}

}  // namespace loam::bench
