#include "common/memory/epoch.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace loam {

EpochDomain::EpochDomain(size_t max_threads) : slots_(max_threads) {}

EpochDomain::~EpochDomain() {
  for (const Slot& slot : slots_) LOAM_CHECK(!slot.taken, "threads unregister before their epoch domain ends");
  for (const Retired& retired : orphans_) retired.free(retired.object, retired.context);
}

bool EpochDomain::advance() {
  // Acquire: pairs with the swap that set this value; step 1 of the argument needs it to happen before the scan.
  uint64_t epoch = epoch_.load(std::memory_order_acquire);
  // Read-modify-write, acquire and release: a slot too new to be scanned here was taken after this in slots_end_'s
  // order, so its thread synchronises with this scan before it enters (take_slot), like one that enters later (step 2).
  const size_t end = slots_end_.fetch_add(0, std::memory_order_acq_rel);
  for (size_t i = 0; i < end; ++i) {
    // Read-modify-write, acquire and release: sees the latest value, and pairs with enter's and exit's writes of the
    // slot.
    const uint64_t seen = slots_[i].epoch.fetch_add(0, std::memory_order_acq_rel);
    if (seen == kIdle || seen == epoch) continue;
    if (blocked_epoch_.load(std::memory_order_relaxed) != epoch) {  // hints, see stall()
      blocked_since_ns_.store(Env::now_ns(), std::memory_order_relaxed);
      blocked_epoch_.store(epoch, std::memory_order_relaxed);
    }
    // Whoever blocks this epoch has done so since it began: the time holds for the next blocker too.
    blocked_slot_.store(i, std::memory_order_relaxed);
    return false;
  }
  // Release: what happened before the ends of the guards scanned happens before whoever reads the new epoch. Acquire on
  // success for the chain of swaps; a failure means that another advanced.
  epoch_.compare_exchange_strong(epoch, epoch + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
  return true;
}

bool EpochDomain::stall(uint64_t at_least_ns, EpochStall& out) const {
  // Relaxed: three hints; stale ones misdate the stall or name the thread that held it up just before.
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
  size_t sum = orphans_count_.load(std::memory_order_relaxed);
  const size_t end = slots_end_.load(std::memory_order_acquire);  // pairs with take_slot
  for (size_t i = 0; i < end; ++i) sum += slots_[i].pending.load(std::memory_order_relaxed);
  return sum;
}

size_t EpochDomain::take_slot(std::string name) {
  const std::scoped_lock lock(mutex_);
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.taken; });
  LOAM_CHECK(free != slots_.end(), "more threads than this EpochDomain was made for: its owner counts them");
  free->taken = true;
  free->name = std::move(name);
  const auto slot = static_cast<size_t>(free - slots_.begin());
  // Relaxed: written under the lock that is held. The exchange is acquire and release: it synchronises with every
  // advance that has scanned without this slot.
  if (slot >= slots_end_.load(std::memory_order_relaxed)) slots_end_.exchange(slot + 1, std::memory_order_acq_rel);
  return slot;
}

void EpochDomain::give_slot(size_t slot, std::vector<Retired> leftovers) {
  const std::scoped_lock lock(mutex_);
  orphans_.insert(orphans_.end(), leftovers.begin(), leftovers.end());
  orphans_count_.store(orphans_.size(), std::memory_order_relaxed);  // a hint for adopt_orphan
  slots_[slot].pending.store(0, std::memory_order_relaxed);          // a statistic
  slots_[slot].taken = false;
  slots_[slot].name.clear();
}

bool EpochDomain::adopt_orphan(Retired& out) {
  if (orphans_count_.load(std::memory_order_relaxed) == 0) return false;  // a hint: a later call finds them
  const std::scoped_lock lock(mutex_);
  const auto ready = std::find_if(orphans_.begin(), orphans_.end(), [&](const Retired& r) { return passed(r.epoch); });
  if (ready == orphans_.end()) return false;
  out = *ready;
  orphans_.erase(ready);
  orphans_count_.store(orphans_.size(), std::memory_order_relaxed);  // as above
  return true;
}

void EpochDomain::check_invariants() const {
  const std::scoped_lock lock(mutex_);
  uint64_t newest = 0;
  const size_t end = slots_end_.load(std::memory_order_relaxed);  // written under the lock that is held
  for (size_t i = 0; i < slots_.size(); ++i) {
    LOAM_CHECK(i < end || !slots_[i].taken, "taken slots are scanned");
    // Acquire: its reading of the epoch happens before ours below.
    newest = std::max(newest, slots_[i].epoch.load(std::memory_order_acquire));
  }
  const uint64_t epoch = current();
  LOAM_CHECK(newest <= epoch, "no guard is ahead of the epoch");
  for (const Retired& retired : orphans_) LOAM_CHECK(retired.epoch <= epoch, "nothing was retired in the future");
}

EpochThread::EpochThread(EpochDomain& domain, std::string name)
    : domain_(domain), slot_(domain.take_slot(std::move(name))) {}

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
  domain_.give_slot(slot_, std::move(leftovers));
}

void EpochThread::push(EpochDomain::Retired retired) {
  if (last_ == nullptr || tail_ == kChunkEntries) {
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
  // Acquire and, above all, after enter's read-modify-write in program order: step 1 of the argument.
  push({free, object, context, domain_.epoch_.load(std::memory_order_acquire)});
  ++retired_here_;
}

size_t EpochThread::free_ready(size_t budget) {
  size_t freed = 0;
  while (freed < budget && count_ > 0) {
    const EpochDomain::Retired retired = first_->entries[head_];
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
      head_ = tail_ = 0;  // the last chunk is empty: begin it anew
    }
    retired.free(retired.object, retired.context);
    ++freed;
  }
  return freed;
}

void EpochThread::exit() {
  LOAM_DCHECK(depth_ > 0, "every exit has its enter");
  if (--depth_ > 0) return;
  // Release: the guard's reads and writes happen before the advance that sees the slot idle.
  domain_.slots_[slot_].epoch.store(EpochDomain::kIdle, std::memory_order_release);
  if (count_ == 0) return;
  if (retired_here_ > 0 || ++exits_ % kExitsPerAdvance == 0) domain_.advance();
  most_frees_ = std::max(most_frees_, free_ready(std::max(kFreesPerExit, kFreesPerRetire * retired_here_)));
}

size_t EpochThread::collect(size_t budget) {
  LOAM_DCHECK(depth_ == 0, "collect outside of guards");
  domain_.advance();
  size_t freed = free_ready(budget);
  for (EpochDomain::Retired orphan; freed < budget && domain_.adopt_orphan(orphan); ++freed) {
    orphan.free(orphan.object, orphan.context);
  }
  return freed;
}

}  // namespace loam
