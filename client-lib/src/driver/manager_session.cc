// One session at the commit manager: its life, its begins, its completions and the catalog. begin_batcher.cc forms the
// Begin messages; session.cc has the channels to the storage nodes.
#include "client-lib/src/driver/manager_session.h"

#include <algorithm>
#include <array>
#include <utility>

namespace loam::client {
namespace {

/// Least interval between two fetches of the catalog, so that a storage node that refuses many requests does not
/// cause a flood of them.
constexpr uint64_t kMinRefreshIntervalNs = 10'000'000;
/// Token of renewals.
constexpr uint64_t kRenewalToken = UINT64_MAX;

/// Takes at most kMaxCompletions elements off the front.
template <class T>
std::vector<T> take_front(std::vector<T>& all) {
  if (all.size() <= kMaxCompletions) return std::exchange(all, {});
  const auto end = all.begin() + kMaxCompletions;
  std::vector<T> front(std::make_move_iterator(all.begin()), std::make_move_iterator(end));
  all.erase(all.begin(), end);
  return front;
}

}  // namespace

ManagerSession::ManagerSession(rpc::Worker& worker, CatalogCache& catalog, EngineCounters& counters, Options options)
    : worker_(worker),
      catalog_(catalog),
      counters_(counters),
      options_(std::move(options)),
      channel_(worker.transport(), channel_options(), [this] { return worker_.now_ns(); }) {}

rpc::Channel::Options ManagerSession::channel_options() {
  rpc::Channel::Options channel;
  channel.address = options_.address;
  channel.name = "commit manager at " + options_.address;
  channel.window = wire::kManagerReplyWindow.requests;
  channel.keep_connected = true;
  channel.timer = options_.timer;
  channel.startup_message = [this](Buffer& out) {
    wire::encode_message(wire::OpenSession{options_.client_name, id_, manager_epoch_, catalog_.cluster()}, 0, out);
  };
  channel.on_startup_reply = [this](wire::Opcode opcode, ByteReader& body) { return on_startup_reply(opcode, body); };
  channel.on_disconnect = [this](const Status& status, bool refused) { on_disconnect(status, refused); };
  channel.on_rejected = [this](const Status& status) { end(status); };
  channel.on_error = [this](const wire::Error& error) { on_error(error); };
  return channel;
}

// ---- life ----------------------------------------------------------------------------------------------------------

Status ManagerSession::open(uint64_t deadline_ns) {
  fiber::Event event;
  open_waiter_ = &event;
  if (Status status = channel_.start(); !status.ok()) finish_open(status);
  if (!event.wait_until(deadline_ns)) {
    open_waiter_ = nullptr;
    open_result_ =
        last_refusal_.ok() ? Status(StatusCode::kTimeout, channel_.name() + " did not answer in time") : last_refusal_;
  }
  if (!open_result_.ok()) end(open_result_);
  return open_result_;
}

void ManagerSession::finish_open(const Status& status) {
  if (open_waiter_ == nullptr) return;
  open_result_ = status;
  std::exchange(open_waiter_, nullptr)->notify();
}

Status ManagerSession::on_startup_reply(wire::Opcode opcode, ByteReader& body) {
  wire::OpenSessionReply opened;
  if (opcode != wire::OpenSessionReply::kOpcode) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, opened));
  // A resumed session must be the same one. Another one would have an empty reply window, and repeated requests would
  // be executed twice (R3, idempotent requests within a session).
  const bool resumed = id_ != SessionId();
  const bool same = opened.session == id_ && opened.manager_epoch == manager_epoch_;
  if (opened.session == SessionId() || (resumed && !same)) {
    return {StatusCode::kMalformed, "it answered with another session than the client's"};
  }
  // Checked before the catalog is installed, because a catalog of another cluster would replace the client's own (R10,
  // cluster identity and incarnations).
  if (Status status = catalog_.check_cluster(opened.cluster); !status.ok()) {
    end(status);
    return status;
  }
  LOAM_RETURN_IF_ERROR(catalog_.install(std::move(opened.catalog), opened.manager_epoch));
  id_ = opened.session;
  if (options_.timer != nullptr) options_.timer->set_session(id_.value);
  manager_epoch_ = opened.manager_epoch;
  admin_address_ = std::move(opened.admin_address);
  lease_ns_ = opened.lease_ns;
  next_renewal_ns_ = worker_.now_ns();
  if (resumed) {
    counters_.resumed.add(1);
  } else {
    counters_.sessions_opened.add(1);
    finish_open(ok_status());
  }
  return ok_status();
}

