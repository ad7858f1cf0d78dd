#include "deploy/cli/src/demo/movers.h"

#include <numeric>
#include <utility>

#include "common/base/env.h"

namespace loam::cli {
namespace {

constexpr int64_t kLargestAmount = 100;
constexpr uint64_t kRetryAfterNs = 1'000'000;

// splitmix64: a fiber's own stream of random numbers.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t MoverCounts::transfers() const {
  return std::accumulate(acknowledged.begin(), acknowledged.end(), uint64_t{0});
}

Movers::Movers(client::Client& client, const AccountTables& tables, const MoverOptions& options, HeldKeys* held_keys)
    : client_(client), tables_(tables), options_(options), held_keys_(held_keys) {
  counts_.acknowledged.resize(options.fibers);
  counts_.unknown.resize(options.fibers);
}

void Movers::start() {
  for (unsigned fiber = 0; fiber < options_.fibers; ++fiber) {
    tasks_.push_back(client_.spawn([this, fiber] { move_until_stopped(fiber); }));
  }
}

void Movers::stop() {
  client_.run([this] { stopped_ = true; });
}

void Movers::join() {
  for (client::Task& task : tasks_) task.join();
}

MoverCounts Movers::counts() {
  MoverCounts counts = client_.run([this] { return counts_; });
  counts.fenced = client_.statistics().fenced;
  return counts;
}

Histogram Movers::take_latencies() {
  return client_.run([this] { return std::exchange(latencies_, Histogram()); });
}

Silence Movers::take_silence() {
  return client_.run([this] { return std::exchange(silence_, Silence()); });
}

void Movers::note_success(unsigned fiber, uint64_t begin_ns) {
  const uint64_t now_ns = Env::now_ns();
  latencies_.add(now_ns - begin_ns);
  ++counts_.acknowledged[fiber];
  if (begin_ns <= newest_begin_ns_) return;
  const uint64_t silent_ns = newest_begin_ns_ == 0 ? 0 : begin_ns - newest_begin_ns_;
  if (silent_ns >= silence_.length_ns) silence_ = {silent_ns, now_ns};
  newest_begin_ns_ = begin_ns;
}

void Movers::move_until_stopped(unsigned fiber) {
  uint64_t random = options_.seed + ledger_key(options_.client_number, fiber).value;
  next_random(random);
  while (!stopped_) {
    const uint64_t from = next_random(random) % tables_.count;
    const uint64_t to = (from + 1 + next_random(random) % (tables_.count - 1)) % tables_.count;
    const int64_t amount = 1 + static_cast<int64_t>(next_random(random) % kLargestAmount);
    const uint64_t begin_ns = Env::now_ns();
    if (held_keys_ != nullptr) held_keys_->begin(fiber, from, to);
    const Status status = transfer(client_, tables_, from, to, amount, ledger_key(options_.client_number, fiber));
    if (held_keys_ != nullptr) held_keys_->end(fiber);
    if (status.ok()) {
      note_success(fiber, begin_ns);
      continue;
    }
    note_failure(fiber, status);
    if (!counts_.fatal.empty()) return;
    client_.sleep_for(kRetryAfterNs);
  }
}

void Movers::note_failure(unsigned fiber, const Status& status) {
  switch (status.code()) {
    case StatusCode::kConflict:
    case StatusCode::kOverloaded:
      ++counts_.gave_up;
      return;
    case StatusCode::kUnknownOutcome:
      ++counts_.unknown[fiber];
      return;
    case StatusCode::kFenced:
    case StatusCode::kUnavailable:
    case StatusCode::kTimeout:
    case StatusCode::kSnapshotTooOld:
    case StatusCode::kCancelled:
      ++counts_.refused;
      return;
    default:
      if (counts_.fatal.empty()) counts_.fatal = status.to_string();
  }
}

}  // namespace loam::cli
