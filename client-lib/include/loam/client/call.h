// Deadlines and cancellation of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace loam::client {

/// Cancels calls to the library, from any thread.
///
/// A cancelled call returns kCancelled soon: without an effect, or, if the effect is not known, kUnknownOutcome. Once
/// cancelled, a token stays so; take a new one for the next call. Copies are handles of one token.
class CancelToken {
 public:
  CancelToken();

  /// Cancels all calls under way, and all later ones, in scopes with this token. Idempotent. Any thread; does not wait
  /// for the calls. It may be called in a callback of the library.
  void cancel() const;
  bool cancelled() const;

  class State;
  /// What the library's own parts share; nothing for applications.
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

struct CallOptions {
  /// Time for all calls of the scope together. A call that takes longer returns kTimeout. 0: the time-outs of
  /// ClientOptions alone.
  uint64_t timeout_ns = 0;
  /// Ends the calls of the scope.
  std::optional<CancelToken> cancel{};
};

/// Bounds every call to the library that the calling fiber or thread makes while the scope lives.
///
///     CallScope statement({.timeout_ns = 50'000'000, .cancel = token});
///     auto record = tx.get(accounts, Key(1));  // kTimeout after 50 ms, kCancelled after token.cancel()
///     Status done = tx.commit();               // kUnknownOutcome if the time is over before the answer
///
/// Scopes nest: the earlier deadline counts, and the token of each. A scope that ends has these effects:
///
///   * reads, index look-ups, begins, catalog calls: kTimeout or kCancelled. An id that was drawn in vain is given
///   back.
///   * a plain write or a change of the catalog that was sent: kUnknownOutcome.
///   * commit() that has not begun: the transaction is aborted. One that has begun goes on: the answer is
///     kUnknownOutcome, the client resolves the outcome in the background, and its destructor waits for that.
///   * ScanStream::next(): with kTimeout the stream lives on; a cancelled stream is ended at the nodes, too.
///   * Task::join() and Client::sleep_for() return early.
///
/// Owner: the frame of the fiber or thread that it bounds; scopes of one frame end in reverse order. A scope does not
/// bound fibers that are spawned in it.
class CallScope {
 public:
  explicit CallScope(const CallOptions& options);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
