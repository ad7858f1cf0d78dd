// Epoch-based reclamation: frees memory of lock-free structures when no thread can read it any more.
// [Mitake et al., throughput and latency of Masstree: bounded frees] [Thesis 4.2]
//
// A thread reads shared structures only inside a guard. A storage node has one guard for each network batch, never
// one for each record. A thread that removes memory from a structure first makes it unreachable inside a guard and
// then retires it. The memory is freed kGracePeriodEpochs epochs later.
//
//   global epoch G:    1 → 2 → 3 → …         advance() adds one if the slot of every active thread shows G
//   slot of a thread:  kIdle | epoch read at enter
//
// Operations
//   enter    g = G; slot.exchange(g)          exit     slot = kIdle
//   retire   unlink (the caller); tag = G      advance  e = G; for all slots s: fetch_add(s, 0) ∈ {kIdle, e}; CAS G
//   e→e+1 passed   (tag) ⇔ G ≥ tag + kGracePeriodEpochs
//
// Argument. It needs acquire and release only: no fence, no seq_cst. Thread R unlinks X inside a guard and then reads
// tag e from G. Let A2 be the advance e+1 → e+2 and A3 the advance e+2 → e+3. Thread F frees X after its read G ≥ e+3.
//  1. The scan of A2 finds that R's guard has ended. A2 reads R's slot by a read-modify-write, so it sees the latest
//     value. R's guard entered with a value ≤ e (R reads G before and after entering, and G never falls), and A2 does
//     not accept such a value. R cannot have entered after A2's scan of its slot either: entering is a
//     read-modify-write too and would synchronise with that of A2, which follows A2's read of e+1, so R would have
//     read tag ≥ e+1. So R's exit, hence its unlink, happens before A2's scan.
//  2. A guard of any thread T that enters after A2's scan of T's slot synchronises with that scan, and so sees the
//     unlink. It cannot reach X.
//  3. A guard of T that is active at A2's scan shows e+1. A3 accepts kIdle or e+2 only, so this guard ends before
//     A3's scan. All accesses of the guard happen before A3's swap of G, which F has read.
// With a grace period of two epochs instead of three, there would be no A3 for step 3.
//
// Bounded frees. Retired objects wait in the limbo list of the thread that retired them, in order. An exit frees at
// most kFreesPerExit objects, or kFreesPerRetire for each object that this guard has retired, whichever is more. So
// an exit never takes long, and on average it frees at least as many objects as are retired. The limbo list consists
// of chunks that are reused, so the steady state needs no allocation.
//
// Progress: enter, exit and retire are wait-free, apart from the free functions that an exit calls. A thread that
// stays inside a guard stops all frees and nothing else; stall() names it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/base/thread.h"

namespace loam {

class EpochThread;

/// Describes a thread whose guard keeps the epoch from advancing.
struct EpochStall {
  std::string thread;   ///< name of the thread at its registration
  uint64_t epoch = 0;   ///< the epoch in which its guard entered
  uint64_t for_ns = 0;  ///< time for which advance() has failed because of it
};

/// The epoch counter of one storage node and the slots of its threads.
///
/// Owner: the storage node. It outlives its EpochThreads and the objects that they have retired. Threads: any.
class EpochDomain {
 public:
  /// Default of the number of threads that may be registered at one time.
  static constexpr size_t kDefaultThreads = 128;
  /// Epochs between the retirement of an object and its free; the argument above says why three.
  static constexpr uint64_t kGracePeriodEpochs = 3;

  /// `max_threads` is the number of threads that may be registered at one time. The owner knows the number of its
  /// threads; one thread more is a programming error. The domain takes about 64 bytes of shared memory for each.
  explicit EpochDomain(size_t max_threads = kDefaultThreads);
  /// Frees all objects that are still retired. No thread may be registered any more.
  ~EpochDomain();
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  /// The present epoch. To wait until every thread has seen a change, a thread makes the change and reads the epoch
  /// inside one guard. Outside of the guard it then polls advance() and passed() with this epoch.
  // Acquire: pairs with the swap in advance(), so that the caller sees the effects of all guards that ended before it.
  uint64_t current() const { return epoch_.load(std::memory_order_acquire); }
  /// True once every guard that was active when `epoch` was read has ended, and every later guard sees everything
  /// that happened before that read.
  bool passed(uint64_t epoch) const { return current() >= epoch + kGracePeriodEpochs; }

  /// Adds one to the epoch if every active guard has entered in the present one. Returns false if a guard blocks the
  /// epoch, and records its thread for stall(); true if this call, or another thread at the same time, has advanced
  /// the epoch. Any thread may call it. It costs one read-modify-write for each registered thread.
  bool advance();

  /// Describes the thread that has kept the epoch from advancing for at least `at_least_ns`. Returns false if there
  /// is none. Calls of advance() collect this information.
  bool stall(uint64_t at_least_ns, EpochStall& out) const;

  /// Objects retired and not yet freed, over all threads. Approximate while threads run.
  size_t pending() const;

  /// Checks slots and counters. Aborts on a violation.
  void check_invariants() const;

 private:
  friend class EpochThread;

  static constexpr uint64_t kIdle = 0;

  struct alignas(64) Slot {
    Env::Atomic<uint64_t> epoch{kIdle};  // written by the owner; scanned by advance()
    Env::Atomic<uint64_t> pending{0};    // written by the owner; read by pending()
    std::string name;                    // guarded by mutex_
    bool in_use = false;                 // guarded by mutex_
  };

