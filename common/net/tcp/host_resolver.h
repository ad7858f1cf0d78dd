// Lookups of host names on threads of their own, so that a name server that does not answer blocks no event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/net/tcp/tcp_socket.h"
#include "common/net/transport/address.h"

namespace loam::net {

/// Number of lookups of one transport that may run at the same time. Others wait.
inline constexpr size_t kMaxLookups = 8;

/// Looks up the host names of one transport's connections.
///
/// Owner: a transport. Threads: the transport's. The lookups themselves run on other threads, which share only a
/// locked list with the transport. The destructor does not wait for running lookups, because a lookup of the system
/// may take half a minute.
class HostResolver {
 public:
  using ResolveResult = Result<std::vector<SocketAddress>>;
  using Resolve = std::function<ResolveResult(const Address&)>;

  /// `wake` makes the transport's thread call poll() soon. Threads of lookups call it, but never after the destructor.
  explicit HostResolver(std::function<void()> wake, Resolve look_up = resolve);
  ~HostResolver();
  HostResolver(const HostResolver&) = delete;
  HostResolver& operator=(const HostResolver&) = delete;

  /// Starts a lookup and returns its number at once. A later poll() calls `done`, unless the lookup is cancelled.
  uint64_t submit(const Address& address, std::function<void(ResolveResult)> done);
  /// Prevents the call of `done` for this lookup. If the lookup has not begun, it never runs.
  void cancel(uint64_t number);
  /// Calls `done` for all lookups that have ended, and returns their number.
  size_t poll();

 private:
  struct Shared;

  static void run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  struct PendingLookup {
    uint64_t number = 0;
    std::function<void(ResolveResult)> done;
  };
  std::vector<PendingLookup> pending_;
  uint64_t numbers_ = 0;
};

}  // namespace loam::net
