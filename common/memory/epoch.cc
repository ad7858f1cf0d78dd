// The domain (advance, slots, abandoned objects) and the threads (limbo lists, frees). The header has the argument
// whose steps the comments name.
#include "common/memory/epoch.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace loam {

EpochDomain::EpochDomain(size_t max_threads) : slots_(max_threads) {}

EpochDomain::~EpochDomain() {
  for (const Slot& slot : slots_) LOAM_CHECK(!slot.in_use, "threads unregister before their epoch domain ends");
  for (const Retired& retired : abandoned_) retired.free(retired.object, retired.context);
}

bool EpochDomain::advance() {
  // Acquire: pairs with the swap that set this value; step 1 of the argument needs it to happen before the scan.
  uint64_t epoch = epoch_.load(std::memory_order_acquire);
  // Read-modify-write, acquire and release: a slot that this scan does not cover is added to slots_end_ later in the
  // order of its changes. So the thread of that slot synchronises with this scan in acquire_slot(), before it enters,
  // just as a guard that enters after the scan of its slot (step 2).
  const size_t end = slots_end_.fetch_add(0, std::memory_order_acq_rel);
  for (size_t i = 0; i < end; ++i) {
    // Read-modify-write, acquire and release: sees the latest value of the slot, and pairs with the writes of enter()
    // and exit().
    const uint64_t seen = slots_[i].epoch.fetch_add(0, std::memory_order_acq_rel);
    if (seen == kIdle || seen == epoch) continue;
    if (blocked_epoch_.load(std::memory_order_relaxed) != epoch) {  // hints, see stall()
      blocked_since_ns_.store(Env::now_ns(), std::memory_order_relaxed);
      blocked_epoch_.store(epoch, std::memory_order_relaxed);
    }
    // A guard that blocks this epoch shows an older one, so it has been active since the epoch began. Therefore
    // blocked_since_ns_ stays valid if another thread blocked the epoch first.
    blocked_slot_.store(i, std::memory_order_relaxed);
    return false;
  }
  // Release: everything before the ends of the scanned guards happens before a read of the new epoch. Acquire on
  // success: the swaps of all epochs form one chain. A failure means that another thread has advanced the epoch.
  epoch_.compare_exchange_strong(epoch, epoch + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
  return true;
}

bool EpochDomain::stall(uint64_t at_least_ns, EpochStall& out) const {
  // Relaxed: three hints. Stale values give a wrong duration, or name the thread that blocked the epoch before.
  const uint64_t epoch = blocked_epoch_.load(std::memory_order_relaxed);
  if (epoch != current()) return false;
  const uint64_t since = blocked_since_ns_.load(std::memory_order_relaxed);
  const size_t i = blocked_slot_.load(std::memory_order_relaxed);
  const uint64_t now = Env::now_ns();
  // Relaxed: a hint.
  const uint64_t entered = slots_[i].epoch.load(std::memory_order_relaxed);
  if (entered == kIdle || entered == epoch || now < since + at_least_ns) return false;
  const std::scoped_lock lock(mutex_);
  out = {slots_[i].name, entered, now - since};
  return true;
}

size_t EpochDomain::pending() const {
  // Relaxed throughout: a statistic.
  size_t sum = abandoned_count_.load(std::memory_order_relaxed);
  const size_t end = slots_end_.load(std::memory_order_acquire);  // pairs with acquire_slot
  for (size_t i = 0; i < end; ++i) sum += slots_[i].pending.load(std::memory_order_relaxed);
  return sum;
}

size_t EpochDomain::acquire_slot(std::string name) {
  const std::scoped_lock lock(mutex_);
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.in_use; });
  LOAM_CHECK(free != slots_.end(), "more threads than this EpochDomain was made for; its owner must raise max_threads");
  free->in_use = true;
  free->name = std::move(name);
  const auto slot = static_cast<size_t>(free - slots_.begin());
  // Relaxed: written only under the lock that is held. The exchange is acquire and release: it synchronises with every
  // advance() that has scanned the slots without this one.
  if (slot >= slots_end_.load(std::memory_order_relaxed)) slots_end_.exchange(slot + 1, std::memory_order_acq_rel);
  return slot;
}

void EpochDomain::release_slot(size_t slot, std::vector<Retired> leftovers) {
  const std::scoped_lock lock(mutex_);
  // The objects still wait for their grace period. adopt_abandoned() gives them to a thread that collects.
  abandoned_.insert(abandoned_.end(), leftovers.begin(), leftovers.end());
  abandoned_count_.store(abandoned_.size(), std::memory_order_relaxed);  // a hint for adopt_abandoned
  slots_[slot].pending.store(0, std::memory_order_relaxed);              // a statistic
  slots_[slot].in_use = false;
  slots_[slot].name.clear();
}

bool EpochDomain::adopt_abandoned(Retired& out) {
  if (abandoned_count_.load(std::memory_order_relaxed) == 0) return false;  // a hint: a later call finds them
  const std::scoped_lock lock(mutex_);
  const auto ready =
      std::find_if(abandoned_.begin(), abandoned_.end(), [&](const Retired& r) { return passed(r.epoch); });
  if (ready == abandoned_.end()) return false;
  out = *ready;
  abandoned_.erase(ready);
  abandoned_count_.store(abandoned_.size(), std::memory_order_relaxed);  // as above
  return true;
}

