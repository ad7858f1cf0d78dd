// The handover of one state at a time from the server thread to the writer's thread. state_file.cc writes it.
#include "commit-manager/src/store/state_writer.h"

#include <mutex>
#include <utility>

#include "common/base/assert.h"

namespace loam::commit {

StateWriter::~StateWriter() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateWriter::start(std::function<void(const Status&)> done) {
  done_ = std::move(done);
  thread_ = Thread("loam-state", [this] { run(); });
}

std::optional<Status> StateWriter::store(Bytes state) {
  if (!thread_.joinable()) return store_.store(state);
  {
    const std::scoped_lock lock(mutex_);
    LOAM_CHECK(!has_pending_state_, "the core stores one state at a time");
    pending_state_.assign(state.begin(), state.end());  // the core may reuse its bytes after this call
    has_pending_state_ = true;
  }
  changed_.notify_all();
  return std::nullopt;
}

void StateWriter::run() {
  Buffer state;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || has_pending_state_; });
      if (stopping_) return;
      // The swap gives the buffer of the state before back, so two buffers serve all stores.
      state.swap(pending_state_);
      has_pending_state_ = false;
    }
    // Without the mutex: the disk may take long, and `done` may lead to the next store() at once.
    done_(store_.store(state));
  }
}

}  // namespace loam::commit
