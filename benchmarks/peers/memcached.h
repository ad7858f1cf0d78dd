// Client of memcached's meta commands for the load generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/epoll.h>

#include "benchmarks/peers/content.h"
#include "benchmarks/peers/peer.h"
#include "common/net/tcp/tcp_socket.h"

namespace loam::bench {

/// One reply of memcached: "HD" (stored), "EN" (no such key), or "VA <size>" with the bytes of the value.
struct MetaAnswer {
  enum class Kind : uint8_t { kIncomplete, kStored, kMissing, kValue, kOther };
  Kind kind = Kind::kIncomplete;  ///< kIncomplete: more bytes are needed
  std::string_view value{};       ///< the value; for kOther the line, which is an error of memcached
  size_t size_bytes = 0;          ///< size of the whole reply; 0 if incomplete
};

/// Parses the first reply in `bytes`. Knows the replies to mg with flag v and to ms; every other line is kOther.
MetaAnswer parse_meta_answer(std::string_view bytes);

/// Connections to a memcached. Peer describes its contract.
class MemcachedPeer final : public Peer {
 public:
  /// Connects to the address "127.0.0.1:port". Throws if no server listens there.
  MemcachedPeer(const net::Address& address, size_t connections, const Content& content);

  size_t connections() const override { return channels_.size(); }
  void send(size_t connection, std::span<const Operation> batch) override;
  void poll(uint64_t timeout_ns, const std::function<void(size_t, size_t)>& answered) override;

 private:
  struct Channel {
    net::Fd fd;
    std::vector<char> in;
    size_t in_bytes = 0;
    std::vector<char> out;
    size_t out_sent = 0;
    bool blocked = false;  // the send buffer of the socket is full
    std::vector<Operation> batch;
    size_t next = 0;  // index in `batch` of the operation whose reply comes next
  };

  void append(Channel& channel, const Operation& operation) const;
  void flush(size_t connection);
  void watch(size_t connection, int operation, uint32_t events);
  size_t read(Channel& channel);
  void check(Channel& channel, const MetaAnswer& answer) const;

  const Content& content_;
  net::Fd epoll_;
  std::vector<Channel> channels_;
};

}  // namespace loam::bench