void EpochDomain::check_invariants() const {
  const std::scoped_lock lock(mutex_);
  uint64_t newest = 0;
  const size_t end = slots_end_.load(std::memory_order_relaxed);  // written under the lock that is held
  for (size_t i = 0; i < slots_.size(); ++i) {
    LOAM_CHECK(i < end || !slots_[i].in_use, "advance() scans every slot in use");
    // Acquire: the thread's read of the epoch happens before the read below, which is therefore not older.
    newest = std::max(newest, slots_[i].epoch.load(std::memory_order_acquire));
  }
  const uint64_t epoch = current();
  LOAM_CHECK(newest <= epoch, "no guard is ahead of the epoch");
  for (const Retired& retired : abandoned_) LOAM_CHECK(retired.epoch <= epoch, "no tag is ahead of the epoch");
}

EpochThread::EpochThread(EpochDomain& domain, std::string name)
    : domain_(domain), slot_(domain.acquire_slot(std::move(name))) {}

EpochThread::~EpochThread() {
  LOAM_CHECK(depth_ == 0, "a thread leaves its guards before it unregisters");
  std::vector<EpochDomain::Retired> leftovers;
  leftovers.reserve(count_);
  while (first_ != nullptr) {
    const size_t end = first_ == last_ ? tail_ : kChunkEntries;
    for (; head_ < end; ++head_) leftovers.push_back(first_->entries[head_]);
    head_ = 0;
    delete std::exchange(first_, first_->next);
  }
  delete spare_;
  domain_.release_slot(slot_, std::move(leftovers));
}

void EpochThread::push(EpochDomain::Retired retired) {
  if (last_ == nullptr || tail_ == kChunkEntries) {
    // The spare chunk is one that free_ready() has emptied. In a steady state push() and free_ready() pass it back and
    // forth without an allocation.
    Chunk* chunk = spare_ != nullptr ? std::exchange(spare_, nullptr) : new Chunk;
    chunk->next = nullptr;
    if (last_ == nullptr) {
      first_ = chunk;
      head_ = 0;
    } else {
      last_->next = chunk;
    }
    last_ = chunk;
    tail_ = 0;
  }
  last_->entries[tail_++] = retired;
  domain_.slots_[slot_].pending.store(++count_, std::memory_order_relaxed);  // a statistic
}

void EpochThread::retire(void* object, void (*free)(void* object, void* context), void* context) {
  LOAM_DCHECK(depth_ > 0, "retire inside the guard in which the object was unlinked");
  // Acquire, and after the read-modify-write of enter() in program order: step 1 of the argument needs both.
  push({free, object, context, domain_.epoch_.load(std::memory_order_acquire)});
  ++retired_in_guard_;
}

size_t EpochThread::free_ready(size_t budget) {
  size_t freed = 0;
  while (freed < budget && count_ > 0) {
    const EpochDomain::Retired retired = first_->entries[head_];
    // The list is ordered by tag, so the objects behind this one are not ready either.
    if (!domain_.passed(retired.epoch)) break;
    domain_.slots_[slot_].pending.store(--count_, std::memory_order_relaxed);  // a statistic
    if (++head_ == kChunkEntries && first_ != last_) {
      Chunk* const empty = std::exchange(first_, first_->next);
      head_ = 0;
      if (spare_ == nullptr) {
        spare_ = empty;
      } else {
        delete empty;
      }
    } else if (count_ == 0) {
      head_ = tail_ = 0;  // the only chunk is empty: use it from its begin again
    }
    retired.free(retired.object, retired.context);
    ++freed;
  }
  return freed;
}

void EpochThread::exit() {
  LOAM_DCHECK(depth_ > 0, "every exit has its enter");
  if (--depth_ > 0) return;
  // Release: the reads and writes of the guard happen before an advance() that sees the slot idle.
  domain_.slots_[slot_].epoch.store(EpochDomain::kIdle, std::memory_order_release);
  if (count_ == 0) return;
  // Most guards retire nothing and then advance the epoch rarely, because advance() writes to the cache line of every
  // thread.
  if (retired_in_guard_ > 0 || ++exits_ % kExitsPerAdvance == 0) domain_.advance();
  max_frees_ = std::max(max_frees_, free_ready(std::max(kFreesPerExit, kFreesPerRetire * retired_in_guard_)));
}

size_t EpochThread::collect(size_t budget) {
  LOAM_DCHECK(depth_ == 0, "collect outside of guards");
  // One call advances the epoch by at most 1, so an object needs several calls of collect().
  domain_.advance();
  size_t freed = free_ready(budget);
  for (EpochDomain::Retired orphan; freed < budget && domain_.adopt_abandoned(orphan); ++freed) {
    orphan.free(orphan.object, orphan.context);
  }
  return freed;
}

}  // namespace loam
