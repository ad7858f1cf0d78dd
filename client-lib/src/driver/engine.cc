#include "client-lib/src/driver/engine.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/driver/limit_status.h"
#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/fiber/fiber_group.h"
#include "common/net/transport.h"

namespace loam::client {
namespace {

/// How long an orderly end waits for the commit manager's word.
constexpr uint64_t kCloseTimeoutNs = 2'000'000'000;
/// Interval between two checks whether requests are still under way.
constexpr uint64_t kCloseAgainNs = 1'000'000;
/// Before the second attempt to open a session; doubles up to kMaxReconnectNs.
constexpr uint64_t kFirstReopenNs = 20'000'000;
/// Longest that a server's advice to come back later is followed.
constexpr uint64_t kMaxAdviceNs = 1'000'000'000;

}  // namespace

Engine::Engine(rpc::Worker& worker, const std::string& manager_address, ClientOptions options)
    : worker_(worker),
      manager_address_(manager_address),
      options_(std::move(options)),
      admission_(options_.max_transactions, options_.max_waiting_begins),
      random_(entropy()) {
  worker_.set_hook(this);
}

Engine::~Engine() = default;

// ---- sessions ------------------------------------------------------------------------------------------------------

std::shared_ptr<Session> Engine::make_session() {
  Session::Events events;
  events.on_end = [this](const Session& session) { on_session_end(session); };
  events.on_overload = [this](uint64_t retry_after_ns) { on_overload(retry_after_ns); };
  auto session = std::make_shared<Session>(worker_, catalog_, counters_, options_, manager_address_, std::move(events));
  sessions_.push_back(session);
  return session;
}

void Engine::take(std::shared_ptr<Session> session) {
  present_ = std::move(session);
  session_id_.store(present_->id().value, std::memory_order_relaxed);
  session_open_.store(true, std::memory_order_relaxed);
  for (fiber::Event* waiting : std::exchange(awaiting_session_, {})) waiting->notify();
}

Status Engine::open() {
  auto session = make_session();
  present_ = session;
  LOAM_RETURN_IF_ERROR(session->manager().open(worker_.now_ns() + options_.connect_timeout_ns));
  take(std::move(session));
  return ok_status();
}

void Engine::reopen() {
  for (uint32_t attempt = 0; !closing_; ++attempt) {
    auto session = make_session();
    opening_ = session;
    last_failure_ = session->manager().open(worker_.now_ns() + options_.connect_timeout_ns);
    if (last_failure_.ok() && !closing_) return take(std::move(session));
    if (closing_) break;
    if (last_failure_ == StatusCode::kWrongCluster) {
      for (fiber::Event* waiting : std::exchange(awaiting_session_, {})) waiting->notify();
    }
    const uint64_t wait_ns = std::min(rpc::kMaxReconnectNs, kFirstReopenNs << std::min(attempt, 16u));
    worker_.scheduler().sleep_for(wait_ns / 2 + random() % (wait_ns / 2 + 1));  // not all clients at once
  }
}

void Engine::on_session_end(const Session& session) {
  if (&session == present_.get()) session_open_.store(false, std::memory_order_relaxed);
}

Result<std::shared_ptr<Session>> Engine::session(uint64_t deadline_ns) {
  while (!present_->status().ok()) {
    if (closing_) return Status(StatusCode::kCancelled, "the client was closed");
    // Asked again all the same: another commit manager may answer there later.
    if (last_failure_ == StatusCode::kWrongCluster) return last_failure_;
    fiber::Event opened;
    awaiting_session_.push_back(&opened);
    if (opened.wait_until(deadline_ns)) continue;
    std::erase(awaiting_session_, &opened);
    // What the commit manager says to those who wait, if it says something.
    const auto opening = opening_.lock();
    const bool refused = opening != nullptr && !opening->manager().last_refusal().ok();
    const Status& why =
        refused ? opening->manager().last_refusal() : (last_failure_.ok() ? present_->status() : last_failure_);
    return Status(StatusCode::kUnavailable, "no new session could be opened in time: " + std::string(why.message()));
  }
  return present_;
}

Status Engine::refresh_catalog() {
  auto reply = ask_manager<wire::CatalogReply>(wire::GetCatalog{});
  if (!reply.ok()) return reply.status();
  return catalog_.install(std::move(reply->catalog), present_->manager().manager_epoch());
}

void Engine::spawn_own(std::function<void()> body, const std::function<void()>& refused) {
  const auto kept = std::make_shared<std::function<void()>>(std::move(body));
  const Status spawned = worker_.scheduler().spawn([part = fiber::WaitPart(own_), kept] { (*kept)(); });
  if (!spawned.ok()) refused();
}

// ---- begins --------------------------------------------------------------------------------------------------------

Status Engine::admit(uint64_t deadline_ns) {
  const Gate::Entry entry = admission_.enter_by(deadline_ns);
  if (entry == Gate::Entry::kEntered) return ok_status();
  counters_.overloaded.add(1);
  const std::string open = "this client has " + std::to_string(admission_.places()) + " transactions open";
  if (entry == Gate::Entry::kTooMany) {
    return {StatusCode::kOverloaded, open + " and " + std::to_string(admission_.waiting()) +
                                         " more waiting to begin, the limit; try again later, with fewer fibers"};
  }
  return {StatusCode::kOverloaded, open + ", the limit, and none ended in time; finish some, or use fewer fibers"};
}

Result<Engine::Begun> Engine::begin(BeginKind kind) {
  const uint64_t deadline_ns = request_deadline();
  const bool writes = kind != BeginKind::kReadOnly;
  if (writes) LOAM_RETURN_IF_ERROR(admit(deadline_ns));
  const auto refused = [&](Status status) {
    if (writes) admission_.leave();
    return status;
  };
  for (;;) {
    auto session = this->session(deadline_ns);
    if (!session.ok()) return refused(session.status());
    Begun begun{std::move(session).value(), {}};
    ManagerSession& manager = begun.session->manager();
    begun.answer = manager.begin(kind);
    Status failed = begun.answer.status;
    if (failed.ok()) {
      failed = know_catalog(*begun.session, begun.answer);
      if (failed.ok()) return begun;
      if (kind == BeginKind::kReadWrite) {
        manager.give_back(begun.answer.id);
      } else {
        manager.release(begun.answer.snapshot_number);
      }
    }
    if (begun.session->status().ok() || worker_.now_ns() >= deadline_ns) return refused(failed);
  }
}

Result<BeginAnswer> Engine::upgrade(Session& session, uint64_t snapshot_number) {
  BeginAnswer answer = session.manager().upgrade(snapshot_number);
  LOAM_RETURN_IF_ERROR(answer.status);
  if (Status known = know_catalog(session, answer); !known.ok()) {
    session.manager().give_back(answer.id);
    return known;
  }
  return answer;
}

Status Engine::know_catalog(Session& session, const BeginAnswer& answer) {
  while (catalog_.catalog()->version < answer.catalog_version) {
    if (asking_catalog_) {  // one of all that begin now is enough
      fiber::Event asked;
      awaiting_catalog_.push_back(&asked);
      if (asked.wait_until(fiber::kForever)) continue;
      std::erase(awaiting_catalog_, &asked);
      return limit_status();
    }
    Env::probe("client.begin.older_catalog");
    struct End {
      Engine& engine;
      ~End() {
        engine.asking_catalog_ = false;
        for (fiber::Event* waiting : std::exchange(engine.awaiting_catalog_, {})) waiting->notify();
      }
    } end{*this};
    asking_catalog_ = true;
    return session.manager().refresh_catalog();
  }
  return ok_status();
}

Result<std::shared_ptr<SnapshotLease>> Engine::lease_snapshot() {
  LOAM_ASSIGN_OR_RETURN(Begun begun, begin(BeginKind::kReadOnly));
  return std::make_shared<SnapshotLease>(worker_, std::move(begun.session), std::move(begun.answer));
}

void Engine::on_overload(uint64_t retry_after_ns) {
  counters_.overloaded.add(1);
  overloaded_until_ns_ = std::max(overloaded_until_ns_, worker_.now_ns() + std::min(retry_after_ns, kMaxAdviceNs));
}

uint64_t Engine::overload_wait_ns() const {
  const uint64_t now_ns = worker_.now_ns();
  return overloaded_until_ns_ > now_ns ? overloaded_until_ns_ - now_ns : 0;
}

bool Engine::records_lost() const {
  const auto& nodes = catalog_.catalog()->nodes;
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const wire::NodeInfo& node) { return node.state == wire::NodeState::kLost; });
}

