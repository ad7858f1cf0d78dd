// The threads of lookups share the structure Shared with the owner and keep it alive, because a lookup of the system
// cannot be interrupted and may last longer than the owner.

#include "common/net/tcp/host_resolver.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "common/base/thread.h"

namespace loam::net {

struct HostResolver::Shared {
  struct Job {
    uint64_t number = 0;
    Address address;
  };
  struct FinishedLookup {
    uint64_t number = 0;
    ResolveResult found;
  };

  const Resolve look_up;
  std::mutex mutex;
  // Guarded by mutex.
  std::function<void()> wake;  // empty: the owner has been destroyed
  std::deque<Job> waiting;
  std::vector<FinishedLookup> ended;
  size_t running = 0;
};

HostResolver::HostResolver(std::function<void()> wake, Resolve look_up)
    : shared_(std::make_shared<Shared>(std::move(look_up))) {
  shared_->wake = std::move(wake);
}

HostResolver::~HostResolver() {
  // Threads call `wake` under the mutex, so none calls it after this.
  const std::lock_guard lock(shared_->mutex);
  shared_->wake = nullptr;
  shared_->waiting.clear();
}

uint64_t HostResolver::submit(const Address& address, std::function<void(ResolveResult)> done) {
  const uint64_t number = ++numbers_;
  pending_.push_back({number, std::move(done)});
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back({number, address});
  // Each running thread takes further lookups from the list before it ends. So the lookup is made also without a new
  // thread.
  if (shared_->running == kMaxLookups) return number;
  try {
    RealThread thread("loam-lookup", [shared = shared_] { run(shared); });
    thread.detach();
    ++shared_->running;
  } catch (const std::exception& error) {
    // The system has no resources for another thread. If a lookup thread is running, it makes this lookup later.
    if (shared_->running > 0) return number;
    shared_->waiting.pop_back();
    shared_->ended.push_back({number, Status(StatusCode::kUnavailable,
                                             "no thread to look up host '" + address.host + "': " + error.what())});
    shared_->wake();
  }
  return number;
}

void HostResolver::run(const std::shared_ptr<Shared>& shared) {
  for (;;) {
    Shared::Job job;
    {
      const std::lock_guard lock(shared->mutex);
      if (shared->waiting.empty()) {
        --shared->running;
        return;
      }
      job = std::move(shared->waiting.front());
      shared->waiting.pop_front();
    }
    // Without the mutex, because this call may take half a minute.
    ResolveResult found = shared->look_up(job.address);
    const std::lock_guard lock(shared->mutex);
    shared->ended.push_back({job.number, std::move(found)});
    if (shared->wake) shared->wake();
  }
}

void HostResolver::cancel(uint64_t number) {
  // A running lookup continues. poll() drops its result, because its number is not in pending_ any more.
  std::erase_if(pending_, [&](const PendingLookup& lookup) { return lookup.number == number; });
  const std::lock_guard lock(shared_->mutex);
  std::erase_if(shared_->waiting, [&](const Shared::Job& job) { return job.number == number; });
}

size_t HostResolver::poll() {
  if (pending_.empty()) return 0;
  std::vector<Shared::FinishedLookup> ended;
  {
    const std::lock_guard lock(shared_->mutex);
    ended.swap(shared_->ended);
  }
  size_t completed = 0;
  for (Shared::FinishedLookup& one : ended) {
    const auto at = std::ranges::find(pending_, one.number, &PendingLookup::number);
    if (at == pending_.end()) continue;
    // Removed before the call, because `done` may call submit() or cancel().
    const auto done = std::move(at->done);
    pending_.erase(at);
    done(std::move(one.found));
    ++completed;
  }
  return completed;
}

}  // namespace loam::net
