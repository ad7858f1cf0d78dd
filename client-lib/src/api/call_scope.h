// The inside of call scopes and cancel tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <loam/client/call.h>

#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/fiber/limit.h"
#include "common/fiber/scheduler.h"

namespace loam::client {

/// The limits of fibers that a token ends.
///
/// Threads: any; add() and remove() on the thread of the limit's scheduler. A limit is touched only by its scheduler's
/// thread, and only while it is in the list, so that it lives.
class CancelToken::State : public std::enable_shared_from_this<State> {
 public:
  void cancel();
  bool cancelled() const {
    return cancelled_.load(std::memory_order_acquire);  // pairs with cancel()
  }
  /// In the fiber of the limit; cancels it at once if the token is cancelled.
  void add(fiber::Limit& limit);
  void remove(const fiber::Limit& limit);

 private:
  struct Entry {
    uint64_t number = 0;
    fiber::FiberScheduler* scheduler = nullptr;
    fiber::Limit* limit = nullptr;
  };
  void cancel_entry(uint64_t number);

  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  // Guarded by mutex_.
  std::vector<Entry> entries_;
  uint64_t numbers_ = 0;
};

/// A limit of the running fiber with the tokens that cancel it. Owner: a frame of the fiber.
class BoundFiber {
 public:
  BoundFiber(uint64_t deadline_ns, std::vector<std::shared_ptr<CancelToken::State>> tokens);
  ~BoundFiber();
  BoundFiber(const BoundFiber&) = delete;
  BoundFiber& operator=(const BoundFiber&) = delete;

 private:
  fiber::Limit limit_;
  const std::vector<std::shared_ptr<CancelToken::State>> tokens_;
};

/// In a fiber the scope bounds it at once. Those of an ordinary thread form a chain, and each call of the thread bounds
/// the fiber that does its work.
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
  void bind(std::optional<BoundFiber>& fiber) const { fiber.emplace(deadline_ns_, tokens_); }

 private:
  uint64_t deadline_ns_ = fiber::kForever;
  std::vector<std::shared_ptr<CancelToken::State>> tokens_;  // with the outer scopes' of this thread
  const bool in_fiber_;
  const Impl* outer_ = nullptr;
  std::optional<BoundFiber> own_;  // in a fiber
};

}  // namespace loam::client
