// The fibers of the workload run on the worker thread of the client. Other threads read and change its state there,
// too, by client_.run(). So no member needs a lock.
#include "deploy/demo/transfer_workload.h"

#include <numeric>
#include <utility>

#include "common/base/env.h"

namespace loam::cli {
namespace {

constexpr int64_t kMaxAmount = 100;
constexpr uint64_t kRetryAfterNs = 1'000'000;

// splitmix64, which gives each fiber a random stream of its own.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t TransferCounts::transfers() const {
  return std::accumulate(acknowledged.begin(), acknowledged.end(), uint64_t{0});
}

TransferWorkload::TransferWorkload(client::Client& client, const AccountTables& tables,
                                   const TransferWorkloadOptions& options, InFlightKeys* in_flight_keys)
    : client_(client), tables_(tables), options_(options), in_flight_keys_(in_flight_keys) {
  counts_.acknowledged.resize(options.fibers);
  counts_.unknown.resize(options.fibers);
}

void TransferWorkload::start() {
  for (unsigned fiber = 0; fiber < options_.fibers; ++fiber) {
    tasks_.push_back(client_.spawn([this, fiber] { move_until_stopped(fiber); }));
  }
}

void TransferWorkload::stop() {
  client_.run([this] { stopped_ = true; });
}

void TransferWorkload::join() {
  for (client::Task& task : tasks_) task.join();
}

TransferCounts TransferWorkload::counts() {
  TransferCounts counts = client_.run([this] { return counts_; });
  counts.fenced = client_.statistics().fenced;
  return counts;
}

Histogram TransferWorkload::fetch_and_reset_latencies() {
  return client_.run([this] { return std::exchange(latencies_, Histogram()); });
}

Stall TransferWorkload::fetch_and_reset_longest_stall() {
  return client_.run([this] { return std::exchange(longest_stall_, Stall()); });
}

void TransferWorkload::record_success(unsigned fiber, uint64_t begin_ns) {
  const uint64_t now_ns = Env::now_ns();
  latencies_.add(now_ns - begin_ns);
  ++counts_.acknowledged[fiber];
  // A stall is the gap between the begins of two transfers that were acknowledged. A transfer that began before the
  // newest one cannot extend a gap.
  if (begin_ns <= newest_begin_ns_) return;
  const uint64_t silent_ns = newest_begin_ns_ == 0 ? 0 : begin_ns - newest_begin_ns_;
  if (silent_ns >= longest_stall_.length_ns) longest_stall_ = {silent_ns, now_ns};
  newest_begin_ns_ = begin_ns;
}

void TransferWorkload::move_until_stopped(unsigned fiber) {
  // Each fiber of each client has its own stream of random numbers, derived from its row of the ledger.
  uint64_t random = options_.seed + ledger_key(options_.client_number, fiber).value;
  next_random(random);
  while (!stopped_) {
    const uint64_t from = next_random(random) % tables_.count;
    // Draws among the other accounts, so `to` differs from `from`.
    const uint64_t to = (from + 1 + next_random(random) % (tables_.count - 1)) % tables_.count;
    const int64_t amount = 1 + static_cast<int64_t>(next_random(random) % kMaxAmount);
    const uint64_t begin_ns = Env::now_ns();
    // The keys are noted before the first request: if the process is killed at any later moment, the file names every
    // account that it may have claimed.
    if (in_flight_keys_ != nullptr) in_flight_keys_->begin(fiber, from, to);
    const Status status = transfer(client_, tables_, from, to, amount, ledger_key(options_.client_number, fiber));
    if (in_flight_keys_ != nullptr) in_flight_keys_->end(fiber);
    if (status.ok()) {
      record_success(fiber, begin_ns);
      continue;
    }
    record_failure(fiber, status);
    // An error that a correct cluster never returns ends all fibers one by one, each at its next failure.
    if (!counts_.fatal.empty()) return;
    client_.sleep_for(kRetryAfterNs);
  }
}

void TransferWorkload::record_failure(unsigned fiber, const Status& status) {
  switch (status.code()) {
    case StatusCode::kConflict:
    case StatusCode::kOverloaded:
      ++counts_.retries_exhausted;
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
