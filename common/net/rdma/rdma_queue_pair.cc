// The queue pair of one connection: opening by rdma_cm, work requests, completions, the end. rdma_queue_pair.h has its
// states and the rule for completions.

#include "common/net/rdma/rdma_queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>

#include "common/base/assert.h"
#include "common/net/rdma/rdma_error.h"
#include "common/net/rdma/rdma_transport_impl.h"

namespace loam::net {
namespace {

/// Bytes of a send that the device should copy into the request. If a device cannot, the queue pair uses none.
constexpr uint32_t kWantedInline = 220;
constexpr int kResolveTimeoutMs = 2'000;
/// Number of retries of a send before the peer counts as dead. Not 7, the highest value of verbs, which Soft-RoCE
/// treats as unlimited.
constexpr uint8_t kRetries = 6;
/// Number of retries after receiver-not-ready. Credits prevent this error; the limit ends the connection if it occurs
/// anyway.
constexpr uint8_t kNotReadyRetries = 3;
/// Wait before such a retry: 0.64 ms, instead of the 655 ms that rdma_cm sets.
constexpr uint8_t kNotReadyTimer = 12;
/// The wr_id of sends. The wr_id of a receive is the address of its buffer, which is even.
constexpr uint64_t kSendMark = 1;

/// The time-out of an acknowledgement, as the exponent e of 4.096 us * 2^e. It is the largest with which all retries
/// fit into half of `timeout_ns`, also if the device waits four times as long, as the specification permits.
uint8_t ack_timeout(uint64_t timeout_ns) {
  const uint64_t units = timeout_ns / 2 / 4 / (kRetries + 1) / 4'096;
  return static_cast<uint8_t>(std::clamp(static_cast<int>(std::bit_width(units)), 11, 21) - 1);
}

/// Size of the common begin of Greeting and RdmaHello.
constexpr size_t kSharedBytes = offsetof(RdmaHello, buffer_bytes);

RdmaHello hello_of(const Greeting& greeting) {
  RdmaHello hello;
  std::memcpy(static_cast<void*>(&hello), &greeting, kSharedBytes);
  return hello;
}

/// The greeting of an event. An event without a hello has a greeting that check_greeting() refuses.
Greeting greeting_of(const CmEvent& event) {
  Greeting greeting;
  greeting.magic = 0;
  if (event.has_hello) std::memcpy(static_cast<void*>(&greeting), &event.hello, kSharedBytes);
  return greeting;
}

}  // namespace

RdmaQueuePair::RdmaQueuePair(RdmaTransport& transport, rdma_cm_id* id)
    : CmSource(Kind::kQueuePair), transport_(transport), id_(id) {
  if (id_ != nullptr) id_->context = static_cast<CmSource*>(this);
}

RdmaQueuePair::~RdmaQueuePair() {
  close();
  // The peer's device loses its access before the blocks are used again.
  for (RdmaBlock* block : exposed_) device_->memory_windows().release_bound(*block);
  if (has_queue_pair_) {
    device_->queue_pairs.erase(id_->qp->qp_num);
    rdma_destroy_qp(id_);
    device_->remove_queue_pair();
  }
  // The queue pair is destroyed, so the device reads no buffer any more.
  for (const StagedSend& staged : staged_) {
    if (staged.buffer != nullptr) device_->release(*staged.buffer);
  }
  for (; sent_begin_ != sent_end_; ++sent_begin_) {
    if (RdmaBuffer* buffer = sent_[sent_begin_ % kSendDepth].buffer; buffer != nullptr) device_->release(*buffer);
  }
  if (id_ != nullptr) rdma_destroy_id(id_);
}

// ---- opening --------------------------------------------------------------------------------------------------------

Status RdmaQueuePair::resolve(const SocketAddress& where) {
  if (rdma_create_id(transport_.channel(), &id_, static_cast<CmSource*>(this), RDMA_PS_TCP) != 0) {
    return verbs_failed("making an identifier of rdma_cm", errno);
  }
  SocketAddress to = where;
  if (rdma_resolve_addr(id_, nullptr, to.get(), kResolveTimeoutMs) != 0) {
    return {StatusCode::kUnavailable, connecting_failed(RDMA_CM_EVENT_ADDR_ERROR, -errno)};
  }
  return ok_status();
}

Status RdmaQueuePair::make_queue_pair() {
  LOAM_ASSIGN_OR_RETURN(device_, transport_.device_of(id_->verbs));
  LOAM_RETURN_IF_ERROR(device_->add_queue_pair());
  ibv_qp_init_attr attributes{};
  // A device that cannot copy that many bytes into a request refuses with EINVAL, and gets a second attempt without.
  for (const uint32_t max_inline : {kWantedInline, 0u}) {
    attributes = {};
    attributes.send_cq = device_->completion_queue();
    attributes.recv_cq = device_->completion_queue();
    attributes.srq = device_->receive_queue();
    attributes.cap.max_send_wr = kSendDepth;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_inline_data = max_inline;
    attributes.qp_type = IBV_QPT_RC;
    has_queue_pair_ = rdma_create_qp(id_, device_->domain(), &attributes) == 0;
    if (has_queue_pair_ || errno != EINVAL) break;
  }
  if (!has_queue_pair_) {
    const int error = errno;
    // The receive buffers stay posted for the next queue pair.
    device_->remove_queue_pair();
    return verbs_failed(std::string("making a queue pair on ") + device_->name(), error);
  }
  // The device may provide more than was requested.
  max_inline_ = std::min(attributes.cap.max_inline_data, kWantedInline);
  device_->queue_pairs.emplace(id_->qp->qp_num, this);
  state_ = State::kReady;
  return ok_status();
}

Status RdmaQueuePair::greet(const Greeting& greeting, bool active) {
  active_ = active;
  const RdmaHello hello = hello_of(greeting);
  rdma_conn_param parameters{};
  parameters.private_data = &hello;
  parameters.private_data_len = sizeof(hello);
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kNotReadyRetries;
  // An old kernel does not have this option and uses its own time-out.
  uint8_t timeout = ack_timeout(transport_.options().peer_timeout_ns);
  static_cast<void>(rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
  if (greeting.kind == GreetingKind::kReject) {
    state_ = State::kClosed;
    if (rdma_reject(id_, &hello, sizeof(hello)) == 0) return ok_status();
    return verbs_failed("refusing a connection", errno);
  }
  state_ = State::kOpening;
  if (active ? rdma_connect(id_, &parameters) == 0 : rdma_accept(id_, &parameters) == 0) return ok_status();
  const int error = errno;
  state_ = State::kClosed;
  return verbs_failed(active ? "asking for a connection" : "accepting a connection", error);
}

Status RdmaQueuePair::check_hello(const RdmaHello& hello) {
  // The fields of another protocol version may differ, so the check of the greeting refuses that peer instead.
  if (hello.magic != kMagic || hello.protocol_version != transport_.options().protocol_version) return ok_status();
  if (hello.buffer_bytes < 1024 || hello.buffers_granted < 2) {
    return {StatusCode::kMalformed, "a greeting that grants " + std::to_string(hello.buffers_granted) +
                                        " messages of " + std::to_string(hello.buffer_bytes) + " bytes"};
  }
  peer_buffer_bytes_ = std::min<uint32_t>(hello.buffer_bytes, kRdmaBufferBytes);
  peer_granted_ = credits_ = std::min<uint32_t>(hello.buffers_granted, UINT16_MAX);
  return ok_status();
}

void RdmaQueuePair::opened() {
  if (state_ != State::kOpening) return;
  state_ = State::kOpen;
  ibv_qp_attr attributes{};
  attributes.min_rnr_timer = kNotReadyTimer;
  // A failure is harmless, because the option only shortens a wait that should not occur.
  static_cast<void>(ibv_modify_qp(id_->qp, &attributes, IBV_QP_MIN_RNR_TIMER));
  transport_.note_ready(*this);
}

void RdmaQueuePair::established(const CmEvent& event) {
  opened();
  if (!active_ || connection_ == nullptr) return;
  const Status status = event.has_hello ? check_hello(event.hello) : ok_status();
  return status.ok() ? connection_->greeted(greeting_of(event)) : connection_->connection_failed(status);
}

void RdmaQueuePair::on_cm_event(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:  // kFinding: the device is known, and the route is next
      if (connection_ == nullptr || rdma_resolve_route(id_, kResolveTimeoutMs) == 0) return;
      return connection_->try_next_address(connecting_failed(RDMA_CM_EVENT_ROUTE_ERROR, -errno));
    case RDMA_CM_EVENT_ROUTE_RESOLVED:  // the connection makes the queue pair (kReady) and greets (kOpening)
      if (connection_ != nullptr) connection_->route_resolved();
      return;
    case RDMA_CM_EVENT_CONNECT_REQUEST: {  // on the accepting side, which has made the queue pair (kReady)
      const Status status = event.has_hello ? check_hello(event.hello) : ok_status();
      return status.ok() ? connection_->greeted(greeting_of(event)) : connection_->connection_failed(status);
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      return established(event);
    case RDMA_CM_EVENT_REJECTED:
      state_ = State::kClosed;
      if (connection_ == nullptr) return;
      // A rejection by Loam carries a greeting with the reason. Without one no Loam server listens at this address.
      if (event.has_hello && event.hello.magic == kMagic) return connection_->greeted(greeting_of(event));
      return connection_->try_next_address(connecting_failed(event.type, event.status));
    case RDMA_CM_EVENT_DISCONNECTED:
      // Messages that arrived before the end may still be in the completion queue.
      if (device_ != nullptr) transport_.drain(*device_);
      [[fallthrough]];
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return report_error(peer_end_status());
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      state_ = State::kClosed;
      return report_error({StatusCode::kUnavailable, "the RDMA device was removed"});
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      state_ = State::kClosed;
      if (connection_ != nullptr) connection_->try_next_address(connecting_failed(event.type, event.status));
      return;
    default:
      return;  // events of multicast, and changes of addresses that do not break a queue pair
  }
}

/// Closes the queue pair, and returns the reason for an end without a goodbye.
Status RdmaQueuePair::peer_end_status() {
  // A forbidden memory access of the peer's device ends both queue pairs. On this side only the error state of the
  // queue pair shows it.
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const bool violated = state_ == State::kOpen && has_queue_pair_ && !disconnected_ &&
                        ibv_query_qp(id_->qp, &attributes, IBV_QP_STATE, &initial) == 0 &&
                        attributes.qp_state == IBV_QPS_ERR;
  close();
  if (violated) return {StatusCode::kMalformed, "the peer accessed memory that this side does not offer"};
  return {StatusCode::kUnavailable, "the peer closed the connection without a goodbye"};
}

void RdmaQueuePair::report_error(const Status& status) {
  if (connection_ != nullptr) connection_->connection_failed(status);
}

// ---- sending --------------------------------------------------------------------------------------------------------

size_t RdmaQueuePair::room(bool final_send) const {
  if (state_ == State::kClosed || device_ == nullptr) return 0;
  if (final_send) return kSendDepth - std::min<size_t>(staged_.size(), kSendDepth);
  if (state_ != State::kOpen) return 0;
  // push() and probe() keep the last send free for a message that only gives back credits. So such a message need not
  // wait for a completion when one-sided writes, which carry no credits, fill the send queue.
  const size_t posts = send_room() - std::min(send_room(), 1u);
  const size_t most = std::min<size_t>(credits_, posts);
  return most - std::min(most, staged_.size());
}

bool RdmaQueuePair::stage(Bytes bytes, const RemotePlace* where) {
  RdmaBuffer* buffer = device_->acquire();
  if (buffer == nullptr) {
    transport_.note_starved(*this);
    return false;
  }
  std::memcpy(buffer->bytes, bytes.data(), bytes.size());
  StagedSend staged{.buffer = buffer, .bytes = static_cast<uint32_t>(bytes.size())};
  if (where != nullptr) {
    staged.work = Work::kWrite;
    staged.where = *where;
  }
  staged_.push_back(staged);
  return true;
}

RdmaBlock* RdmaQueuePair::expose(size_t size, uint32_t& key) {
  if (state_ != State::kOpen) return nullptr;
  RdmaBlock* block = device_->memory_windows().acquire(size);
  if (block == nullptr) return nullptr;
  key = block->key = ibv_inc_rkey(block->window->rkey);
  exposed_.push_back(block);
  staged_.push_back({.work = Work::kBind, .bytes = static_cast<uint32_t>(size), .block = block});
  transport_.note_ready(*this);
  return block;
}

void RdmaQueuePair::retract(RdmaBlock& block) {
  if (state_ != State::kOpen) return;
  staged_.push_back({.work = Work::kInvalidate, .block = &block});
  transport_.note_ready(*this);
}

void RdmaQueuePair::prepare(ibv_send_wr& request, ibv_sge& piece, const StagedSend& staged) {
  request = {};
  request.wr_id = kSendMark;
  PostedSend& sent = sent_[sent_end_++ % kSendDepth];
  sent = {.buffer = staged.buffer};
  if (staged.buffer != nullptr) {
    piece = {reinterpret_cast<uintptr_t>(staged.buffer->bytes), staged.bytes, staged.buffer->key};
    request.sg_list = &piece;
    request.num_sge = 1;
    if (staged.bytes <= max_inline_) request.send_flags |= IBV_SEND_INLINE;
  }
  switch (staged.work) {
    case Work::kSend:
      request.opcode = IBV_WR_SEND_WITH_IMM;
      request.imm_data = htonl(std::exchange(credits_to_return_, 0));
      if (staged.buffer != nullptr) --credits_;
      break;
    case Work::kWrite:
      request.opcode = IBV_WR_RDMA_WRITE;
      request.wr.rdma.remote_addr = staged.where.address;
      request.wr.rdma.rkey = staged.where.key;
      transport_.counters_.direct_writes.add(1);
      transport_.counters_.direct_bytes.add(staged.bytes);
      break;
    case Work::kBind:
      request.opcode = IBV_WR_BIND_MW;
      request.bind_mw.mw = staged.block->window;
      request.bind_mw.rkey = staged.block->key;
      request.bind_mw.bind_info = {staged.block->registration, reinterpret_cast<uintptr_t>(staged.block->memory.data()),
                                   staged.bytes, IBV_ACCESS_REMOTE_WRITE};
      break;
    case Work::kInvalidate:
      request.opcode = IBV_WR_LOCAL_INV;
      request.invalidate_rkey = staged.block->key;
      sent.block = staged.block;
      break;
  }
  // A completion costs time, so only a send that needs one reports it: each kSignalEvery-th, so that sent_ never fills
  // with sends that report nothing; an invalidation, whose completion frees its block; the last send of an ended
  // connection, after which the queue pair is destroyed; and every send while buffers are scarce.
  sent.signalled = ++unsignalled_ >= kSignalEvery || sent.block != nullptr || (final_send_ && staged_.empty()) ||
                   device_->short_of_buffers();
  if (sent.signalled) {
    request.send_flags |= IBV_SEND_SIGNALED;
    ++awaited_;
    unsignalled_ = 0;
  }
}

void RdmaQueuePair::push(bool final_send) {
  final_send_ |= final_send;
  if (state_ != State::kOpen) return;
  std::array<ibv_send_wr, kSendDepth> requests;
  std::array<ibv_sge, kSendDepth> pieces;
  size_t count = 0;
  while (!staged_.empty() && can_post(staged_.front()) && send_room() > 1) {
    const StagedSend staged = staged_.front();
    staged_.pop_front();
    prepare(requests[count], pieces[count], staged);
    ++count;
  }
  if (count == 0) {
    // Nothing carries the credits, so they get a message without bytes, which takes no credit of the peer.
    if (!should_return_credits() || send_room() == 0) return;
    prepare(requests[0], pieces[0], {});
    count = 1;
  }
  // The receive buffers must be posted before the message that gives back their credits.
  device_->flush_receives();
  post(std::span(requests).first(count));
}

void RdmaQueuePair::probe() {
  if (state_ != State::kOpen) return;
  silent_probes_ = awaited_ > 0 ? silent_probes_ + 1 : 0;
  // The status is that of a device whose retries are exhausted.
  if (silent_probes_ == kMaxSilentProbes) return give_up(IBV_WC_RETRY_EXC_ERR);
  if (awaited_ > 0 || send_room() <= 1) return;
  ibv_send_wr request{};
  request.wr_id = kSendMark;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  sent_[sent_end_++ % kSendDepth] = {.signalled = true};
  ++awaited_;
  unsignalled_ = 0;
  post(std::span(&request, 1));
}

void RdmaQueuePair::post(std::span<ibv_send_wr> requests) {
  for (size_t i = 0; i + 1 < requests.size(); ++i) requests[i].next = &requests[i + 1];
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id_->qp, requests.data(), &bad);
  transport_.counters_.flushes.add(1);
  transport_.counters_.work_requests.add(requests.size());
  if (error != 0) {
    close();
    return report_error(verbs_failed("sending", error));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    // The memory window has its new key only once the bind is posted.
    if (requests[i].opcode == IBV_WR_BIND_MW) requests[i].bind_mw.mw->rkey = requests[i].bind_mw.rkey;
    // The post has copied the bytes of an inline send, so its buffer is free.
    if ((requests[i].send_flags & IBV_SEND_INLINE) == 0) continue;
    PostedSend& sent = sent_[(sent_end_ - requests.size() + i) % kSendDepth];
    device_->release(*std::exchange(sent.buffer, nullptr));
    transport_.counters_.inline_sends.add(1);
  }
}

// ---- completions ----------------------------------------------------------------------------------------------------

void RdmaQueuePair::on_received(RdmaBuffer& buffer, const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return give_up(completion.status);
  if (state_ == State::kClosed) return;
  opened();  // the first message of the peer may arrive before the event RDMA_CM_EVENT_ESTABLISHED
  const uint32_t returned_credits = (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(completion.imm_data) : 0;
  // A peer gives back only credits that were used, and every message has bytes or credits.
  if (returned_credits > peer_granted_ - std::min(credits_, peer_granted_) ||
      (returned_credits == 0 && completion.byte_len == 0)) {
    close();
    return report_error({StatusCode::kMalformed, "the peer gives back " + std::to_string(returned_credits) +
                                                     " credits, and " + std::to_string(peer_granted_ - credits_) +
                                                     " were in use"});
  }
  credits_ += returned_credits;
  if (completion.byte_len > 0 && credits_to_return_ >= kBuffersGranted) {
    close();
    return report_error({StatusCode::kMalformed, "the peer sent more messages than it had credits for"});
  }
  if (returned_credits > 0) transport_.note_ready(*this);
  if (completion.byte_len == 0) return;
  if (connection_ != nullptr) connection_->receive({buffer.bytes, completion.byte_len});
  ++credits_to_return_;  // only now: a message sent by receive() must not give back the credit of this buffer
  if (should_return_credits()) transport_.note_ready(*this);
}

void RdmaQueuePair::on_sent(ibv_wc_status status) {
  // Earlier sends may or may not be complete. The destructor releases their buffers.
  if (status != IBV_WC_SUCCESS) return give_up(status);
  // The completion covers all sends up to the first signalled one in the ring, because a queue pair completes its sends
  // in their order.
  --awaited_;
  silent_probes_ = 0;
  while (sent_begin_ != sent_end_) {
    const PostedSend sent = sent_[sent_begin_++ % kSendDepth];
    if (sent.buffer != nullptr) device_->release(*sent.buffer);
    if (sent.block != nullptr) {
      std::erase(exposed_, sent.block);
      device_->memory_windows().release_invalidated(*sent.block);
    }
    if (sent.signalled) break;
  }
  transport_.note_ready(*this);
}

// ---- the end --------------------------------------------------------------------------------------------------------

void RdmaQueuePair::close() {
  if (has_queue_pair_ && !disconnected_ && (state_ == State::kOpen || state_ == State::kOpening)) {
    disconnected_ = true;
    rdma_disconnect(id_);  // fails if the peer has disconnected first
  }
  state_ = State::kClosed;
}

void RdmaQueuePair::give_up(ibv_wc_status status) {
  // A flush error without an earlier error of this side means that the peer ended the queue pair.
  if (status == IBV_WC_WR_FLUSH_ERR) return report_error(peer_end_status());
  close();
  if (connection_ != nullptr) connection_->connection_failed(completion_failed(status, connection_->peer()));
}

bool RdmaQueuePair::finished(uint64_t now_ns) {
  // A peer that gives back no credits or acknowledges nothing keeps the queue pair until the end of its time only.
  if (now_ns >= linger_until_ns_) return true;
  if (state_ == State::kClosed) return true;
  if (state_ != State::kOpen && state_ != State::kOpening) return true;
  return staged_.empty() && sent_begin_ == sent_end_;
}

}  // namespace loam::net