void ManagerSession::on_disconnect(const Status& status, bool refused) {
  if (refused && status == StatusCode::kUnavailable) {
    last_refusal_ = status;  // the cluster is starting or recovering: the channel tries again
  } else {
    finish_open(status);
  }
}

void ManagerSession::on_error(const wire::Error& error) {
  if (error.status == StatusCode::kFenced) end(error.status);
  // The commit manager has dropped a reply, so ids may be open that this session does not know (R3, idempotent
  // requests within a session).
  if (error.status == StatusCode::kUnknownOutcome) give_up(error.status);
  if (error.status == StatusCode::kOverloaded && options_.on_overload) options_.on_overload(error.retry_after_ns);
}

void ManagerSession::end(const Status& status) {
  if (!end_status_.ok()) return;
  // The code tells callers what becomes of open transactions. kCancelled: the client closes. kFenced: recovery rolls
  // them back. A session that never opened has none, and its status is the reason of the failure.
  const std::string why(status.message());
  if (closing_) {
    end_status_ = {StatusCode::kCancelled, why};
  } else if (!opened()) {
    end_status_ = status;
  } else {
    counters_.fenced.add(1);
    end_status_ = {StatusCode::kFenced, "the session has ended, and its open transactions are rolled back (" + why +
                                            "); run the transaction again"};
  }
  finish_open(end_status_);
  channel_.close(end_status_);
  if (options_.on_end) options_.on_end();
}

void ManagerSession::give_up(const Status& status) {
  if (!end_status_.ok()) return;
  channel_.send_one_way(wire::CloseSession{});  // no reply is needed
  channel_.flush();
  end(status);
}

void ManagerSession::close(uint64_t deadline_ns) {
  closing_ = true;
  if (end_status_.ok() && opened()) {
    flush();
    static_cast<void>(rpc::call<wire::CloseSessionReply>(channel_, wire::CloseSession{}, deadline_ns));
  }
  end({StatusCode::kCancelled, "the client was closed"});
}

void ManagerSession::renew() {
  const uint64_t now_ns = worker_.now_ns();
  if (!opened() || !end_status_.ok() || lease_ns_ == 0 || now_ns < next_renewal_ns_ || renewing_) return;
  wire::RenewSession message;
  message.newest = newest_snapshot_;
  message.held.reserve(snapshot_holders_.size());
  for (const auto& [number, holders] : snapshot_holders_) message.held.push_back(number);
  if (!channel_.connected()) return;  // OpenSession on the next connection renews the lease
  next_renewal_ns_ = now_ns + (options_.renew_every_ns != 0 ? options_.renew_every_ns : lease_ns_ / 4);
  // Sent also while begins wait for room in the window, because a busy client must keep its lease.
  renewing_ = channel_.try_send_once(message, this, kRenewalToken, now_ns + lease_ns_ / 2);
}

Status ManagerSession::on_renewed(wire::Opcode opcode, ByteReader& body) {
  wire::RenewSessionReply renewed;
  if (opcode != wire::RenewSessionReply::kOpcode) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, renewed));
  renewing_ = false;
  catalog_.observe_version(renewed.catalog_version);
  if (catalog_.stale()) refresh_catalog_async();
  return ok_status();
}

void ManagerSession::renewal_failed(const Status& status, rpc::ExecutionStatus executed) {
  renewing_ = false;
  // The network may have dropped the connection silently. Another connection resumes the session.
  if (status == StatusCode::kTimeout && executed == rpc::ExecutionStatus::kUnknown) channel_.reject(status);
}

