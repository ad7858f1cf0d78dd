// memcached's meta commands: what the load generator sends and how it reads the answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/epoll.h>

#include "benchmarks/peers/content.h"
#include "benchmarks/peers/peer.h"
#include "common/net/tcp_socket.h"

namespace loam::bench {

/// One answer of memcached: "HD" (stored), "EN" (no such key), "VA <size>" with the value's bytes.
struct MetaAnswer {
  enum class Kind : uint8_t { kIncomplete, kStored, kMissing, kValue, kOther };
  Kind kind = Kind::kIncomplete;  ///< kIncomplete: more bytes are needed
  std::string_view value{};       ///< of kValue; of kOther: the line, an error of memcached
  size_t size_bytes = 0;          ///< of the whole answer; 0 if incomplete
};

/// Reads the first answer in `bytes`. Understands what mg with flag v and ms answer; anything else is kOther.
MetaAnswer parse_meta_answer(std::string_view bytes);

/// Role: connections to a memcached. See Peer.
class MemcachedPeer final : public Peer {
 public:
  /// "127.0.0.1:port". Throws if nobody listens.
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
    bool blocked = false;  // the socket takes no more
    std::vector<Operation> batch;
    size_t next = 0;  // of the batch, to be answered
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
