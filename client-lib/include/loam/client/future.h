// The answer to a call that is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/status.h"

namespace loam::client {

/// What a Future waits for; made by the library. Any thread, or fibers of the client.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  /// The answer is there.
  virtual bool ready() const = 0;
  /// Waits for the answer. Not ok: a CallScope of the caller has ended, and the answer is still to come. Throws what
  /// the function of an asynchronous call threw.
  virtual Status wait() = 0;
  /// Waits at most `timeout_ns`; true if the answer is there.
  virtual bool wait_for(uint64_t timeout_ns) = 0;
  virtual void on_ready(std::function<void()> callback) = 0;
  virtual void cancel() = 0;
};

/// Result<T>, or Status for calls without a value.
template <class T>
struct AnswerTo {
  using Type = Result<T>;
};
template <>
struct AnswerTo<void> {
  using Type = Status;
};

/// An answer to come. Obtained from Client::async() and the *_async calls: start several, then wait, and their round
/// trips overlap.
///
/// Move-only. Dropping a future forgets the answer, not the call. Every function may be called from a fiber of the
/// client, which it suspends, or from an ordinary thread, which it blocks. Used by one fiber or thread at a time,
/// except cancel(). Destroyed before the client.
template <class T>
class Future {
 public:
  using Answer = AnswerTo<T>::Type;
  using Slot = std::optional<Answer>;

  /// `slot` holds the answer when `call` is ready.
  Future(std::shared_ptr<PendingCall> call, std::shared_ptr<Slot> slot)
      : call_(std::move(call)), slot_(std::move(slot)) {}

  /// get() will not wait.
  bool ready() const { return call_->ready(); }
  /// Waits at most `timeout_ns` nanoseconds. True: get() will not wait.
  bool wait_for(uint64_t timeout_ns) { return call_->wait_for(timeout_ns); }
  /// Waits and moves the answer out, so it is called once; or again, if a CallScope in which it waited has ended
  /// (kTimeout, kCancelled; ready() is then false). kInvalidArgument: the answer was taken.
  Answer get() {
    if (taken_) return Status(StatusCode::kInvalidArgument, "the answer of this future was taken");
    if (Status waited = call_->wait(); !waited.ok()) return waited;
    taken_ = true;
    return std::move(**slot_);
  }
  /// Calls `callback` when the answer is there, at once if it is there already. On the client's worker thread, which
  /// other fibers need: the callback wakes somebody (an event loop, a latch) and returns; it neither waits nor calls
  /// the client. An exception of it is logged. At most one callback, given before get().
  void on_ready(std::function<void()> callback) { call_->on_ready(std::move(callback)); }
  /// Cancels the call, as CancelToken::cancel() does. The answer still comes, soon. Any thread.
  void cancel() { call_->cancel(); }

 private:
  std::shared_ptr<PendingCall> call_;
  std::shared_ptr<Slot> slot_;
  bool taken_ = false;
};

}  // namespace loam::client