uint64_t ManagerSession::earliest_deadline_ns() const {
  const bool renews = opened() && end_status_.ok() && lease_ns_ != 0 && channel_.connected() && !renewing_;
  return renews ? std::min(channel_.earliest_deadline_ns(), next_renewal_ns_) : channel_.earliest_deadline_ns();
}

// ---- begin ---------------------------------------------------------------------------------------------------------

void ManagerSession::PendingBegin::on_begun(const BeginResult& got) {
  answer = got;
  if (upgraded_snapshot != 0) session.release(upgraded_snapshot);
  if (got.status.ok() && got.snapshot_number != 0) ++session.snapshot_holders_[got.snapshot_number];
  if (!abandoned) return answered.notify();
  if (got.status.ok()) {
    if (got.id == TransactionId()) {
      session.release(got.snapshot_number);
    } else {
      session.release_id(got.id);
    }
  }
  delete this;
}

BeginResult ManagerSession::begin(BeginKind kind) {
  if (!end_status_.ok()) return {end_status_, {}, {}, 0, 0};
  auto pending_begin = std::make_unique<PendingBegin>(*this);
  begins_.add(pending_begin.get(), kind);
  return await(std::move(pending_begin));
}

BeginResult ManagerSession::upgrade(uint64_t snapshot_number) {
  if (!end_status_.ok()) return {end_status_, {}, {}, 0, 0};
  auto pending_begin = std::make_unique<PendingBegin>(*this, snapshot_number);
  // The snapshot is held until the reply, so that a release never reaches the commit manager before the upgrade,
  // even if the caller stops waiting.
  ++snapshot_holders_[snapshot_number];
  begins_.add_upgrade(pending_begin.get(), snapshot_number);
  return await(std::move(pending_begin));
}

BeginResult ManagerSession::await(std::unique_ptr<PendingBegin> pending_begin) {
  if (!pending_begin->answered.wait_until(worker_.now_ns() + options_.request_timeout_ns)) {
    // The reply may still come and bring an id, which must not stay open. The object waits for it, and then gives
    // the id back and deletes itself (on_begun()).
    pending_begin.release()->abandoned = true;
    return {{StatusCode::kTimeout, channel_.name() + " did not answer a begin in time"}, {}, {}, 0, 0};
  }
  catalog_.observe_version(pending_begin->answer.catalog_version);
  if (catalog_.stale()) refresh_catalog_async();
  return std::move(pending_begin->answer);
}

void ManagerSession::flush_begins() {
  while (!begins_.empty()) {
    BeginBatch group = begins_.next_batch();
    const uint64_t token = 2 * next_token_++;
    // No deadline: a reply brings ids or snapshots, and must arrive even if every waiter has stopped waiting
    // (await()).
    const auto sent = channel_.request(group.message(), this, token, rpc::kNoDeadline);
    if (sent.ok()) {
      open_begins_.emplace(token, std::move(group));
    } else {
      group.fail(sent.status());
    }
  }
}

Status ManagerSession::on_begun(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kBeginReply) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, begun_));
  newest_snapshot_ = std::max({newest_snapshot_, begun_.snapshot_number, begun_.upgradable_number});
  // The snapshots are held until every waiter has its reply: the first waiter may be abandoned, and release its
  // snapshot at once.
  const std::array registered = {begun_.snapshot_number, begun_.upgradable_number};
  for (const uint64_t number : registered) ++snapshot_holders_[number];
  open_begins_.extract(token).mapped().deliver(begun_);
  for (const uint64_t number : registered) release(number);
  return ok_status();
}

void ManagerSession::release(uint64_t snapshot_number) {
  const auto found = snapshot_holders_.find(snapshot_number);
  if (found == snapshot_holders_.end() || --found->second > 0) return;
  snapshot_holders_.erase(found);
  if (snapshot_number != 0) released_.push_back(snapshot_number);  // 0: the message had no begin of this kind
}

// ---- complete ------------------------------------------------------------------------------------------------------

void ManagerSession::complete(TransactionId id, bool committed, CompletionWaiter* waiter) {
  completions_.outcomes.push_back({id, committed});
  completions_.waiters.push_back(waiter);
}

