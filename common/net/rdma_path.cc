#include "common/net/rdma_path.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>

#include "common/base/assert.h"
#include "common/net/rdma_error.h"
#include "common/net/rdma_transport_impl.h"

namespace loam::net {
namespace {

/// Asked for; a device that has less is asked for none.
constexpr uint32_t kWantedInline = 220;
constexpr int kResolveTimeoutMs = 2'000;
/// Tries to send before the peer is taken for dead. Not 7, the most that verbs offer: Soft-RoCE takes it for endless.
constexpr uint8_t kRetries = 6;
/// Credits prevent receiver-not-ready; should it ever occur, it ends.
constexpr uint8_t kNotReadyRetries = 3;
/// 0.64 ms instead of the 655 ms that rdma_cm leaves.
constexpr uint8_t kNotReadyTimer = 12;
/// Of wr_id: a send. Receives have the address of their chunk.
constexpr uint64_t kSendMark = 1;

/// Exponent e of the longest wait for an acknowledgement, 4.096 us * 2^e, with which all tries fit into half of
/// `timeout_ns`, though devices may wait four times as long as they are told.
uint8_t ack_timeout(uint64_t timeout_ns) {
  const uint64_t units = timeout_ns / 2 / 4 / (kRetries + 1) / 4'096;
  return static_cast<uint8_t>(std::clamp(static_cast<int>(std::bit_width(units)), 11, 21) - 1);
}

/// What both have in common.
constexpr size_t kSharedBytes = offsetof(RdmaHello, chunk_bytes);

RdmaHello hello_of(const Greeting& greeting) {
  RdmaHello hello;
  std::memcpy(static_cast<void*>(&hello), &greeting, kSharedBytes);
  return hello;
}

/// Without a hello, one that no Loam sends.
Greeting greeting_of(const CmEvent& event) {
  Greeting greeting;
  greeting.magic = 0;
  if (event.has_hello) std::memcpy(static_cast<void*>(&greeting), &event.hello, kSharedBytes);
  return greeting;
}

}  // namespace

RdmaPath::RdmaPath(RdmaTransport& transport, rdma_cm_id* id) : CmSource(Kind::kPath), transport_(transport), id_(id) {
  if (id_ != nullptr) id_->context = static_cast<CmSource*>(this);
}

RdmaPath::~RdmaPath() {
  close();
  for (RdmaBlock* block : exposed_) device_->windows().give_bound(*block);
  if (has_queue_pair_) {
    device_->paths.erase(id_->qp->qp_num);
    rdma_destroy_qp(id_);
    device_->remove_path();
  }
  // Without a queue pair nothing is sent from them any more.
  for (const Staged& staged : staged_) {
    if (staged.chunk != nullptr) device_->give(*staged.chunk);
  }
  for (; sent_begin_ != sent_end_; ++sent_begin_) {
    if (Chunk* chunk = sent_[sent_begin_ % kSendDepth].chunk; chunk != nullptr) device_->give(*chunk);
  }
  if (id_ != nullptr) rdma_destroy_id(id_);
}

// ---- opening --------------------------------------------------------------------------------------------------------

Status RdmaPath::resolve(const SocketAddress& where) {
  if (rdma_create_id(transport_.channel(), &id_, static_cast<CmSource*>(this), RDMA_PS_TCP) != 0) {
    return verbs_failed("making an identifier of rdma_cm", errno);
  }
  SocketAddress to = where;
  if (rdma_resolve_addr(id_, nullptr, to.get(), kResolveTimeoutMs) != 0) {
    return {StatusCode::kUnavailable, connecting_failed(RDMA_CM_EVENT_ADDR_ERROR, -errno)};
  }
  return ok_status();
}

Status RdmaPath::make_queue_pair() {
  LOAM_ASSIGN_OR_RETURN(device_, transport_.device_of(id_->verbs));
  LOAM_RETURN_IF_ERROR(device_->add_path());
  ibv_qp_init_attr attributes{};
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
    device_->remove_path();
    return verbs_failed(std::string("making a queue pair on ") + device_->name(), error);
  }
  // What the device really has may be more; what was asked for is enough.
  max_inline_ = std::min(attributes.cap.max_inline_data, kWantedInline);
  device_->paths.emplace(id_->qp->qp_num, this);
  state_ = State::kReady;
  return ok_status();
}

