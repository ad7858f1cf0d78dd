#include "client-lib/src/driver/manager_session.h"

#include <algorithm>
#include <array>
#include <utility>

namespace loam::client {
namespace {

/// A node that refuses everybody must not make everybody ask for the catalog all the time.
constexpr uint64_t kBetweenRefreshesNs = 10'000'000;
/// Marks the answers to renewals.
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
  channel.stays = true;
  channel.greeting = [this](Buffer& out) {
    wire::encode_message(wire::OpenSession{options_.client_name, id_, manager_epoch_, catalog_.cluster()}, 0, out);
  };
  channel.on_greeted = [this](wire::Opcode opcode, ByteReader& body) { return on_greeted(opcode, body); };
  channel.on_lost = [this](const Status& status, bool refused) { on_lost(status, refused); };
  channel.on_ended = [this](const Status& status) { end(status); };
  channel.on_error = [this](const wire::Error& error) { on_error(error); };
  return channel;
}

// ---- life ----------------------------------------------------------------------------------------------------------

Status ManagerSession::open(uint64_t deadline_ns) {
  fiber::Event event;
  opening_ = &event;
  if (Status status = channel_.start(); !status.ok()) opening_ends(status);
  if (!event.wait_until(deadline_ns)) {
    opening_ = nullptr;
    open_result_ =
        last_refusal_.ok() ? Status(StatusCode::kTimeout, channel_.name() + " did not answer in time") : last_refusal_;
  }
  if (!open_result_.ok()) end(open_result_);
  return open_result_;
}

void ManagerSession::opening_ends(const Status& status) {
  if (opening_ == nullptr) return;
  open_result_ = status;
  std::exchange(opening_, nullptr)->notify();
}

Status ManagerSession::on_greeted(wire::Opcode opcode, ByteReader& body) {
  wire::SessionOpened opened;
  if (opcode != wire::SessionOpened::kOpcode) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, opened));
  const bool resumed = id_ != SessionId();
  const bool same = opened.session == id_ && opened.manager_epoch == manager_epoch_;
  if (opened.session == SessionId() || (resumed && !same)) {
    return {StatusCode::kMalformed, "it gave another session than was asked for"};
  }
  if (Status status = catalog_.belongs_to(opened.cluster); !status.ok()) {
    end(status);
    return status;
  }
  LOAM_RETURN_IF_ERROR(catalog_.install(std::move(opened.catalog), opened.manager_epoch));
  id_ = opened.session;
  manager_epoch_ = opened.manager_epoch;
  admin_address_ = std::move(opened.admin_address);
  lease_ns_ = opened.lease_ns;
  renew_at_ns_ = worker_.now_ns();
  if (resumed) {
    counters_.resumed.add(1);
  } else {
    counters_.sessions_opened.add(1);
    opening_ends(ok_status());
  }
  return ok_status();
}

void ManagerSession::on_lost(const Status& status, bool refused) {
  if (refused && status == StatusCode::kUnavailable) {
    last_refusal_ = status;  // the cluster is starting or recovering: the channel tries again
  } else {
    opening_ends(status);
  }
}

void ManagerSession::on_error(const wire::Error& error) {
  if (error.status == StatusCode::kFenced) end(error.status);
  // The answer is forgotten: ids may be open that this session does not know (R3).
  if (error.status == StatusCode::kUnknownOutcome) give_up(error.status);
  if (error.status == StatusCode::kOverloaded && options_.on_overload) options_.on_overload(error.retry_after_ns);
}

void ManagerSession::end(const Status& status) {
  if (!end_.ok()) return;
  const std::string why(status.message());
  if (closing_) {
    end_ = {StatusCode::kCancelled, why};
  } else if (!opened()) {
    end_ = status;
  } else {
    counters_.fenced.add(1);
    end_ = {StatusCode::kFenced, "the session has ended, and what it had not committed is rolled back (" + why +
                                     "); run the transaction again"};
  }
  opening_ends(end_);
  channel_.close(end_);
  if (options_.on_end) options_.on_end();
}

void ManagerSession::give_up(const Status& status) {
  if (!end_.ok()) return;
  channel_.tell(wire::CloseSession{});  // its answer does not matter
  channel_.flush();
  end(status);
}

void ManagerSession::close(uint64_t deadline_ns) {
  closing_ = true;
  if (end_.ok() && opened()) {
    flush();
    static_cast<void>(rpc::call<wire::SessionClosed>(channel_, wire::CloseSession{}, deadline_ns));
  }
  end({StatusCode::kCancelled, "the client was closed"});
}

