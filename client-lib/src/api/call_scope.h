// Implementation of CallScope and CancelToken.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <loam/client/call.h>

#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/fiber/cancel_scope.h"
#include "common/fiber/scheduler.h"

namespace loam::client {

/// The list of fiber limits (fiber::CancelScope) that a token cancels.
///
/// Threads: any; add() and remove() on the thread of the limit's scheduler. Only the scheduler's thread touches a
/// limit, and only while the limit is in the list, so that it is alive.
class CancelToken::State : public std::enable_shared_from_this<State> {
 public:
  void cancel();
  bool cancelled() const {
    return cancelled_.load(std::memory_order_acquire);  // pairs with cancel()
  }
  /// Adds a limit, and cancels it at once if the token is cancelled. In the fiber of the limit.
  void add(fiber::CancelScope& limit);
  void remove(const fiber::CancelScope& limit);

 private:
  struct Entry {
    uint64_t number = 0;
    fiber::FiberScheduler* scheduler = nullptr;
    fiber::CancelScope* limit = nullptr;
  };
  void cancel_entry(uint64_t number);

  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  // Guarded by mutex_.
  std::vector<Entry> entries_;
  uint64_t numbers_ = 0;
};

/// Bounds the running fiber by a deadline and by tokens. Owner: a stack frame of the fiber.
class TokenCancelScope {
 public:
  TokenCancelScope(uint64_t deadline_ns, std::vector<std::shared_ptr<CancelToken::State>> tokens);
  ~TokenCancelScope();
  TokenCancelScope(const TokenCancelScope&) = delete;
  TokenCancelScope& operator=(const TokenCancelScope&) = delete;

 private:
  fiber::CancelScope limit_;
  const std::vector<std::shared_ptr<CancelToken::State>> tokens_;
};

/// A scope of a fiber bounds the fiber at once. The scopes of an ordinary thread form a chain; each call of the
/// thread bounds the fiber that does its work by the whole chain.
class CallScope::Impl {
 public:
  explicit Impl(const CallOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// The innermost scope of the calling thread; null in a fiber.
  static const Impl* of_thread();
  /// Ok while neither this scope nor an outer one has ended.
  Status status() const;
  /// Bounds the running fiber by this scope and the outer ones.
  void enter(std::optional<TokenCancelScope>& fiber) const { fiber.emplace(deadline_ns_, tokens_); }

 private:
  uint64_t deadline_ns_ = fiber::kForever;
  std::vector<std::shared_ptr<CancelToken::State>> tokens_;  // including those of the outer scopes of this thread
  const bool in_fiber_;
  const Impl* outer_ = nullptr;
  std::optional<TokenCancelScope> own_;  // set in a fiber only
};

}  // namespace loam::client
