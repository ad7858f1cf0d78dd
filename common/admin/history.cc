// The thread that samples statistics, and the ring of its samples.
#include "common/admin/history.h"

#include <pthread.h>

namespace loam {

void History::add(const std::vector<Column>& columns, std::function<std::optional<Numbers>()> read) {
  columns_.mutable_columns()->Add(columns.begin(), columns.end());
  sources_.push_back(std::move(read));
}

void History::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "loam-history");
}

std::optional<History::Numbers> History::read_sources() const {
  Numbers all;
  for (const auto& source : sources_) {
    const std::optional<Numbers> numbers = source();
    if (!numbers) return std::nullopt;
    all.insert(all.end(), numbers->begin(), numbers->end());
  }
  LOAM_CHECK(all.size() == static_cast<size_t>(columns_.columns_size()), "a source has a number for each column");
  return all;
}

void History::run() {
  std::unique_lock lock(mutex_);
  auto next = std::chrono::steady_clock::now();
  while (!changed_.wait_until(lock, next, [this] { return stopping_; })) {
    lock.unlock();
    const std::optional<Numbers> numbers = read_sources();
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
