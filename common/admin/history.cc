// The thread that samples statistics, and the ring of its samples.
#include "common/admin/history.h"

#include <pthread.h>

#include "common/base/assert.h"

namespace loam {

void History::check_columns(size_t wanted) const {
  LOAM_CHECK(static_cast<size_t>(columns_.columns_size()) == wanted, "every name of the history is a statistic");
}

void History::start(std::function<std::optional<Numbers>()> read) {
  thread_ = std::thread([this, read = std::move(read)] { run(read); });
  pthread_setname_np(thread_.native_handle(), "loam-history");
}

void History::run(const std::function<std::optional<Numbers>()>& read) {
  std::unique_lock lock(mutex_);
  auto next = std::chrono::steady_clock::now();
  while (!changed_.wait_until(lock, next, [this] { return stopping_; })) {
    lock.unlock();
    const std::optional<Numbers> numbers = read();
    const auto at = std::chrono::system_clock::now().time_since_epoch();
    lock.lock();
    if (numbers) {
      const auto at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(at).count();
      samples_.push_back({static_cast<uint64_t>(at_ms), *numbers});
      if (samples_.size() > kMaxSamples) samples_.pop_front();
    }
    // After a long delay the missed times are left out.
    next = std::max(next + interval_, std::chrono::steady_clock::now());
  }
}

void History::fill(uint64_t after_ms, admin::HistoryReply& reply) {
  reply = columns_;
  const std::lock_guard lock(mutex_);
  for (const Sample& sample : samples_) {
    if (sample.at_ms <= after_ms) continue;
    admin::HistoryReply::Sample& to = *reply.add_samples();
    to.set_at_ms(sample.at_ms);
    to.mutable_numbers()->Add(sample.numbers.begin(), sample.numbers.end());
  }
}

void History::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace loam
