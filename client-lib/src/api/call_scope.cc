// Limits of calls. fiber_call.h enters the scopes of an ordinary thread in the fiber that does its work.
#include "client-lib/src/api/call_scope.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/base/env.h"

namespace loam::client {
namespace {

#ifdef LOAM_ENV_SIM
SimThreadLocal<const CallScope::Impl> innermost_of_thread;
#else
thread_local const CallScope::Impl* innermost_of_thread = nullptr;
#endif

}  // namespace

// ---- CancelToken ---------------------------------------------------------------------------------------------------

void CancelToken::State::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_.store(true, std::memory_order_release);  // pairs with cancelled(): what the caller wrote before is seen
  // Each scheduler's thread cancels its own limits. It looks the limit up by its number again, because the limit may
  // have ended by then.
  for (const Entry& entry : entries_) {
    entry.scheduler->post([self = shared_from_this(), number = entry.number] { self->cancel_entry(number); });
  }
}

void CancelToken::State::cancel_entry(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, number, &Entry::number);
  if (found != entries_.end()) found->limit->cancel();
}

void CancelToken::State::add(fiber::CancelScope& limit) {
  const std::lock_guard lock(mutex_);
  if (cancelled()) return limit.cancel();
  entries_.push_back({++numbers_, fiber::FiberScheduler::current(), &limit});
}

void CancelToken::State::remove(const fiber::CancelScope& limit) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.limit == &limit; });
}

CancelToken::CancelToken() : state_(std::make_shared<State>()) {}
void CancelToken::cancel() const { state_->cancel(); }
bool CancelToken::cancelled() const { return state_->cancelled(); }

// ---- CallScope -----------------------------------------------------------------------------------------------------

TokenCancelScope::TokenCancelScope(uint64_t deadline_ns, std::vector<std::shared_ptr<CancelToken::State>> tokens)
    : limit_(deadline_ns), tokens_(std::move(tokens)) {
  try {
    for (const auto& token : tokens_) token->add(limit_);
  } catch (...) {  // no token may keep a pointer to a dead limit
    for (const auto& token : tokens_) token->remove(limit_);
    throw;
  }
}

TokenCancelScope::~TokenCancelScope() {
  for (const auto& token : tokens_) token->remove(limit_);
}

CallScope::Impl::Impl(const CallOptions& options) : in_fiber_(fiber::FiberScheduler::in_fiber()) {
  if (options.timeout_ns != 0) {
    const uint64_t now_ns = in_fiber_ ? fiber::FiberScheduler::current()->now_ns() : Env::now_ns();
    deadline_ns_ = options.timeout_ns < fiber::kForever - now_ns ? now_ns + options.timeout_ns : fiber::kForever;
  }
  if (options.cancel) tokens_.push_back(options.cancel->state());
  if (in_fiber_) {
    own_.emplace(deadline_ns_, tokens_);
    return;
  }
  // Only a fiber has cancel scopes. For an ordinary thread, this object records the deadline and the tokens of its
  // scopes. The fiber that does the work of a call enters them (fiber_call.h).
  outer_ = innermost_of_thread;
  if (outer_ != nullptr) {
    deadline_ns_ = std::min(deadline_ns_, outer_->deadline_ns_);
    tokens_.insert(tokens_.end(), outer_->tokens_.begin(), outer_->tokens_.end());
  }
  innermost_of_thread = this;
}

CallScope::Impl::~Impl() {
  if (!in_fiber_) innermost_of_thread = outer_;
}

Status CallScope::Impl::status() const {
  for (const auto& token : tokens_) {
    if (token->cancelled()) return {StatusCode::kCancelled, "the call was cancelled"};
  }
  if (Env::now_ns() < deadline_ns_) return ok_status();
  return {StatusCode::kTimeout, "the time-out of the call's scope has passed"};
}

const CallScope::Impl* CallScope::Impl::of_thread() {
  const Impl* const innermost = innermost_of_thread;
  return fiber::FiberScheduler::in_fiber() ? nullptr : innermost;
}

CallScope::CallScope(const CallOptions& options) : impl_(std::make_unique<Impl>(options)) {}
CallScope::~CallScope() = default;

}  // namespace loam::client
