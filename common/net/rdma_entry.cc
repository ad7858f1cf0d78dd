// What the module shows to the program that loads it.

#include <cerrno>
#include <memory>
#include <utility>

#include <fcntl.h>

#include "common/net/rdma_error.h"
#include "common/net/rdma_module.h"
#include "common/net/rdma_transport_impl.h"

/// The module's one symbol.
extern "C" __attribute__((visibility("default"))) void loam_rdma_make_transport(
    const loam::net::RdmaModuleStamp& caller, const loam::net::TransportOptions& options,
    loam::Result<std::unique_ptr<loam::net::Transport>>& result, loam::LogSink sink) {
  using namespace loam;
  using namespace loam::net;
  if (!(caller == RdmaModuleStamp{})) {
    result =
        Status(StatusCode::kUnavailable, "the module loam-rdma.so is of another release of Loam than this program");
    return;
  }
  set_log_sink(sink);  // of the module, which has its own
  // Without it a child of fork() may take pages away from the device. Needs no more than a flag since Linux 5.12.
  if (const int error = ibv_fork_init(); error != 0) {
    result = verbs_failed("making verbs safe after fork", error);
    return;
  }
  Fd epoll;
  Fd bell;
  if (Status status = Waiter::make_descriptors(epoll, bell); !status.ok()) {
    result = status;
    return;
  }
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) {
    result = verbs_failed("opening rdma_cm", errno);
    return;
  }
  ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  result =
      std::unique_ptr<Transport>(std::make_unique<RdmaTransport>(options, std::move(epoll), std::move(bell), channel));
}
