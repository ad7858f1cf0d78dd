// Registered memory, the shared receive queue and the completion queue of a device. rdma_device.h says who owns each
// buffer.

#include "common/net/rdma/rdma_device.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/net/rdma/rdma_error.h"

namespace loam::net {
namespace {

/// Receive buffers posted to the device in one call.
constexpr size_t kPostBatch = 64;
/// Buffers that are never used to receive, so that the transport can still send when no more memory can be registered.
constexpr size_t kMinSendBuffers = 16;

void never_block(int descriptor) { ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

void report_event(const std::string& device, const ibv_async_event& event) {
  const std::string port = device + ": port " + std::to_string(event.element.port_num);
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      return log_warning("rdma.port_down", port + " is down; its connections end if it does not come back soon");
    case IBV_EVENT_PORT_ACTIVE:
      return log_info("rdma.port_up", port + " is up");
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
      return log_info("rdma.address_changed", port + ": " + ibv_event_type_str(event.event_type) +
                                                  "; connections of addresses that no longer exist end");
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_QP_FATAL:
      return log_error("rdma.device_failed", device + ": " + ibv_event_type_str(event.event_type) +
                                                 "; its connections end; the kernel's log (dmesg) may say why");
    default:
      return;  // an event of one queue pair, whose connection reports the error
  }
}

}  // namespace

struct RdmaDevice::Slab {
  ~Slab() {
    if (region != nullptr) ibv_dereg_mr(region);
    if (memory != MAP_FAILED) ::munmap(memory, kSlabBuffers * kRdmaBufferBytes);
  }
  void* memory = MAP_FAILED;
  ibv_mr* region = nullptr;
  std::array<RdmaBuffer, kSlabBuffers> buffers;
};

RdmaDevice::RdmaDevice(ibv_context* context, statistics::Counter& allocations)
    : context_(context), allocations_(allocations) {}

RdmaDevice::~RdmaDevice() {
  LOAM_DCHECK(queue_pair_count_ == 0, "a device is destroyed before its queue pairs");
  // The protection domain comes last, because queues and registrations belong to it.
  if (receives_ != nullptr) ibv_destroy_srq(receives_);
  if (queue_ != nullptr) ibv_destroy_cq(queue_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  slabs_.clear();
  memory_windows_.reset();
  if (domain_ != nullptr) ibv_dealloc_pd(domain_);
}

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open(ibv_context* context, statistics::Counter& allocations) {
  std::unique_ptr<RdmaDevice> device(new RdmaDevice(context, allocations));
  LOAM_RETURN_IF_ERROR(device->prepare());
  return device;
}

Status RdmaDevice::prepare() {
  const std::string of = std::string(" on ") + name();
  if (const int error = ibv_query_device(context_, &limits_); error != 0) {
    return verbs_failed("asking for the limits of " + std::string(name()), error);
  }
  // Soft-RoCE accepts more than these limits, hardware does not. The transport never exceeds them.
  const auto at_least_0 = [](int limit) { return static_cast<uint32_t>(std::max(limit, 0)); };
  const uint32_t completions_per_queue_pair = kReceivesPerQueuePair + kSendDepth;
  const uint32_t max_receives = std::min(kMaxReceives, at_least_0(limits_.max_srq_wr));
  // With at most this number of queue pairs neither queue can overflow. An overflow of the completion queue would end
  // all connections of the device.
  max_queue_pairs_ =
      std::min(max_receives / kReceivesPerQueuePair, at_least_0(limits_.max_cqe) / completions_per_queue_pair);
  if (max_queue_pairs_ == 0 || at_least_0(limits_.max_qp_wr) < kSendDepth) {
    return {StatusCode::kUnavailable,
            "the limits of the RDMA device " + std::string(name()) +
                " are too low: " + std::to_string(limits_.max_srq_wr) + " receives in a shared queue, " +
                std::to_string(limits_.max_cqe) + " completions in a queue, " + std::to_string(limits_.max_qp_wr) +
                " sends in a queue pair; a connection needs " + std::to_string(kReceivesPerQueuePair) + ", " +
                std::to_string(completions_per_queue_pair) + " and " + std::to_string(kSendDepth)};
  }
  domain_ = ibv_alloc_pd(context_);
  if (domain_ == nullptr) return verbs_failed("making a protection domain" + of, errno);
  memory_windows_ = std::make_unique<MemoryWindowPool>(*context_, *domain_, limits_, allocations_);
  channel_ = ibv_create_comp_channel(context_);
  if (channel_ == nullptr) return verbs_failed("making a completion channel" + of, errno);
  never_block(channel_->fd);
  never_block(event_descriptor());
  // The queue has its largest size, at most 6 MiB, from the start, because not every device can enlarge a queue.
  queue_ =
      ibv_create_cq(context_, static_cast<int>(max_queue_pairs_ * completions_per_queue_pair), nullptr, channel_, 0);
  if (queue_ == nullptr) return verbs_failed("making a completion queue" + of, errno);
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = max_queue_pairs_ * kReceivesPerQueuePair;
  attributes.attr.max_sge = 1;
  receives_ = ibv_create_srq(domain_, &attributes);
  if (receives_ == nullptr) return verbs_failed("making a shared receive queue" + of, errno);
  return ok_status();
}

Status RdmaDevice::add_slab() {
  constexpr size_t kBytes = kSlabBuffers * kRdmaBufferBytes;
  auto slab = std::make_unique<Slab>();
  slab->memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (slab->memory == MAP_FAILED) return verbs_failed("allocating memory for network messages", errno);
  // The parentheses select the function instead of the macro of the same name, about which clang-tidy warns.
  slab->region = (ibv_reg_mr)(domain_, slab->memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  if (slab->region == nullptr) {
    return verbs_failed("registering " + std::to_string(kBytes / 1024) + " KiB of memory with " + name(), errno);
  }
  allocations_.add(1);
  auto* at = static_cast<std::byte*>(slab->memory);
  for (RdmaBuffer& buffer : slab->buffers) {
    buffer = {at, slab->region->lkey};
    at += kRdmaBufferBytes;
    free_.push_back(&buffer);
  }
  slabs_.push_back(std::move(slab));
  return ok_status();
}

Status RdmaDevice::add_queue_pair() {
  const uint32_t wanted = (queue_pair_count_ + 1) * kReceivesPerQueuePair;
  if (queue_pair_count_ >= max_queue_pairs_) {
    return {StatusCode::kOverloaded, std::string(name()) + " has " + std::to_string(queue_pair_count_) +
                                         " connections of this thread, the limit of its queues; start more network"
                                         " threads"};
  }
  // Step 1: buffers that remain for sends. Step 2: the receive buffers of the new queue pair. They are posted before
  // the queue pair exists, so the first message of the peer finds one.
  while (free_.size() + send_buffers_in_use_ < kMinSendBuffers) LOAM_RETURN_IF_ERROR(add_slab());
  while (posted_ < wanted) {
    if (free_.empty() || free_.size() + send_buffers_in_use_ <= kMinSendBuffers) LOAM_RETURN_IF_ERROR(add_slab());
    repost(*free_.back());
    free_.pop_back();
    ++posted_;
  }
  flush_receives();
  ++queue_pair_count_;
  return ok_status();
}

RdmaBuffer* RdmaDevice::acquire() {
  if (free_.empty()) {
    if (send_buffers_in_use_ >= kMaxSendBuffers) return nullptr;
    no_more_memory_ = !add_slab().ok();
    // At least kMinSendBuffers are in use then, and their completions will return some.
    if (no_more_memory_) return nullptr;
  }
  RdmaBuffer* buffer = free_.back();
  free_.pop_back();
  ++send_buffers_in_use_;
  return buffer;
}

void RdmaDevice::release(RdmaBuffer& buffer) {
  --send_buffers_in_use_;
  free_.push_back(&buffer);
}

void RdmaDevice::repost(RdmaBuffer& buffer) {
  to_post_.push_back(&buffer);
  if (to_post_.size() >= kPostBatch) flush_receives();
}

void RdmaDevice::flush_receives() {
  if (to_post_.empty()) return;
  std::array<ibv_recv_wr, kPostBatch> requests;
  std::array<ibv_sge, kPostBatch> pieces;
  const size_t count = to_post_.size();
  for (size_t i = 0; i < count; ++i) {
    pieces[i] = {reinterpret_cast<uintptr_t>(to_post_[i]->bytes), kRdmaBufferBytes, to_post_[i]->key};
    requests[i] = {reinterpret_cast<uintptr_t>(to_post_[i]), i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
  }
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(receives_, requests.data(), &bad);
  // A post writes into a queue in the process's memory. It fails only if the queue is full, and posted_ never exceeds
  // its size.
  LOAM_CHECK(error == 0, "a shared receive queue accepts the number of buffers for which it was made");
  to_post_.clear();
}

void RdmaDevice::drain_notifications() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned taken = 0;
  while (ibv_get_cq_event(channel_, &queue, &context) == 0) ++taken;
  // Acknowledges all at once. The call takes a lock, and ibv_destroy_cq() would wait for ever for a missing one.
  if (taken > 0) ibv_ack_cq_events(queue_, taken);
}

void RdmaDevice::drain_events() {
  ibv_async_event event{};
  while (ibv_get_async_event(context_, &event) == 0) {
    report_event(std::string("RDMA device ") + name(), event);
    ibv_ack_async_event(&event);
  }
}

}  // namespace loam::net
