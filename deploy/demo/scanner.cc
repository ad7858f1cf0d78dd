// The thread that checks the sum of all balances over and over while clients move money and processes fail.
#include "deploy/demo/scanner.h"

#include <chrono>

namespace loam::cli {
namespace {

constexpr size_t kMaxListedErrors = 10;
constexpr auto kTryAgainAfter = std::chrono::milliseconds(2);

}  // namespace

Scanner::Scanner(client::Client& client, const AccountTables& tables)
    : client_(client), tables_(tables), thread_([this] { run(); }) {}

// Relaxed, because the flag guards no other data.
void Scanner::stop() {
  stopped_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

void Scanner::run() {
  while (!stopped_.load(std::memory_order_relaxed)) {  // relaxed: one scan more is harmless
    const Status status = check_total(client_, tables_);
    const bool passes = is_retryable(status);
    {
      const std::lock_guard lock(mutex_);
      if (status.ok()) {
        ++right_;
      } else if (passes) {
        ++refused_;
      } else if (wrong_.size() < kMaxListedErrors) {
        wrong_.emplace_back(status.message());  // further errors would only repeat the first ones
      }
    }
    if (!status.ok()) std::this_thread::sleep_for(kTryAgainAfter);
  }
}

uint64_t Scanner::right() const {
  const std::lock_guard lock(mutex_);
  return right_;
}

uint64_t Scanner::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

std::vector<std::string> Scanner::wrong() const {
  const std::lock_guard lock(mutex_);
  return wrong_;
}

}  // namespace loam::cli
