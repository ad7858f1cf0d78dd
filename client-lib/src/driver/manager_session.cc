#include "client-lib/src/driver/manager_session.h"

#include <algorithm>
#include <utility>

namespace loam::client {
namespace {

/// Between two attempts to open a session while the cluster is starting.
constexpr uint64_t kOpenAgainNs = 50'000'000;

/// Takes at most kMaxCompletions elements off the front.
template <class T>
std::vector<T> take_front(std::vector<T>& all) {
  if (all.size() <= kMaxCompletions) return std::exchange(all, {});
  const auto end = all.begin() + kMaxCompletions;
  std::vector<T> front(std::make_move_iterator(all.begin()), std::make_move_iterator(end));
  all.erase(all.begin(), end);
  return front;
}

Link::Options link_options(const std::string& address, std::function<void(const Status&)> on_lost) {
  Link::Options options;
  options.address = address;
  options.name = "commit manager at " + address;
  options.reconnects = false;  // a lost connection is a lost session
  options.on_lost = std::move(on_lost);
  return options;
}

}  // namespace

ManagerSession::ManagerSession(Worker& worker, CatalogCache& catalog, const std::string& address,
                               uint64_t request_timeout_ns)
    : worker_(worker),
      catalog_(catalog),
      request_timeout_ns_(request_timeout_ns),
      link_(worker.transport(), link_options(address, [this](const Status& status) { end(status); }),
            [this] { return worker_.now_ns(); }) {}

Status ManagerSession::try_open(const std::string& client_name, uint64_t deadline_ns) {
  auto opened = Question<wire::SessionOpened>::ask(link_, wire::OpenSession{client_name}, deadline_ns);
  if (!opened.ok()) return opened.status();
  if (opened->session == SessionId()) return {StatusCode::kMalformed, link_.name() + " gave no session"};
  LOAM_RETURN_IF_ERROR(catalog_.install(std::move(opened->catalog)));
  id_ = opened->session;
  manager_epoch_ = opened->manager_epoch;
  admin_address_ = std::move(opened->admin_address);
  return ok_status();
}

Status ManagerSession::open(const std::string& client_name, uint64_t deadline_ns) {
  for (;;) {
    Status status = try_open(client_name, deadline_ns);
    // The connection stands and the manager says that storage nodes are still missing: wait for them.
    const bool starting = status.code() == StatusCode::kUnavailable && end_.ok();
    if (!starting || worker_.now_ns() + kOpenAgainNs >= deadline_ns) return status;
    worker_.scheduler().sleep_for(kOpenAgainNs);
  }
}

void ManagerSession::close(uint64_t deadline_ns) {
  closing_ = true;
  if (end_.ok() && id_ != SessionId()) {
    flush();
    static_cast<void>(Question<wire::SessionClosed>::ask(link_, wire::CloseSession{}, deadline_ns));
  }
  link_.close({StatusCode::kCancelled, "the client was closed"});
}

// ---- begin ---------------------------------------------------------------------------------------------------------

void ManagerSession::Ticket::on_begun(const BeginAnswer& got) {
  answer = got;
  if (got.status.ok() && got.snapshot_number != 0) ++session.snapshot_holders_[got.snapshot_number];
  if (!abandoned) return answered.notify();
  if (got.status.ok()) {
    if (got.id == TransactionId()) {
      session.release(got.snapshot_number);
    } else {
      session.complete(got.id, false, nullptr);
      session.cleared(got.id);
    }
  }
  delete this;
}

BeginAnswer ManagerSession::begin(bool read_only) {
  if (!end_.ok()) return {end_, {}, {}, 0, 0};
  auto ticket = std::make_unique<Ticket>(*this);
  begins_.add(ticket.get(), read_only);
  if (!ticket->answered.wait_until(worker_.now_ns() + request_timeout_ns_)) {
    // The answer may still come and bring an id, which must not stay open: the ticket waits for it on its own.
    ticket.release()->abandoned = true;
    return {{StatusCode::kTimeout, link_.name() + " did not answer a begin in time"}, {}, {}, 0, 0};
  }
  catalog_.heard_of(ticket->answer.catalog_version);
  if (catalog_.stale()) refresh_soon();
  return std::move(ticket->answer);
}

void ManagerSession::flush_begins() {
  while (!begins_.empty()) {
    BeginGroup group = begins_.take();
    const uint64_t token = 2 * next_token_++;
    const auto sent = link_.request(group.message(), this, token, kNoDeadline);
    if (sent.ok()) {
      open_begins_.emplace(token, std::move(group));
    } else {
      group.fail(sent.status());
    }
  }
}

Status ManagerSession::on_begun(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  const auto node = open_begins_.extract(token);
  const BeginGroup& group = node.mapped();
  if (opcode != wire::Opcode::kBegun) {
    const Status status = unexpected_reply(opcode, body);
    group.fail(status);
    return status.code() == StatusCode::kMalformed ? status : ok_status();
  }
  if (Status status = wire::decode_body(body, begun_); !status.ok()) {
    group.fail(status);
    return status;
  }
  group.answer(begun_);
  return ok_status();
}

void ManagerSession::release(uint64_t snapshot_number) {
  const auto found = snapshot_holders_.find(snapshot_number);
  if (found == snapshot_holders_.end() || --found->second > 0) return;
  snapshot_holders_.erase(found);
  released_.push_back(snapshot_number);
}

SnapshotLease::~SnapshotLease() {
  if (worker_.on_worker()) {
    session_.release(answer_.snapshot_number);
  } else {
    static_cast<void>(worker_.call([this] { session_.release(answer_.snapshot_number); }));
  }
}

// ---- complete ------------------------------------------------------------------------------------------------------

void ManagerSession::complete(TransactionId id, bool committed, CompletionWaiter* waiter, uint64_t delay_ns) {
  if (delay_ns != 0) {
    const Status spawned = worker_.scheduler().spawn([this, id, committed, waiter, delay_ns] {
      worker_.scheduler().sleep_for(delay_ns);
      complete(id, committed, waiter);
    });
    if (spawned.ok()) return;
  }
  completions_.outcomes.push_back({id, committed});
  completions_.waiters.push_back(waiter);
}

void ManagerSession::flush_completions() {
  while (!completions_.outcomes.empty()) {
    Completion batch{take_front(completions_.outcomes), take_front(completions_.waiters)};
    const uint64_t token = 2 * next_token_++ + 1;
    wire::Complete message{std::move(batch.outcomes)};
    const auto sent = link_.request(message, this, token, worker_.now_ns() + request_timeout_ns_);
    if (sent.ok()) {
      open_completions_.emplace(token, std::move(batch));
      continue;
    }
    for (CompletionWaiter* waiter : batch.waiters) {
      if (waiter != nullptr) waiter->on_completion_failure(sent.status(), false);
    }
  }
}

Status ManagerSession::on_completed(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  const auto node = open_completions_.extract(token);
  Status status;
  Status valid;
  if (opcode == wire::Opcode::kCompleted) {
    wire::Completed completed;
    status = valid = wire::decode_body(body, completed);
  } else {
    status = unexpected_reply(opcode, body);
    if (status.code() == StatusCode::kMalformed) valid = status;
  }
  for (CompletionWaiter* waiter : node.mapped().waiters) {
    if (waiter == nullptr) continue;
    if (status.ok()) {
      waiter->on_completed();
    } else {
      waiter->on_completion_failure(status, !valid.ok());
    }
  }
  return valid;
}

void ManagerSession::flush() {
  if (!end_.ok()) {
    cleared_.clear();
    released_.clear();
  }
  // Outcomes leave before begins, so that the new snapshots see them.
  flush_completions();
  while (!cleared_.empty()) link_.tell(wire::Cleared{take_front(cleared_)});
  while (!released_.empty()) link_.tell(wire::ReleaseSnapshots{take_front(released_)});
  flush_begins();
}

// ---- answers and ends ----------------------------------------------------------------------------------------------

Status ManagerSession::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  return token % 2 == 0 ? on_begun(token, opcode, body) : on_completed(token, opcode, body);
}

