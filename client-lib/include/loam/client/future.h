// Future: the result of a call that is still under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/status.h"

namespace loam::client {

/// The call that a Future waits for. The library implements it; applications use Future. Any thread, or fibers of the
/// client.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  /// True if the result has arrived.
  virtual bool ready() const = 0;
  /// Waits for the result. An error means that a CallScope of the caller has ended and the result is still to come.
  /// Throws the exception of an asynchronous call's function.
  virtual Status wait() = 0;
  /// Waits at most `timeout_ns` nanoseconds. Returns true if the result has arrived.
  virtual bool wait_for(uint64_t timeout_ns) = 0;
  /// Calls `callback` once when the result has arrived, as Future::on_ready() says.
  virtual void on_ready(std::function<void()> callback) = 0;
  /// Cancels the call. Any thread.
  virtual void cancel() = 0;
};

/// Type of the result of a call with a value of type T: Result<T>, or Status for calls without a value.
template <class T>
struct AnswerTo {
  using Type = Result<T>;  ///< the result
};
/// Type of the result of a call without a value.
template <>
struct AnswerTo<void> {
  using Type = Status;  ///< the result
};

/// The future result of an asynchronous call. Client::async() and the *_async calls return futures. A caller that
/// starts several calls and then waits for them overlaps their round trips.
///
/// Move-only. The destructor drops the result; the call itself goes on. A fiber of the client or an ordinary thread
/// may call every function; a waiting function suspends the fiber or blocks the thread. One fiber or thread uses a
/// future at a time, except for cancel(). Futures are destroyed before their client.
template <class T>
class Future {
 public:
  /// Result<T>, or Status for T = void.
  using Answer = AnswerTo<T>::Type;
  /// Holds the result; shared with the call.
  using SharedResult = std::optional<Answer>;

  /// For the library. `slot` has the result when `call` is ready.
  Future(std::shared_ptr<PendingCall> call, std::shared_ptr<SharedResult> slot)
      : call_(std::move(call)), slot_(std::move(slot)) {}

  /// True if the result has arrived, so that get() does not wait.
  bool ready() const { return call_->ready(); }
  /// Waits at most `timeout_ns` nanoseconds. Returns true if the result has arrived.
  bool wait_for(uint64_t timeout_ns) { return call_->wait_for(timeout_ns); }
  /// Waits for the result and moves it out. Call it once; call it again only if a CallScope ended the wait (kTimeout,
  /// kCancelled, and ready() is false). kInvalidArgument: an earlier get() has moved the result out.
  Answer get() {
    if (taken_)
      return Status(StatusCode::kInvalidArgument,
                    "get() was called twice: an earlier call has taken the result of this future");
    if (Status waited = call_->wait(); !waited.ok()) return waited;
    taken_ = true;
    return std::move(**slot_);
  }
  /// Calls `callback` once when the result has arrived; at once if it has arrived already. The callback runs on the
  /// client's worker thread, which other fibers need: it should only wake a waiting thread or event loop, and must
  /// neither wait nor call the client. An exception that it throws is logged. At most one callback, set before get().
  void on_ready(std::function<void()> callback) { call_->on_ready(std::move(callback)); }
  /// Cancels the call, as CancelToken::cancel() does. A result arrives soon in any case. Any thread.
  void cancel() { call_->cancel(); }

 private:
  std::shared_ptr<PendingCall> call_;
  std::shared_ptr<SharedResult> slot_;
  bool taken_ = false;
};

}  // namespace loam::client