Status RdmaPath::greet(const Greeting& greeting, bool active) {
  active_ = active;
  const RdmaHello hello = hello_of(greeting);
  rdma_conn_param parameters{};
  parameters.private_data = &hello;
  parameters.private_data_len = sizeof(hello);
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kNotReadyRetries;
  // An old kernel knows no such option, and keeps the time that it finds right.
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

Status RdmaPath::check_hello(const RdmaHello& hello) {
  // The sizes of another version are not ours to judge: the greeting tells.
  if (hello.magic != kMagic || hello.protocol_version != transport_.options().protocol_version) return ok_status();
  if (hello.chunk_bytes < 1024 || hello.chunks_granted < 2) {
    return {StatusCode::kMalformed, "a greeting that grants " + std::to_string(hello.chunks_granted) + " messages of " +
                                        std::to_string(hello.chunk_bytes) + " bytes"};
  }
  peer_chunk_bytes_ = std::min<uint32_t>(hello.chunk_bytes, kChunkBytes);
  peer_granted_ = credits_ = std::min<uint32_t>(hello.chunks_granted, UINT16_MAX);
  return ok_status();
}

void RdmaPath::opened() {
  if (state_ != State::kOpening) return;
  state_ = State::kOpen;
  ibv_qp_attr attributes{};
  attributes.min_rnr_timer = kNotReadyTimer;
  // Only shortens a wait that does not occur: a device that refuses it works as well.
  static_cast<void>(ibv_modify_qp(id_->qp, &attributes, IBV_QP_MIN_RNR_TIMER));
  transport_.note_ready(*this);
}

void RdmaPath::established(const CmEvent& event) {
  opened();
  if (!active_ || link_ == nullptr) return;
  const Status status = event.has_hello ? check_hello(event.hello) : ok_status();
  return status.ok() ? link_->greeted(greeting_of(event)) : link_->broke(status);
}

void RdmaPath::on_cm_event(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (link_ == nullptr || rdma_resolve_route(id_, kResolveTimeoutMs) == 0) return;
      return link_->no_way(connecting_failed(RDMA_CM_EVENT_ROUTE_ERROR, -errno));
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (link_ != nullptr) link_->way_found();
      return;
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      const Status status = event.has_hello ? check_hello(event.hello) : ok_status();
      return status.ok() ? link_->greeted(greeting_of(event)) : link_->broke(status);
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      return established(event);
    case RDMA_CM_EVENT_REJECTED:
      state_ = State::kClosed;
      if (link_ == nullptr) return;
      if (event.has_hello && event.hello.magic == kMagic) return link_->greeted(greeting_of(event));
      return link_->no_way(connecting_failed(event.type, event.status));
    case RDMA_CM_EVENT_DISCONNECTED:
      // What came before it may lie in the completion queue.
      if (device_ != nullptr) transport_.drain(*device_);
      [[fallthrough]];
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return tell(end_of_peer());
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      state_ = State::kClosed;
      return tell({StatusCode::kUnavailable, "the RDMA device was removed"});
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      state_ = State::kClosed;
      if (link_ != nullptr) link_->no_way(connecting_failed(event.type, event.status));
      return;
    default:
      return;  // of multicast, and changes of addresses that break no queue pair
  }
}

/// Closes, and says why the peer is gone without a word.
Status RdmaPath::end_of_peer() {
  // What the peer's device may not do ends both queue pairs, and only this one's state tells on this side.
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const bool violated = state_ == State::kOpen && has_queue_pair_ && !disconnected_ &&
                        ibv_query_qp(id_->qp, &attributes, IBV_QP_STATE, &initial) == 0 &&
                        attributes.qp_state == IBV_QPS_ERR;
  close();
  if (violated) return {StatusCode::kMalformed, "the peer reached for memory that it was not offered"};
  return {StatusCode::kUnavailable, "the peer closed the connection without a goodbye"};
}