void ManagerSession::on_failure(uint64_t token, const Status& status, bool sent) {
  if (token % 2 == 0) {
    open_begins_.extract(token).mapped().fail(status);
    return;
  }
  const auto node = open_completions_.extract(token);
  for (CompletionWaiter* waiter : node.mapped().waiters) {
    if (waiter != nullptr) waiter->on_completion_failure(status, sent);
  }
}

void ManagerSession::end(const Status& status) {
  if (!end_.ok()) return;
  const std::string why(status.message());
  if (closing_) {
    end_ = {StatusCode::kCancelled, why};
  } else {
    end_ = {status.code() == StatusCode::kFenced ? StatusCode::kFenced : StatusCode::kUnavailable,
            "the session has ended, open a new client: " + why};
  }
}

void ManagerSession::give_up(const Status& status) {
  end(status);
  link_.close(end_);
}

// ---- catalog -------------------------------------------------------------------------------------------------------

Status ManagerSession::refresh_catalog() {
  LOAM_RETURN_IF_ERROR(end_);
  auto reply = ask<wire::CatalogReply>(wire::GetCatalog{});
  if (!reply.ok()) return reply.status();
  return catalog_.install(std::move(reply->catalog));
}

void ManagerSession::refresh_soon() {
  if (refreshing_ || closing_ || !end_.ok()) return;
  refreshing_ = true;
  const Status spawned = worker_.scheduler().spawn([this] {
    static_cast<void>(refresh_catalog());  // whoever needs it asks again
    refreshing_ = false;
  });
  if (!spawned.ok()) refreshing_ = false;
}

}  // namespace loam::client
