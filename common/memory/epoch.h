// Epoch-based reclamation: memory that others may still read is freed when every thread has let go of it.
// [Mitake et al., throughput and latency of Masstree: bounded frees] [Thesis 4.2]
//
// A thread reads shared structures only inside a guard (one per network batch, never per record). Memory is first made
// unreachable, inside a guard, then retired; it is freed kGrace epochs later.
//
//   global epoch G:  1 → 2 → 3 → …         advanced by one, when every active slot shows G
//   slot of thread:  kIdle | epoch read at enter
//
// Operations
//   enter    g = G; slot.exchange(g)          exit     slot = kIdle
//   retire   unlink (the caller); tag = G      advance  e = G; for all slots s: fetch_add(s, 0) ∈ {kIdle, e}; CAS G
//   e→e+1 passed   (tag) ⇔ G ≥ tag + kGrace
//
// Argument (by acquire and release alone: no fence, no seq_cst). Thread R unlinks X inside a guard and then reads tag
// e from G. Let A2 be the advance e+1 → e+2, A3 the advance e+2 → e+3; F frees X after it read G ≥ e+3.
//  1. A2's scan finds R's guard ended. It reads R's slot by a read-modify-write, so it sees the latest value. R's guard
//     entered with a value ≤ e (G is read before and after entering, and never falls), which A2 does not accept. Nor
//     can R have entered after A2's scan of its slot: entering is a read-modify-write too, would synchronise with A2's,
//     which follows A2's reading e+1, and R would have read tag ≥ e+1. So R's exit, hence its unlink, happens before
//     A2's scan.
//  2. A guard of any thread T entered after A2's scan of T's slot synchronises with that scan and so sees the unlink:
//     it cannot reach X.
//  3. A guard of T active at A2's scan shows e+1. A3 accepts kIdle or e+2 only, so that guard ended before A3's scan,
//     and all its accesses happen before A3's swap of G, which F has read.
// With two epochs instead of three, step 3 would lack its A3.
//
// Bounded frees. Retired objects wait in the retiring thread's own limbo, in order. An exit frees at most
// kFreesPerExit objects, or kFreesPerRetire for each object that this guard retired, whichever is more: never a long
// pause, and on average no fewer than are retired. Limbo memory is kept in chunks and reused: no allocation in steady
// state.
//
// Progress: enter, exit, retire are wait-free (a free apart). A thread that stays inside a guard stops all frees,
// nothing else; stall() names it.
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

/// A thread that holds the epoch back.
struct EpochStall {
  std::string thread;   ///< its name at registration
  uint64_t epoch = 0;   ///< the epoch it entered in
  uint64_t for_ns = 0;  ///< since when an advance has been failing because of it
};

/// The epochs of one node. Owner: the node; outlives its EpochThreads and what they retired. Threads: any.
class EpochDomain {
 public:
  /// Threads that may be registered at one time, unless the owner says otherwise.
  static constexpr size_t kDefaultThreads = 128;
  /// Epochs between an object's retirement and its freeing; see the argument above.
  static constexpr uint64_t kGrace = 3;

  /// `max_threads`: how many may be registered at one time. The owner counts its threads, and makes the domain for
  /// them: one thread more is a programming error. 64 bytes each.
  explicit EpochDomain(size_t max_threads = kDefaultThreads);
  /// Frees what is left. No thread may be registered any more.
  ~EpochDomain();
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  /// The present epoch. To wait until everybody has seen a change: make the change and read this inside one guard, then
  /// poll advance() and passed(that epoch) outside of it.
  uint64_t current() const {
    return epoch_.load(std::memory_order_acquire);
  }  // pairs with advance's swap: what ended
     // before it is seen ended
  /// True once every guard that was active when `epoch` was read has ended, and every later guard sees what happened
  /// before it was read.
  bool passed(uint64_t epoch) const { return current() >= epoch + kGrace; }

  /// Moves the epoch on if every active guard has seen it. Anyone may call it; costs one read-modify-write a
  /// registered thread. Counts stalls.
  bool advance();

  /// The thread that has been holding the epoch back for at least `at_least_ns`; false if there is none. Known only as
  /// long as somebody calls advance().
  bool stall(uint64_t at_least_ns, EpochStall& out) const;

  /// Objects retired and not yet freed, over all threads. Approximate while threads run.
  size_t pending() const;