void RdmaPath::tell(const Status& status) {
  if (link_ != nullptr) link_->broke(status);
}

// ---- sending --------------------------------------------------------------------------------------------------------

size_t RdmaPath::room(bool last_words) const {
  if (state_ == State::kClosed || device_ == nullptr) return 0;
  if (last_words) return kSendDepth - std::min<size_t>(staged_.size(), kSendDepth);
  if (state_ != State::kOpen) return 0;
  // One send is kept for credits alone.
  const size_t posts = send_room() - std::min(send_room(), 1u);
  const size_t most = std::min<size_t>(credits_, posts);
  return most - std::min(most, staged_.size());
}

bool RdmaPath::stage(Bytes bytes, const RemotePlace* where) {
  Chunk* chunk = device_->take();
  if (chunk == nullptr) {
    transport_.note_starved(*this);
    return false;
  }
  std::memcpy(chunk->bytes, bytes.data(), bytes.size());
  Staged staged{.chunk = chunk, .bytes = static_cast<uint32_t>(bytes.size())};
  if (where != nullptr) {
    staged.work = Work::kWrite;
    staged.where = *where;
  }
  staged_.push_back(staged);
  return true;
}

RdmaBlock* RdmaPath::expose(size_t size, uint32_t& key) {
  if (state_ != State::kOpen) return nullptr;
  RdmaBlock* block = device_->windows().take(size);
  if (block == nullptr) return nullptr;
  key = block->key = ibv_inc_rkey(block->window->rkey);
  exposed_.push_back(block);
  staged_.push_back({.work = Work::kBind, .bytes = static_cast<uint32_t>(size), .block = block});
  transport_.note_ready(*this);
  return block;
}

void RdmaPath::retract(RdmaBlock& block) {
  if (state_ != State::kOpen) return;
  staged_.push_back({.work = Work::kInvalidate, .block = &block});
  transport_.note_ready(*this);
}