  struct Retired {
    void (*free)(void* object, void* context) = nullptr;
    void* object = nullptr;
    void* context = nullptr;
    uint64_t epoch = 0;
  };

  size_t acquire_slot(std::string name);
  void release_slot(size_t slot, std::vector<Retired> leftovers);
  bool adopt_abandoned(Retired& out);

  // Written by advance(), read by any thread.
  alignas(64) Env::Atomic<uint64_t> epoch_{1};
  // Written when a thread registers; read by advance(). No thread has ever used the slots from here on.
  alignas(64) Env::Atomic<size_t> slots_end_{0};
  // Written by an advance() that fails, read by stall(). Hints: values of two different failures only misdate a stall.
  Env::Atomic<uint64_t> blocked_epoch_{0};
  Env::Atomic<uint64_t> blocked_since_ns_{0};
  Env::Atomic<size_t> blocked_slot_{0};
  Env::Atomic<size_t> abandoned_count_{0};  // written under mutex_; read without it, as a hint
  std::vector<Slot> slots_;                 // never resized

  mutable Mutex mutex_;
  std::vector<Retired> abandoned_;  // guarded by mutex_: retired by threads that have unregistered
};

/// The registration of one thread in an EpochDomain: its guards and its list of retired objects (limbo).
///
/// Owner: the thread, and no other thread calls it. A thread of fibers has one; a fiber never holds a guard across a
/// switch to another fiber. The destructor passes the objects that are still retired to the domain.
class EpochThread {
 public:
  /// Objects that the end of a guard frees at most, if the guard has retired none.
  static constexpr size_t kFreesPerExit = 2;
  /// Objects that the end of a guard may free for each object that the guard has retired.
  static constexpr size_t kFreesPerRetire = 2;
  /// A thread with retired objects tries to advance the epoch once in this number of its exits.
  static constexpr unsigned kExitsPerAdvance = 4;

  /// Registers the calling thread under `name`. Aborts if the domain has no free slot.
  EpochThread(EpochDomain& domain, std::string name);
  ~EpochThread();
  EpochThread(const EpochThread&) = delete;
  EpochThread& operator=(const EpochThread&) = delete;

  /// Calls free(object, context) once no guard can reach `object` any more. Call it inside the guard in which the
  /// object was unlinked, after the unlink. This thread calls `free`, or after its end another one.
  void retire(void* object, void (*free)(void* object, void* context), void* context = nullptr);
  /// Retires an object that `delete` frees.
  template <class T>
  void retire_delete(T* object) {
    retire(object, [](void* o, void*) { delete static_cast<T*>(o); });
  }

  /// Tries to advance the epoch and frees up to `budget` objects whose grace period is over, also objects that ended
  /// threads have left. Returns the number of freed objects. Call it outside of guards; background loops and idle
  /// threads do so.
  size_t collect(size_t budget);

  /// Whether a guard of this thread is active.
  bool inside() const { return depth_ > 0; }
  /// Number of guards so far, without nested ones.
  uint64_t guards() const { return guards_; }
  /// Objects that this thread has retired and that are not freed yet.
  size_t pending() const { return count_; }
  /// The largest number of objects freed at the end of one guard: the reclamation work that one batch of requests did.
  size_t max_frees() const { return max_frees_; }
  EpochDomain& domain() { return domain_; }
  /// Index of the thread's slot, below the domain's number of threads. The next thread with this index sees
  /// everything that this thread has done.
  size_t number() const { return slot_; }

 private:
  friend class EpochGuard;

  static constexpr size_t kChunkEntries = 126;
  struct Chunk {
    std::array<EpochDomain::Retired, kChunkEntries> entries;
    Chunk* next = nullptr;
  };

  void enter();
  void exit();
  size_t free_ready(size_t budget);
  void push(EpochDomain::Retired retired);

  EpochDomain& domain_;
  const size_t slot_;
  // Owner thread only.
  unsigned depth_ = 0;
  uint64_t guards_ = 0;
  unsigned exits_ = 0;
  size_t retired_in_guard_ = 0;  // in the present guard
  size_t count_ = 0;             // retired objects
  size_t max_frees_ = 0;
  Chunk* first_ = nullptr;  // the limbo list: chunks, read from (first_, head_), written at (last_, tail_)
  Chunk* last_ = nullptr;
  Chunk* spare_ = nullptr;
  size_t head_ = 0;
  size_t tail_ = 0;
};

/// While a guard lives, memory that its thread can reach in shared structures is not freed.
///
/// Guards nest. A thread keeps one for a batch of requests and never while it waits.
class [[nodiscard]] EpochGuard {
 public:
  explicit EpochGuard(EpochThread& thread) : thread_(thread) { thread_.enter(); }
  ~EpochGuard() { thread_.exit(); }
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;

 private:
  EpochThread& thread_;
};

inline void EpochThread::enter() {
  if (depth_++ > 0) return;
  ++guards_;
  retired_in_guard_ = 0;
  // Acquire: pairs with the swap in advance(), so this guard sees the effects of all guards that ended before the
  // epoch began. A stale epoch only delays frees.
  const uint64_t epoch = domain_.epoch_.load(std::memory_order_acquire);
  // A read-modify-write with acquire and release: pairs with that of advance() on the same slot (step 2).
  domain_.slots_[slot_].epoch.exchange(epoch, std::memory_order_acq_rel);
}

}  // namespace loam
