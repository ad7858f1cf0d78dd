// Conversion of errors of verbs and rdma_cm into Status, with advice for operators. Internal.
#pragma once

#include <string>
#include <string_view>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/base/status.h"
#include "common/net/transport/address.h"

namespace loam::net {

/// The status kUnavailable of a failed call: "registering 1024 KiB of memory failed: Cannot allocate memory (ENOMEM);
/// …". `what` names the call, `error` is its errno.
Status verbs_failed(std::string_view what, int error);

/// The reason for the end of a connection, from the status of a work completion.
Status completion_failed(ibv_wc_status status, const Address& peer);

/// The reason why a connection could not be opened, as the text after "cannot connect to …: ".
std::string connecting_failed(rdma_cm_event_type event, int status);

}  // namespace loam::net