  void check_invariants() const;

 private:
  friend class EpochThread;

  static constexpr uint64_t kIdle = 0;

  struct alignas(64) Slot {
    Env::Atomic<uint64_t> epoch{kIdle};  // written by the owner; scanned by advance()
    Env::Atomic<uint64_t> pending{0};    // written by the owner; read by pending()
    std::string name;                    // guarded by mutex_
    bool taken = false;                  // guarded by mutex_
  };

  struct Retired {
    void (*free)(void* object, void* context) = nullptr;
    void* object = nullptr;
    void* context = nullptr;
    uint64_t epoch = 0;
  };

  size_t take_slot(std::string name);
  void give_slot(size_t slot, std::vector<Retired> leftovers);
  bool adopt_orphan(Retired& out);

  // Written by advance(), read by all.
  alignas(64) Env::Atomic<uint64_t> epoch_{1};
  // Written when a thread registers; read by advance(). Slots at and beyond it were never taken.
  alignas(64) Env::Atomic<size_t> slots_end_{0};
  // Written by a failing advance(), read by stall(). Hints: a torn pair only misdates a stall.
  Env::Atomic<uint64_t> blocked_epoch_{0};
  Env::Atomic<uint64_t> blocked_since_ns_{0};
  Env::Atomic<size_t> blocked_slot_{0};
  Env::Atomic<size_t> orphans_count_{0};  // written under mutex_; read without, as a hint
  std::vector<Slot> slots_;               // never resized

  mutable Mutex mutex_;
  std::vector<Retired> orphans_;  // guarded by mutex_: left by threads that unregistered
};

/// One thread's membership. Role: hands out guards and keeps the thread's limbo. Owner: the thread, which alone calls
/// it (a fiber scheduler's thread has one; a guard is never held across a switch of fibers). Leftover limbo goes to the
/// domain when it ends.
class EpochThread {
 public:
  static constexpr size_t kFreesPerExit = 2;
  static constexpr size_t kFreesPerRetire = 2;
  /// An exit with a waiting limbo tries to advance the epoch once in so many.
  static constexpr unsigned kExitsPerAdvance = 4;

  /// Registers. Asserts that the domain has room for one thread more.
  EpochThread(EpochDomain& domain, std::string name);
  ~EpochThread();
  EpochThread(const EpochThread&) = delete;
  EpochThread& operator=(const EpochThread&) = delete;

  /// Frees `object` by free(object, context) once no guard can reach it. Call inside a guard, after it was unlinked
  /// there.
  void retire(void* object, void (*free)(void* object, void* context), void* context = nullptr);
  template <class T>
  void retire_delete(T* object) {
    retire(object, [](void* o, void*) { delete static_cast<T*>(o); });
  }

  /// Outside of a guard: tries to advance, and frees up to `budget` objects whose time has come, orphans of other
  /// threads too. For background loops and idle threads. Returns how many were freed.
  size_t collect(size_t budget);

  bool inside() const { return depth_ > 0; }
  /// Guards begun so far, not counting those inside of others.
  uint64_t guards() const { return guards_; }
  size_t pending() const { return count_; }
  /// The most objects freed at the end of one guard: what one batch of requests paid for others.
  size_t most_frees() const { return most_frees_; }
  EpochDomain& domain() { return domain_; }
  /// Its place among the threads that are registered now, below the domain's number of threads. The next thread
  /// that has it sees everything that this thread did.
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
  size_t retired_here_ = 0;  // in the present guard
  size_t count_ = 0;         // in limbo
  size_t most_frees_ = 0;
  Chunk* first_ = nullptr;  // limbo: a list of chunks, read from (first_, head_), written at (last_, tail_)
  Chunk* last_ = nullptr;
  Chunk* spare_ = nullptr;
  size_t head_ = 0;
  size_t tail_ = 0;
};

/// Inside: memory that was reachable stays readable. Nests. Keep it for one batch, never while waiting.
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
  retired_here_ = 0;
  // Acquire: what had ended before this epoch began is seen ended. A stale epoch only delays frees.
  const uint64_t epoch = domain_.epoch_.load(std::memory_order_acquire);
  // Read-modify-write, acquire and release: pairs with advance()'s read-modify-write of the same slot (step 2).
  domain_.slots_[slot_].epoch.exchange(epoch, std::memory_order_acq_rel);
}

}  // namespace loam