void ManagerSession::renew() {
  const uint64_t now_ns = worker_.now_ns();
  if (!opened() || !end_.ok() || lease_ns_ == 0 || now_ns < renew_at_ns_ || renewing_) return;
  wire::RenewSession message;
  message.newest = newest_snapshot_;
  message.held.reserve(snapshot_holders_.size());
  for (const auto& [number, holders] : snapshot_holders_) message.held.push_back(number);
  if (!channel_.connected()) return;  // the greeting of the next connection renews
  renew_at_ns_ = now_ns + (options_.renew_every_ns != 0 ? options_.renew_every_ns : lease_ns_ / 4);
  // Also while begins wait for room in the window: a busy client is alive.
  renewing_ = channel_.request_aside(message, this, kRenewalToken, now_ns + lease_ns_ / 2);
}

Status ManagerSession::on_renewed(wire::Opcode opcode, ByteReader& body) {
  wire::SessionRenewed renewed;
  if (opcode != wire::SessionRenewed::kOpcode) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, renewed));
  renewing_ = false;
  catalog_.heard_of(renewed.catalog_version);
  if (catalog_.stale()) refresh_soon();
  return ok_status();
}

void ManagerSession::renewal_failed(const Status& status, rpc::Executed executed) {
  renewing_ = false;
  // No answer for a long time: the network may have dropped this connection. Another one resumes the session.
  if (status == StatusCode::kTimeout && executed == rpc::Executed::kUnknown) channel_.reject(status);
}

uint64_t ManagerSession::earliest_deadline_ns() const {
  const bool renews = opened() && end_.ok() && lease_ns_ != 0 && channel_.connected() && !renewing_;
  return renews ? std::min(channel_.earliest_deadline_ns(), renew_at_ns_) : channel_.earliest_deadline_ns();
}

// ---- begin ---------------------------------------------------------------------------------------------------------

void ManagerSession::Ticket::on_begun(const BeginAnswer& got) {
  answer = got;
  if (upgrades != 0) session.release(upgrades);
  if (got.status.ok() && got.snapshot_number != 0) ++session.snapshot_holders_[got.snapshot_number];
  if (!abandoned) return answered.notify();
  if (got.status.ok()) {
    if (got.id == TransactionId()) {
      session.release(got.snapshot_number);
    } else {
      session.give_back(got.id);
    }
  }
  delete this;
}

BeginAnswer ManagerSession::begin(BeginKind kind) {
  if (!end_.ok()) return {end_, {}, {}, 0, 0};
  auto ticket = std::make_unique<Ticket>(*this);
  begins_.add(ticket.get(), kind);
  return await(std::move(ticket));
}

BeginAnswer ManagerSession::upgrade(uint64_t snapshot_number) {
  if (!end_.ok()) return {end_, {}, {}, 0, 0};
  auto ticket = std::make_unique<Ticket>(*this, snapshot_number);
  // The commit manager must not hear of a release before the upgrade, also if the caller gives up.
  ++snapshot_holders_[snapshot_number];
  begins_.add_upgrade(ticket.get(), snapshot_number);
  return await(std::move(ticket));
}

BeginAnswer ManagerSession::await(std::unique_ptr<Ticket> ticket) {
  if (!ticket->answered.wait_until(worker_.now_ns() + options_.request_timeout_ns)) {
    // The answer may still come and bring an id, which must not stay open: the ticket waits for it on its own.
    ticket.release()->abandoned = true;
    return {{StatusCode::kTimeout, channel_.name() + " did not answer a begin in time"}, {}, {}, 0, 0};
  }
  catalog_.heard_of(ticket->answer.catalog_version);
  if (catalog_.stale()) refresh_soon();
  return std::move(ticket->answer);
}

void ManagerSession::flush_begins() {
  while (!begins_.empty()) {
    BeginGroup group = begins_.take();
    const uint64_t token = 2 * next_token_++;
    const auto sent = channel_.request(group.message(), this, token, rpc::kNoDeadline);
    if (sent.ok()) {
      open_begins_.emplace(token, std::move(group));
    } else {
      group.fail(sent.status());
    }
  }
}

