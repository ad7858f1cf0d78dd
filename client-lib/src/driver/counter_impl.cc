// Draws blocks of numbers. One fiber draws for all that wait; plain_write.cc has the compare-and-swap.
#include "client-lib/src/driver/counter_impl.h"

#define XXH_INLINE_ALL
#include <utility>

#include <xxhash.h>

#include "client-lib/src/core/backoff.h"
#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/driver/cancel_scope_status.h"
#include "client-lib/src/driver/plain_write.h"
#include "client-lib/src/driver/point_reads.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using Fields = wire::CounterTableFields;

/// Part of the stored format: a change of it loses every counter.
uint64_t hash_of(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

constexpr uint64_t kLastNumber = INT64_MAX;
constexpr RetryOptions kAllocationRetry{kMaxAllocationAttempts, 20'000, 5'000'000};

Result<Record> read(Engine& engine, const Table& table, Key key) {
  auto reads =
      std::make_shared<PointReads>(engine, engine.current_session(), table, PointReads::SessionPolicy::kAnySession);
  reads->start(std::span(&key, 1));
  reads->wait();
  return reads->take_result(0);
}

}  // namespace

Counter::Impl::Impl(Engine& engine, std::string name, uint64_t block_size, Reserve reserve)
    : engine_(engine),
      table_(make_table(wire::system_tables().front())),
      name_(std::move(name)),
      block_size_(block_size),
      reserve_(reserve) {}

Result<Version> Counter::Impl::write(wire::WriteKind kind, Version expected, uint64_t next) {
  LOAM_ASSIGN_OR_RETURN(const Record record,
                        Record::make(table_, {Value::text(name_), Value::int64(static_cast<int64_t>(next))}));
  return plain_write(engine_, nullptr, table_, plain_operation(table_, key_, kind, expected, record.bytes(), reserve_));
}

Status Counter::Impl::open(IfAbsent absent) {
  // The record lies at the hash of the name. A counter whose key is taken by another name lies at the next free key.
  const uint64_t hash = hash_of(name_);
  for (uint64_t probe = 0; probe < kMaxCounterProbes;) {
    key_ = Key(hash + probe);
    const auto record = read(engine_, table_, key_);
    if (record.ok()) {
      if (record->text(Fields::kName) == name_) return ok_status();
      ++probe;
      continue;
    }
    if (record.code() != StatusCode::kNotFound || absent == IfAbsent::kFail) return record.status();
    const auto made = write(wire::WriteKind::kInsert, Version(), 1);
    if (made.ok()) return ok_status();
    // Another client has created a counter at this key, possibly this one: read the key again.
    if (made.code() != StatusCode::kAlreadyExists && made.code() != StatusCode::kConflict) return made.status();
  }
  return {StatusCode::kInternal, "counter " + name_ + ": other counters occupy its keys; choose another name"};
}

Status Counter::Impl::try_allocate_block() {
  const auto record = read(engine_, table_, key_);
  if (!record.ok()) return record.status();
  const auto first = static_cast<uint64_t>(record->int64(Fields::kNext));
  if (first == 0 || first > kLastNumber || kLastNumber - first < block_size_) {
    return {StatusCode::kOverflow, "counter " + name_ + " has given out all its numbers"};
  }
  const auto drawn = write(wire::WriteKind::kUpdate, record->version(), first + block_size_);
  // After an unknown outcome a new draw is safe: at worst a block of numbers stays unused.
  if (drawn.code() == StatusCode::kUnknownOutcome) return {StatusCode::kConflict, "lost"};
  if (!drawn.ok()) return drawn.status();
  next_ = first;
  end_ = first + block_size_;
  return ok_status();
}

Status Counter::Impl::allocate_block() {
  // The time of a commit bounds all attempts together, because each of the 64 may run into a time-out.
  const uint64_t deadline_ns = engine_.commit_deadline();
  for (uint32_t attempt = 0;; ++attempt) {
    Status status = try_allocate_block();
    const bool last = attempt + 1 == kMaxAllocationAttempts || engine_.worker().now_ns() >= deadline_ns;
    if (status.ok() || last || !is_retryable(status.code())) return status;
    if (!engine_.sleep_before_retry(backoff_ns(kAllocationRetry, attempt, engine_.random()))) return status;
  }
}

Status Counter::Impl::named(const Status& status) const {
  return {status.code(), "counter " + name_ + ": " + std::string(status.message())};
}

Status Counter::Impl::allocate() {
  struct OnExit {
    Impl& counter;
    ~OnExit() {
      counter.allocating_ = false;
      for (fiber::Event* waiting : std::exchange(counter.allocation_waiters_, {})) waiting->notify();
    }
  } end{*this};
  allocating_ = true;
  Status drawn = allocate_block();
  // If a limit of this fiber ended the draw, the waiting fibers do not fail with it: one of them draws next.
  last_allocation_ = !drawn.ok() && fiber::CancelScope::ended() ? ok_status() : drawn;
  return !drawn.ok() && fiber::CancelScope::ended() ? cancel_scope_status() : drawn;
}

Result<uint64_t> Counter::Impl::next() {
  while (next_ == end_) {
    if (!allocating_) {
      if (Status drawn = allocate(); !drawn.ok()) return named(drawn);
      continue;
    }
    fiber::Event drawn;
    allocation_waiters_.push_back(&drawn);
    if (!drawn.wait_until(fiber::kForever)) {
      std::erase(allocation_waiters_, &drawn);
      return named(cancel_scope_status());
    }
    // All fibers that waited for a failed draw fail with it. If each drew again, each would wait for its own
    // time-out.
    if (!last_allocation_.ok()) return named(last_allocation_);
  }
  return next_++;
}

}  // namespace loam::client
