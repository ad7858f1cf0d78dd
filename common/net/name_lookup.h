// Host names are looked up on threads of their own: a name server that does not answer holds up no event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/net/address.h"
#include "common/net/tcp_socket.h"

namespace loam::net {

/// Lookups that run at once, per transport; more wait for one to end.
inline constexpr size_t kMaxLookups = 8;

/// The lookups of one transport.
///
/// Owner: a transport. Threads: the transport's; only the lookups run on others, which share nothing with the transport
/// but a locked list. Destroying it waits for no lookup: the system's may take half a minute.
class NameLookups {
 public:
  using Found = Result<std::vector<SocketAddress>>;
  using Resolve = std::function<Found(const Address&)>;

  /// `wake` makes the transport's thread call take() soon. Called by lookups' threads, never after the destructor.
  explicit NameLookups(std::function<void()> wake, Resolve look_up = resolve);
  ~NameLookups();
  NameLookups(const NameLookups&) = delete;
  NameLookups& operator=(const NameLookups&) = delete;

  /// Returns the number of the lookup at once. `done` is called by a later take(), unless the number is forgotten.
  uint64_t start(const Address& address, std::function<void(Found)> done);
  void forget(uint64_t number);
  /// Calls `done` of the lookups that have ended; returns their number.
  size_t take();

 private:
  struct Shared;

  static void run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  struct Asked {
    uint64_t number = 0;
    std::function<void(Found)> done;
  };
  std::vector<Asked> asked_;
  uint64_t numbers_ = 0;
};

}  // namespace loam::net
