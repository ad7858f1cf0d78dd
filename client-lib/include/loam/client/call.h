// Deadlines and cancellation of calls: CallScope and CancelToken.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace loam::client {

/// Cancels calls to the library, from any thread.
///
/// A cancelled call soon returns kCancelled if it has had no effect, and kUnknownOutcome if its effect is not known.
/// A token stays cancelled for ever; make a new one for the next call. Copies are handles of the same token.
class CancelToken {
 public:
  /// Makes a token that is not cancelled.
  CancelToken();

  /// Cancels all calls, now under way or later, in scopes with this token. Idempotent. Any thread, also in a callback
  /// of the library. Does not wait for the calls.
  void cancel() const;
  /// True after cancel(). Any thread.
  bool cancelled() const;

  class State;
  /// For the library's own parts, not for applications.
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// The limits of a CallScope or of Client::async().
struct CallOptions {
  /// Time for all calls of the scope together. A call that takes longer returns kTimeout. 0: no limit beyond the
  /// time-outs of ClientOptions.
  uint64_t timeout_ns = 0;
  /// Token that cancels the calls of the scope.
  std::optional<CancelToken> cancel{};
};

/// Sets a deadline, a cancel token, or both, for every call to the library that the fiber or thread makes while the
/// scope lives.
///
///     CallScope statement({.timeout_ns = 50'000'000, .cancel = token});
///     auto record = tx.get(accounts, Key(1));  // kTimeout after 50 ms, kCancelled after token.cancel()
///     Status done = tx.commit();               // kUnknownOutcome if the time is over before the reply comes
///
/// Scopes nest: the earliest deadline counts, and every token. When the deadline of a scope has passed or its token
/// is cancelled, the calls under way end as follows:
///
///   * Reads, index lookups, begins and catalog calls return kTimeout or kCancelled. The client gives back an id
///     that arrives too late.
///   * A plain write or a change of the catalog that was sent returns kUnknownOutcome.
///   * A commit() that has not begun aborts the transaction. A commit() that has begun goes on: the call returns
///     kUnknownOutcome, the client resolves the outcome in the background, and its destructor waits for that.
///   * ScanStream::next() returns kTimeout and the stream lives on; if it was cancelled, the stream ends, also at
///     the storage nodes.
///   * Task::join() and Client::sleep_for() return early.
///
/// Owner: the stack frame of the fiber or thread that it bounds; nested scopes end in reverse order. A scope does not
/// bound fibers that are spawned in it.
class CallScope {
 public:
  /// Starts the scope; its time runs from now on.
  explicit CallScope(const CallOptions& options);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
