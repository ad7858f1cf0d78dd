// The answer to a request that is on its way.
#pragma once

#include <memory>
#include <utility>

#include "common/base/status.h"

namespace loam::client {

/// What a Future waits on; made by the library.
template <class T>
class Pending {
 public:
  virtual ~Pending() = default;
  /// True when take() will not wait. Any thread.
  virtual bool ready() const = 0;
  /// Waits for the answer and hands it over; called once.
  virtual Result<T> take() = 0;
};

/// An answer to come. Move-only. Obtained from the *_async calls: start several, then wait, and their round trips
/// overlap. Dropping it forgets the answer, not the request.
///
/// get() may be called from a fiber of the client, which it suspends, or from an ordinary thread, which it blocks.
template <class T>
class Future {
 public:
  explicit Future(std::shared_ptr<Pending<T>> pending) : pending_(std::move(pending)) {}

  bool ready() const { return pending_->ready(); }
  /// Waits; the answer is moved out, so call it once.
  Result<T> get() { return pending_->take(); }

 private:
  std::shared_ptr<Pending<T>> pending_;
};

}  // namespace loam::client
