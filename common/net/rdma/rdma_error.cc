// Error messages of verbs and rdma_cm. Each names the usual causes, because an errno alone does not tell an operator
// what to change.

#include "common/net/rdma/rdma_error.h"

#include <cerrno>
#include <utility>

#include <sys/resource.h>

#include "common/net/tcp/tcp_socket.h"

namespace loam::net {
namespace {

std::string locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur / 1024) + " KiB";
}

}  // namespace

Status verbs_failed(std::string_view what, int error) {
  std::string message(what);
  message += " failed: " + error_text(error);
  if (error == ENOMEM || error == EAGAIN) {
    message +=
        "; the limit of locked memory is " + locked_memory() +
        ": raise it with 'ulimit -l unlimited', LimitMEMLOCK=infinity in a systemd unit, or memlock in limits.conf";
  } else if (error == ENODEV || error == ENOENT) {
    message +=
        "; there is no RDMA device: 'rdma link' lists the devices, and the kernel needs the device's driver and the"
        " module rdma_ucm";
  } else if (error == EACCES || error == EPERM) {
    message += "; the process needs the right to open the devices under /dev/infiniband";
  }
  return {StatusCode::kUnavailable, std::move(message)};
}

Status completion_failed(ibv_wc_status status, const Address& peer) {
  std::string message = "the connection to " + peer.to_string() + " broke: ";
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      message +=
          "the peer does not acknowledge (retries exhausted); is it alive, does the link carry frames of the"
          " port's MTU, and is the GID right?";
      break;
    case IBV_WC_LOC_QP_OP_ERR:
      message += "the device can no longer send; does the address of this connection, and so its GID, still exist?";
      break;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      message += "the peer posts no receives";
      break;
    case IBV_WC_REM_ACCESS_ERR:
      return {StatusCode::kMalformed, message + "this side wrote to memory that the peer does not offer"};
    default:
      message += std::string("work completion with '") + ibv_wc_status_str(status) + "'";
      break;
  }
  return {StatusCode::kUnavailable, std::move(message)};
}

std::string connecting_failed(rdma_cm_event_type event, int status) {
  const int error = status < 0 ? -status : 0;
  switch (event) {
    case RDMA_CM_EVENT_REJECTED:
      return "connection refused; does the server run, and listen there?";
    case RDMA_CM_EVENT_ADDR_ERROR:
      if (error == ENODEV) return "no RDMA device has a route; check with 'rdma link' and 'ip route get'";
      return "the address cannot be resolved: " + error_text(error == 0 ? EHOSTUNREACH : error);
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "there is no route: " + error_text(error == 0 ? ENETUNREACH : error);
    case RDMA_CM_EVENT_UNREACHABLE:
      return "no reply" + (error == 0 ? std::string() : ": " + error_text(error)) + "; are the host and the link up?";
    default:
      return std::string(rdma_event_str(event)) + (error == 0 ? std::string() : ": " + error_text(error));
  }
}

}  // namespace loam::net