// ---- rounds and the end --------------------------------------------------------------------------------------------

uint64_t Engine::before_poll() {
  if (present_ != nullptr && present_->manager().opened() && !present_->status().ok() && !reopening_ && !closing_) {
    reopening_ = true;
    const auto done = [this] { reopening_ = false; };
    spawn_own(
        [this, done] {
          reopen();
          done();
        },
        done);
  }
  uint64_t deadline_ns = net::kForever;
  for (const auto& session : sessions_) {
    session->before_poll();
    deadline_ns = std::min(deadline_ns, session->earliest_deadline_ns());
  }
  return worker_.scheduler().has_ready_fibers() ? worker_.now_ns() : deadline_ns;
}

void Engine::after_poll(uint64_t now_ns) {
  for (size_t i = 0; i < sessions_.size(); ++i) sessions_[i]->after_poll(now_ns);
  std::erase_if(sessions_, [this](const auto& session) { return session != present_ && session->idle(); });
}

void Engine::close() {
  closing_ = true;
  const uint64_t deadline_ns = worker_.now_ns() + kCloseTimeoutNs;
  while (runs_.open() > 0 && worker_.now_ns() < deadline_ns) worker_.scheduler().sleep_for(kCloseAgainNs);
  present_->manager().close(deadline_ns);
  const Status closed(StatusCode::kCancelled, "the client was closed");
  for (const auto& session : std::vector(sessions_)) session->fenced(closed);
  for (fiber::Event* waiting : std::exchange(awaiting_session_, {})) waiting->notify();
  runs_.wait();
  own_.wait();
  const auto rests = [](const auto& session) { return session->idle(); };
  while (!std::all_of(sessions_.begin(), sessions_.end(), rests)) worker_.scheduler().sleep_for(kCloseAgainNs);
  worker_.set_hook(nullptr);
}

ClientStatistics Engine::statistics() const {
  ClientStatistics now;
  statistics::add_counters<ClientNumbers>(counters_, now);
  statistics::add_counters<net::TransportNumbers>(worker_.transport_counters(), now);
  return now;
}

}  // namespace loam::client
