#include "common/net/name_lookup.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "common/base/thread.h"

namespace loam::net {

struct NameLookups::Shared {
  struct Job {
    uint64_t number = 0;
    Address address;
  };
  struct Ended {
    uint64_t number = 0;
    Found found;
  };

  const Resolve look_up;
  std::mutex mutex;
  // Guarded by mutex.
  std::function<void()> wake;  // empty: the owner is gone
  std::deque<Job> waiting;
  std::vector<Ended> ended;
  size_t running = 0;
};

NameLookups::NameLookups(std::function<void()> wake, Resolve look_up)
    : shared_(std::make_shared<Shared>(std::move(look_up))) {
  shared_->wake = std::move(wake);
}

NameLookups::~NameLookups() {
  const std::lock_guard lock(shared_->mutex);
  shared_->wake = nullptr;
  shared_->waiting.clear();
}

uint64_t NameLookups::start(const Address& address, std::function<void(Found)> done) {
  const uint64_t number = ++numbers_;
  asked_.push_back({number, std::move(done)});
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back({number, address});
  if (shared_->running == kMaxLookups) return number;
  try {
    RealThread thread("loam-lookup", [shared = shared_] { run(shared); });
    thread.detach();
    ++shared_->running;
  } catch (const std::exception& error) {  // the system has no thread for it
    if (shared_->running > 0) return number;
    shared_->waiting.pop_back();
    shared_->ended.push_back({number, Status(StatusCode::kUnavailable,
                                             "no thread to look up host '" + address.host + "': " + error.what())});
    shared_->wake();
  }
  return number;
}

void NameLookups::run(const std::shared_ptr<Shared>& shared) {
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
    Found found = shared->look_up(job.address);
    const std::lock_guard lock(shared->mutex);
    shared->ended.push_back({job.number, std::move(found)});
    if (shared->wake) shared->wake();
  }
}

void NameLookups::forget(uint64_t number) {
  std::erase_if(asked_, [&](const Asked& asked) { return asked.number == number; });
  const std::lock_guard lock(shared_->mutex);
  std::erase_if(shared_->waiting, [&](const Shared::Job& job) { return job.number == number; });
}

size_t NameLookups::take() {
  if (asked_.empty()) return 0;
  std::vector<Shared::Ended> ended;
  {
    const std::lock_guard lock(shared_->mutex);
    ended.swap(shared_->ended);
  }
  size_t told = 0;
  for (Shared::Ended& one : ended) {
    const auto at = std::ranges::find(asked_, one.number, &Asked::number);
    if (at == asked_.end()) continue;
    const auto done = std::move(at->done);
    asked_.erase(at);
    done(std::move(one.found));
    ++told;
  }
  return told;
}

}  // namespace loam::net
