// What the drivers of the transport share: options, counters, pools, and the links that want something. Internal.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/net/buffer_pool.h"
#include "common/net/link.h"
#include "common/net/transport.h"

namespace loam::net {

/// kInvalidArgument if an option is out of its range.
Status check_options(const TransportOptions& options);

/// Whose turn it is to get a connection that a listener has accepted.
class Turns {
 public:
  explicit Turns(std::span<const Transport::Share> shares) : shares_(shares.begin(), shares.end()) {}
  const Transport::Share& next() { return shares_[turn_++ % shares_.size()]; }

 private:
  const std::vector<Transport::Share> shares_;
  size_t turn_ = 0;
};

class TransportBase : public Transport {
 public:
  const TransportCounters& counters() const final { return counters_; }
  const TransportOptions& options() const final { return options_; }

 protected:
  TransportBase(Scheme scheme, const TransportOptions& options);
  ~TransportBase() override;

  /// The clock of handshake deadlines.
  virtual uint64_t now_ns() const = 0;

  /// kInvalidArgument: an address of another scheme, or a share that is no transport of this one's class or has no
  /// handler.
  Status check_listen(const Address& address, std::span<const Share> shares) const;
  /// kInvalidArgument: an address of another scheme, or without a port; kOverloaded: no more connections are allowed.
  Status check_connect(const Address& address) const;

  Link& adopt(std::unique_ptr<Link> link);
  size_t link_count() const { return links_.size(); }
  bool full() const { return links_.size() >= options_.max_connections; }

  /// Delivers, tells and flushes for all links that want it, until none does; destroys ended ones. Returns the number
  /// of handler calls that are not messages.
  size_t attend_links();
  bool wants_attention() const { return !attention_.empty() || !ended_.empty(); }

  /// Ends links that have not shaken hands in time. Returns the time until the next deadline.
  uint64_t check_handshakes();

  /// Destroys all links without callbacks: for the driver's destructor, while its own members still stand.
  void drop_links();

  TransportCounters counters_;

 private:
  friend class Link;

  Status check_scheme(const Address& address) const;

  const Scheme scheme_;
  const TransportOptions options_;
  Pool<OutFrame> frames_;
  Pool<InBlock> blocks_;
  std::unordered_map<const Link*, std::unique_ptr<Link>> links_;
  std::vector<Link*> attention_, attending_;
  std::vector<Link*> ended_, ending_;
  std::vector<const Link*> greeting_;  // may hold links that are open or gone; swept by check_handshakes()
  uint64_t next_handshake_check_ns_ = 0;
  std::vector<Bytes> messages_;  // of the frame being delivered
};

}  // namespace loam::net