void ManagerSession::flush_completions() {
  while (!completions_.outcomes.empty()) {
    CompletionBatch batch{take_front(completions_.outcomes), take_front(completions_.waiters)};
    const uint64_t token = 2 * next_token_++ + 1;
    wire::Complete message{std::move(batch.outcomes)};
    const auto sent = channel_.request(message, this, token, worker_.now_ns() + options_.commit_timeout_ns);
    batch.outcomes = std::move(message.outcomes);
    if (sent.ok()) {
      open_completions_.emplace(token, std::move(batch));
      continue;
    }
    batch.notify_failure(sent.status(), rpc::ExecutionStatus::kNotSent);
  }
}

void ManagerSession::CompletionBatch::notify_completed(const std::vector<TransactionId>& refused) const {
  for (size_t i = 0; i < waiters.size(); ++i) {
    if (waiters[i] != nullptr) waiters[i]->on_completed(std::ranges::binary_search(refused, outcomes[i].id));
  }
}

void ManagerSession::CompletionBatch::notify_failure(const Status& status, rpc::ExecutionStatus executed) const {
  for (CompletionWaiter* waiter : waiters) {
    if (waiter != nullptr) waiter->on_completion_failure(status, executed);
  }
}

Status ManagerSession::on_completed(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kCompleteReply) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, completed_));
  std::ranges::sort(completed_.refused);
  open_completions_.extract(token).mapped().notify_completed(completed_.refused);
  return ok_status();
}

void ManagerSession::flush() {
  // The commit manager releases the snapshots of an ended session by itself.
  if (!end_status_.ok()) released_.clear();
  // Completions are sent before begins, so that the new snapshots see the commits.
  flush_completions();
  // Releases wait for a connection, because a message without a reply is lost with its connection. A lost one costs
  // only time: the next renewal names the snapshots that are still held.
  while (channel_.connected() && !released_.empty()) {
    channel_.send_one_way(wire::ReleaseSnapshots{take_front(released_)});
  }
  flush_begins();
  renew();
}

// ---- replies -------------------------------------------------------------------------------------------------------

Status ManagerSession::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (token == kRenewalToken) return on_renewed(opcode, body);
  return token % 2 == 0 ? on_begun(token, opcode, body) : on_completed(token, opcode, body);
}

void ManagerSession::on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) {
  if (token == kRenewalToken) {
    renewal_failed(status, executed);
  } else if (token % 2 == 0) {
    open_begins_.extract(token).mapped().fail(status);
  } else {
    open_completions_.extract(token).mapped().notify_failure(status, executed);
  }
}

// ---- catalog -------------------------------------------------------------------------------------------------------

Status ManagerSession::refresh_catalog() {
  const uint64_t deadline_ns = fiber::CancelScope::deadline(worker_.now_ns() + options_.request_timeout_ns);
  for (;;) {
    LOAM_RETURN_IF_ERROR(end_status_);
    rpc::Call<wire::GetCatalogReply> fetch;
    send(fetch, wire::GetCatalog{}, deadline_ns);
    Status status = fetch.wait();
    if (status.ok()) return catalog_.install(std::move(fetch.reply().catalog), manager_epoch_);
    // The channel does not repeat this request after the loss of its connection. The next one waits for the next
    // connection, so the channel's pauses limit the rate.
    const bool lost = status == StatusCode::kUnavailable && fetch.executed() != rpc::ExecutionStatus::kRefused;
    if (!lost || worker_.now_ns() >= deadline_ns) return status;
  }
}

void ManagerSession::refresh_catalog_async() {
  const uint64_t now_ns = worker_.now_ns();
  if (refreshing_ || closing_ || !end_status_.ok() || now_ns < next_refresh_ns_) return;
  next_refresh_ns_ = now_ns + kMinRefreshIntervalNs;
  refreshing_ = true;
  const Status spawned = worker_.scheduler().spawn([this] {
    struct OnExit {
      bool& refreshing;
      ~OnExit() { refreshing = false; }  // also if memory runs out
    } const end{refreshing_};
    static_cast<void>(refresh_catalog());  // after a failure, a caller that needs the catalog fetches it again
  });
  if (!spawned.ok()) refreshing_ = false;
}

}  // namespace loam::client
