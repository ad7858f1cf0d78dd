// The client's sessions one after another, the begins of transactions, and the hooks of the worker's rounds.
// session.cc and manager_session.cc have one session each; commit_driver.cc has the commits.
#include "client-lib/src/driver/engine.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/driver/cancel_scope_status.h"
#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/fiber/fiber_group.h"
#include "common/net/transport/transport.h"

namespace loam::client {
namespace {

/// Most time for which close() waits for commits under way and for the commit manager's reply.
constexpr uint64_t kCloseTimeoutNs = 2'000'000'000;
/// Interval between two checks whether requests are still under way.
constexpr uint64_t kClosePollIntervalNs = 1'000'000;
/// Wait before the second attempt to open a session; it doubles up to kMaxReconnectNs.
constexpr uint64_t kInitialReopenDelayNs = 20'000'000;
/// Longest wait by a server's advice (retry_after_ns) that the client follows.
constexpr uint64_t kMaxRetryAfterNs = 1'000'000'000;

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
  if (!timer_) timer_.emplace(latencies_).watch(worker_.transport().last_look_ns());
  auto session =
      std::make_shared<Session>(worker_, catalog_, counters_, options_, manager_address_, *timer_, std::move(events));
  sessions_.push_back(session);
  return session;
}

void Engine::set_current_session(std::shared_ptr<Session> session) {
  current_session_ = std::move(session);
  session_id_.store(current_session_->id().value, std::memory_order_relaxed);
  session_open_.store(true, std::memory_order_relaxed);
  for (fiber::Event* waiting : std::exchange(session_waiters_, {})) waiting->notify();
}

Status Engine::open() {
  auto session = make_session();
  current_session_ = session;
  LOAM_RETURN_IF_ERROR(session->manager().open(worker_.now_ns() + options_.connect_timeout_ns));
  set_current_session(std::move(session));
  return ok_status();
}

void Engine::reopen() {
  for (uint32_t attempt = 0; !closing_; ++attempt) {
    auto session = make_session();
    opening_ = session;
    last_failure_ = session->manager().open(worker_.now_ns() + options_.connect_timeout_ns);
    if (last_failure_.ok() && !closing_) return set_current_session(std::move(session));
    if (closing_) break;
    // Callers that wait for a session fail now (session()). The attempts go on.
    if (last_failure_ == StatusCode::kWrongCluster) {
      for (fiber::Event* waiting : std::exchange(session_waiters_, {})) waiting->notify();
    }
    const uint64_t wait_ns = std::min(rpc::kMaxReconnectNs, kInitialReopenDelayNs << std::min(attempt, 16u));
    worker_.scheduler().sleep_for(wait_ns / 2 +
                                  random() % (wait_ns / 2 + 1));  // jitter: clients must not all return at once
  }
}

void Engine::on_session_end(const Session& session) {
  if (&session == current_session_.get()) session_open_.store(false, std::memory_order_relaxed);
}

Result<std::shared_ptr<Session>> Engine::session(uint64_t deadline_ns) {
  while (!current_session_->status().ok()) {
    if (closing_) return Status(StatusCode::kCancelled, "the client was closed");
    // The caller fails at once. reopen() goes on, because the right commit manager may answer at the address later.
    if (last_failure_ == StatusCode::kWrongCluster) return last_failure_;
    fiber::Event opened;
    session_waiters_.push_back(&opened);
    if (opened.wait_until(deadline_ns)) continue;
    std::erase(session_waiters_, &opened);
    // The best explanation is the commit manager's last refusal, then the failure of the last attempt.
    const auto opening = opening_.lock();
    const bool refused = opening != nullptr && !opening->manager().last_refusal().ok();
    const Status& why =
        refused ? opening->manager().last_refusal() : (last_failure_.ok() ? current_session_->status() : last_failure_);
    return Status(StatusCode::kUnavailable, "no new session could be opened in time: " + std::string(why.message()));
  }
  return current_session_;
}

Status Engine::refresh_catalog() {
  auto reply = call_manager<wire::GetCatalogReply>(wire::GetCatalog{});
  if (!reply.ok()) return reply.status();
  return catalog_.install(std::move(reply->catalog), current_session_->manager().manager_epoch());
}

void Engine::spawn_background(std::function<void()> body, const std::function<void()>& refused) {
  const auto kept = std::make_shared<std::function<void()>>(std::move(body));
  const Status spawned =
      worker_.scheduler().spawn([part = fiber::WaitGroupToken(background_fibers_), kept] { (*kept)(); });
  if (!spawned.ok()) refused();
}

// ---- begins --------------------------------------------------------------------------------------------------------

Status Engine::admit(uint64_t deadline_ns) {
  const AdmissionLimiter::Admission admission = admission_.acquire_until(deadline_ns);
  if (admission == AdmissionLimiter::Admission::kAdmitted) return ok_status();
  counters_.overloaded.add(1);
  const std::string open = "this client has " + std::to_string(admission_.capacity()) + " transactions open";
  if (admission == AdmissionLimiter::Admission::kQueueFull) {
    return {StatusCode::kOverloaded, open + " and " + std::to_string(admission_.waiting()) +
                                         " more waiting to begin, the limit; try again later, with fewer fibers"};
  }
  return {StatusCode::kOverloaded, open + ", the limit, and none ended in time; finish some, or use fewer fibers"};
}

Result<Engine::OpenTransaction> Engine::begin(BeginKind kind) {
  const uint64_t deadline_ns = request_deadline();
  const bool writes = kind != BeginKind::kReadOnly;
  // Step 1: admission. A read-only transaction needs none, because it writes nothing and holds no id.
  if (writes) LOAM_RETURN_IF_ERROR(admit(deadline_ns));
  const auto refused = [&](Status status) {
    if (writes) admission_.release();
    return status;
  };
  for (;;) {
    // Step 2: the begin under the current session. If this session ends meanwhile, the loop begins under the next one:
    // recovery completes the ids of an ended session.
    auto session = this->session(deadline_ns);
    if (!session.ok()) return refused(session.status());
    OpenTransaction begun{std::move(session).value(), {}};
    ManagerSession& manager = begun.session->manager();
    begun.answer = manager.begin(kind);
    Status failed = begun.answer.status;
    if (failed.ok()) {
      // Step 3: the catalog that the reply names. Without it the transaction might miss an index, so the client gives
      // the id or the snapshot back (R29, index creation).
      failed = ensure_catalog(*begun.session, begun.answer);
      if (failed.ok()) return begun;
      if (kind == BeginKind::kReadWrite) {
        manager.release_id(begun.answer.id);
      } else {
        manager.release(begun.answer.snapshot_number);
      }
    }
    if (begun.session->status().ok() || worker_.now_ns() >= deadline_ns) return refused(failed);
  }
}

Result<BeginResult> Engine::upgrade(Session& session, uint64_t snapshot_number) {
  BeginResult answer = session.manager().upgrade(snapshot_number);
  LOAM_RETURN_IF_ERROR(answer.status);
  if (Status known = ensure_catalog(session, answer); !known.ok()) {
    session.manager().release_id(answer.id);
    return known;
  }
  return answer;
}

Status Engine::ensure_catalog(Session& session, const BeginResult& answer) {
  while (catalog_.catalog()->version < answer.catalog_version) {
    if (refreshing_catalog_) {  // one fetch serves all fibers
      fiber::Event asked;
      catalog_waiters_.push_back(&asked);
      if (asked.wait_until(fiber::kForever)) continue;
      std::erase(catalog_waiters_, &asked);
      return cancel_scope_status();
    }
    Env::probe("client.begin.older_catalog");
    struct OnExit {
      Engine& engine;
      ~OnExit() {
        engine.refreshing_catalog_ = false;
        for (fiber::Event* waiting : std::exchange(engine.catalog_waiters_, {})) waiting->notify();
      }
    } end{*this};
    refreshing_catalog_ = true;
    // One fetch is enough: the commit manager has named the version, so its catalog is not older.
    return session.manager().refresh_catalog();
  }
  return ok_status();
}

Result<std::shared_ptr<RegisteredSnapshot>> Engine::register_snapshot() {
  LOAM_ASSIGN_OR_RETURN(OpenTransaction begun, begin(BeginKind::kReadOnly));
  return std::make_shared<RegisteredSnapshot>(worker_, std::move(begun.session), std::move(begun.answer));
}

void Engine::on_overload(uint64_t retry_after_ns) {
  counters_.overloaded.add(1);
  overloaded_until_ns_ = std::max(overloaded_until_ns_, worker_.now_ns() + std::min(retry_after_ns, kMaxRetryAfterNs));
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
  // Replaces an ended session. One that was never opened belongs to open(), which reports its failure. If there is no
  // free fiber, the next round tries again.
  if (current_session_ != nullptr && current_session_->manager().opened() && !current_session_->status().ok() &&
      !reopening_ && !closing_) {
    reopening_ = true;
    const auto done = [this] { reopening_ = false; };
    spawn_background(
        [this, done] {
          reopen();
          done();
        },
        done);
  }
  uint64_t deadline_ns = net::kForever;
  for (const auto& session : sessions_) {
    session->before_poll();
    // Old sessions take part until their last request has ended, because requests must get their failures.
    deadline_ns = std::min(deadline_ns, session->earliest_deadline_ns());
  }
  if (timer_) timer_->before_poll();
  return worker_.scheduler().has_ready_fibers() ? worker_.now_ns() : deadline_ns;
}

latency::Latencies Engine::latencies() const {
  latency::Latencies all;
  all.add(latencies_);
  all.now_ns = Env::now_ns();
  return all;
}

void Engine::after_poll(uint64_t now_ns) {
  if (timer_) timer_->after_poll(now_ns);
  for (size_t i = 0; i < sessions_.size(); ++i) sessions_[i]->after_poll(now_ns);
  std::erase_if(sessions_, [this](const auto& session) { return session != current_session_ && session->idle(); });
}

void Engine::close() {
  closing_ = true;
  const uint64_t deadline_ns = worker_.now_ns() + kCloseTimeoutNs;
  // Phase 1: let the commits under way finish, because the end of the session would leave them to recovery.
  while (commits_in_flight_.open() > 0 && worker_.now_ns() < deadline_ns)
    worker_.scheduler().sleep_for(kClosePollIntervalNs);
  // Phase 2: close the session in order, and end all old ones.
  current_session_->manager().close(deadline_ns);
  const Status closed(StatusCode::kCancelled, "the client was closed");
  for (const auto& session : std::vector(sessions_)) session->on_fenced(closed);
  for (fiber::Event* waiting : std::exchange(session_waiters_, {})) waiting->notify();
  // Phase 3: wait until no fiber and no request refers to this object.
  commits_in_flight_.wait();
  background_fibers_.wait();
  const auto rests = [](const auto& session) { return session->idle(); };
  while (!std::all_of(sessions_.begin(), sessions_.end(), rests)) worker_.scheduler().sleep_for(kClosePollIntervalNs);
  worker_.set_hook(nullptr);
}

ClientStatistics Engine::statistics() const {
  ClientStatistics now;
  statistics::add_counters<ClientNumbers>(counters_, now);
  statistics::add_counters<net::TransportNumbers>(worker_.transport_counters(), now);
  return now;
}

}  // namespace loam::client