void RdmaPath::prepare(ibv_send_wr& request, ibv_sge& piece, const Staged& staged) {
  request = {};
  request.wr_id = kSendMark;
  Sent& sent = sent_[sent_end_++ % kSendDepth];
  sent = {.chunk = staged.chunk};
  if (staged.chunk != nullptr) {
    piece = {reinterpret_cast<uintptr_t>(staged.chunk->bytes), staged.bytes, staged.chunk->key};
    request.sg_list = &piece;
    request.num_sge = 1;
    if (staged.bytes <= max_inline_) request.send_flags |= IBV_SEND_INLINE;
  }
  switch (staged.work) {
    case Work::kSend:
      request.opcode = IBV_WR_SEND_WITH_IMM;
      request.imm_data = htonl(std::exchange(owed_, 0));
      if (staged.chunk != nullptr) --credits_;
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
  sent.signalled = ++unsignalled_ >= kSignalEvery || sent.block != nullptr || (last_words_ && staged_.empty()) ||
                   device_->short_of_chunks();
  if (sent.signalled) {
    request.send_flags |= IBV_SEND_SIGNALED;
    ++awaited_;
    unsignalled_ = 0;
  }
}

void RdmaPath::push(bool last_words) {
  last_words_ |= last_words;
  if (state_ != State::kOpen) return;
  std::array<ibv_send_wr, kSendDepth> requests;
  std::array<ibv_sge, kSendDepth> pieces;
  size_t count = 0;
  while (!staged_.empty() && can_post(staged_.front()) && send_room() > 1) {
    const Staged staged = staged_.front();
    staged_.pop_front();
    prepare(requests[count], pieces[count], staged);
    ++count;
  }
  if (count == 0) {
    if (!owes_much() || send_room() == 0) return;
    prepare(requests[0], pieces[0], {});
    count = 1;
  }
  // Room is given back only once it is there.
  device_->flush_receives();
  post(std::span(requests).first(count));
}

void RdmaPath::probe() {
  if (state_ != State::kOpen) return;
  silent_ = awaited_ > 0 ? silent_ + 1 : 0;
  if (silent_ == kMostSilent) return give_up(IBV_WC_RETRY_EXC_ERR);
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

void RdmaPath::post(std::span<ibv_send_wr> requests) {
  for (size_t i = 0; i + 1 < requests.size(); ++i) requests[i].next = &requests[i + 1];
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id_->qp, requests.data(), &bad);
  transport_.counters_.flushes.add(1);
  transport_.counters_.work_requests.add(requests.size());
  if (error != 0) {
    close();
    return tell(verbs_failed("sending", error));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    // Until a bind is posted its window goes by its old key.
    if (requests[i].opcode == IBV_WR_BIND_MW) requests[i].bind_mw.mw->rkey = requests[i].bind_mw.rkey;
    // The bytes of an inline send are the device's already.
    if ((requests[i].send_flags & IBV_SEND_INLINE) == 0) continue;
    Sent& sent = sent_[(sent_end_ - requests.size() + i) % kSendDepth];
    device_->give(*std::exchange(sent.chunk, nullptr));
    transport_.counters_.inline_sends.add(1);
  }
}

// ---- completions ----------------------------------------------------------------------------------------------------

void RdmaPath::on_received(Chunk& chunk, const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return give_up(completion.status);
  if (state_ == State::kClosed) return;
  opened();  // a peer's first message may overtake the news that it is connected
  const uint32_t given = (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(completion.imm_data) : 0;
  if (given > peer_granted_ - std::min(credits_, peer_granted_) || (given == 0 && completion.byte_len == 0)) {
    close();
    return tell({StatusCode::kMalformed, "the peer gives back " + std::to_string(given) + " messages, and " +
                                             std::to_string(peer_granted_ - credits_) + " were out"});
  }
  credits_ += given;
  if (completion.byte_len > 0 && owed_ >= kChunksGranted) {
    close();
    return tell({StatusCode::kMalformed, "the peer sent more messages than it had credits for"});
  }
  if (given > 0) transport_.note_ready(*this);
  if (completion.byte_len == 0) return;
  if (link_ != nullptr) link_->take({chunk.bytes, completion.byte_len});
  ++owed_;  // not before: what is sent from within must not give this chunk back
  if (owes_much()) transport_.note_ready(*this);
}

void RdmaPath::on_sent(ibv_wc_status status) {
  // Sends before it may be done or not: their chunks are given back with the queue pair.
  if (status != IBV_WC_SUCCESS) return give_up(status);
  --awaited_;
  silent_ = 0;
  while (sent_begin_ != sent_end_) {
    const Sent sent = sent_[sent_begin_++ % kSendDepth];
    if (sent.chunk != nullptr) device_->give(*sent.chunk);
    if (sent.block != nullptr) {
      std::erase(exposed_, sent.block);
      device_->windows().give_invalid(*sent.block);
    }
    if (sent.signalled) break;
  }
  transport_.note_ready(*this);
}

// ---- the end --------------------------------------------------------------------------------------------------------

void RdmaPath::close() {
  if (has_queue_pair_ && !disconnected_ && (state_ == State::kOpen || state_ == State::kOpening)) {
    disconnected_ = true;
    rdma_disconnect(id_);  // fails if the peer was quicker
  }
  state_ = State::kClosed;
}

void RdmaPath::give_up(ibv_wc_status status) {
  // Nothing of this side's has failed before: the peer ended the queue pair.
  if (status == IBV_WC_WR_FLUSH_ERR) return tell(end_of_peer());
  close();
  if (link_ != nullptr) link_->broke(completion_failed(status, link_->peer()));
}

bool RdmaPath::finished(uint64_t now_ns) {
  if (now_ns >= linger_until_ns_) return true;
  if (state_ == State::kClosed) return true;
  if (state_ != State::kOpen && state_ != State::kOpening) return true;
  return staged_.empty() && sent_begin_ == sent_end_;
}

}  // namespace loam::net
