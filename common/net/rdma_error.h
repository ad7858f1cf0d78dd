// Failures of verbs and of rdma_cm as Status: what happened, and what an operator can do. Internal.
#pragma once

#include <string>
#include <string_view>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/base/status.h"
#include "common/net/address.h"

namespace loam::net {

/// "registering 1024 KiB of memory failed: Cannot allocate memory (ENOMEM); …", kUnavailable. `error` is an errno.
Status verbs_failed(std::string_view what, int error);

/// Why a connection ended, by the status of a work completion.
Status completion_failed(ibv_wc_status status, const Address& peer);

/// Why a way to `peer` was not found or not opened, for "cannot connect to …: ".
std::string connecting_failed(rdma_cm_event_type event, int status);

}  // namespace loam::net
