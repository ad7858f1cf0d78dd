// The entry of the module loam-rdma.so.

#include <cerrno>
#include <memory>
#include <utility>

#include <fcntl.h>

#include "common/net/rdma/rdma_error.h"
#include "common/net/rdma/rdma_module.h"
#include "common/net/rdma/rdma_transport_impl.h"

/// The only symbol that the module exports.
extern "C" __attribute__((visibility("default"))) void loam_rdma_make_transport(
    const loam::net::RdmaModuleAbi& caller, const loam::net::TransportOptions& options,
    loam::Result<std::unique_ptr<loam::net::Transport>>& result, loam::LogSink sink) {
  using namespace loam;
  using namespace loam::net;
  if (!(caller == RdmaModuleAbi{})) {
    result = Status(StatusCode::kUnavailable,
                    "the module loam-rdma.so belongs to another release of Loam than this program");
    return;
  }
  set_log_sink(sink);  // the sink of the module's own log
  // Without this call, copy-on-write after a fork() may move registered pages away from the device. Since Linux 5.12
  // the call only sets a flag.
  if (const int error = ibv_fork_init(); error != 0) {
    result = verbs_failed("making verbs safe after fork", error);
    return;
  }
  Fd epoll;
  Fd wakeup;
  if (Status status = EventWaiter::make_descriptors(epoll, wakeup); !status.ok()) {
    result = status;
    return;
  }
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) {
    result = verbs_failed("opening rdma_cm", errno);
    return;
  }
  ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  result = std::unique_ptr<Transport>(
      std::make_unique<RdmaTransport>(options, std::move(epoll), std::move(wakeup), channel));
}