Status ManagerSession::on_begun(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kBegun) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, begun_));
  newest_snapshot_ = std::max({newest_snapshot_, begun_.snapshot_number, begun_.upgradable_number});
  // Held until every waiter has its answer: the first may have given up, and lets go at once.
  const std::array registered = {begun_.snapshot_number, begun_.upgradable_number};
  for (const uint64_t number : registered) ++snapshot_holders_[number];
  open_begins_.extract(token).mapped().answer(begun_);
  for (const uint64_t number : registered) release(number);
  return ok_status();
}

void ManagerSession::release(uint64_t snapshot_number) {
  const auto found = snapshot_holders_.find(snapshot_number);
  if (found == snapshot_holders_.end() || --found->second > 0) return;
  snapshot_holders_.erase(found);
  if (snapshot_number != 0) released_.push_back(snapshot_number);  // 0: none was asked for
}

// ---- complete ------------------------------------------------------------------------------------------------------

void ManagerSession::complete(TransactionId id, bool committed, CompletionWaiter* waiter) {
  completions_.outcomes.push_back({id, committed});
  completions_.waiters.push_back(waiter);
}

void ManagerSession::flush_completions() {
  while (!completions_.outcomes.empty()) {
    Completion batch{take_front(completions_.outcomes), take_front(completions_.waiters)};
    const uint64_t token = 2 * next_token_++ + 1;
    wire::Complete message{std::move(batch.outcomes)};
    const auto sent = channel_.request(message, this, token, worker_.now_ns() + options_.commit_timeout_ns);
    batch.outcomes = std::move(message.outcomes);
    if (sent.ok()) {
      open_completions_.emplace(token, std::move(batch));
      continue;
    }
    batch.tell_failure(sent.status(), rpc::Executed::kNotSent);
  }
}

void ManagerSession::Completion::tell_completed(const std::vector<TransactionId>& refused) const {
  for (size_t i = 0; i < waiters.size(); ++i) {
    if (waiters[i] != nullptr) waiters[i]->on_completed(std::ranges::binary_search(refused, outcomes[i].id));
  }
}

void ManagerSession::Completion::tell_failure(const Status& status, rpc::Executed executed) const {
  for (CompletionWaiter* waiter : waiters) {
    if (waiter != nullptr) waiter->on_completion_failure(status, executed);
  }
}

Status ManagerSession::on_completed(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kCompleted) return rpc::unexpected_reply(opcode);
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, completed_));
  std::ranges::sort(completed_.refused);
  open_completions_.extract(token).mapped().tell_completed(completed_.refused);
  return ok_status();
}

void ManagerSession::flush() {
  if (!end_.ok()) released_.clear();
  // Outcomes leave before begins, so that the new snapshots see them.
  flush_completions();
  while (channel_.connected() && !released_.empty()) {
    channel_.tell(wire::ReleaseSnapshots{take_front(released_)});
  }
  flush_begins();
  renew();
}

// ---- answers -------------------------------------------------------------------------------------------------------

Status ManagerSession::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (token == kRenewalToken) return on_renewed(opcode, body);
  return token % 2 == 0 ? on_begun(token, opcode, body) : on_completed(token, opcode, body);
}

void ManagerSession::on_failure(uint64_t token, const Status& status, rpc::Executed executed) {
  if (token == kRenewalToken) {
    renewal_failed(status, executed);
  } else if (token % 2 == 0) {
    open_begins_.extract(token).mapped().fail(status);
  } else {
    open_completions_.extract(token).mapped().tell_failure(status, executed);
  }
}

// ---- catalog -------------------------------------------------------------------------------------------------------

Status ManagerSession::refresh_catalog() {
  LOAM_RETURN_IF_ERROR(end_);
  auto reply = ask<wire::CatalogReply>(wire::GetCatalog{});
  if (!reply.ok()) return reply.status();
  return catalog_.install(std::move(reply->catalog), manager_epoch_);
}

void ManagerSession::refresh_soon() {
  const uint64_t now_ns = worker_.now_ns();
  if (refreshing_ || closing_ || !end_.ok() || now_ns < refresh_again_ns_) return;
  refresh_again_ns_ = now_ns + kBetweenRefreshesNs;
  refreshing_ = true;
  const Status spawned = worker_.scheduler().spawn([this] {
    struct End {
      bool& refreshing;
      ~End() { refreshing = false; }  // also if memory runs out
    } const end{refreshing_};
    static_cast<void>(refresh_catalog());  // a caller that needs the catalog asks again
  });
  if (!spawned.ok()) refreshing_ = false;
}

}  // namespace loam::client
