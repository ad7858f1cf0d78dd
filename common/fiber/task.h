// A function that runs once.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace loam::fiber {

/// A move-only function `void()` that is called at most once. A callable of up to kInlineBytes that moves without
/// exceptions lies inside the object; any other is allocated. The destructor destroys the callable, also if it was
/// never called.
class Task {
 public:
  /// Largest callable without an allocation.
  static constexpr size_t kInlineBytes = 48;

  Task() = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Task> && std::invocable<std::decay_t<F>&>)
  Task(F&& f) {  // NOLINT(google-explicit-constructor): a lambda is passed where a task is wanted
    using Fn = std::decay_t<F>;
    if constexpr (fits<Fn>()) {
      new (storage_) Fn(std::forward<F>(f));
      ops_ = &kInline<Fn>;
    } else {
      new (storage_) Fn*(new Fn(std::forward<F>(f)));
      ops_ = &kHeap<Fn>;
    }
  }
  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  /// Whether the task has a callable.
  explicit operator bool() const { return ops_ != nullptr; }
  /// Calls the callable, which must exist.
  void operator()() { ops_->call(storage_); }
  /// Destroys the callable, if there is one.
  void reset() {
    if (ops_ != nullptr) std::exchange(ops_, nullptr)->destroy(storage_);
  }

 private:
  struct Ops {
    void (*call)(void*);
    void (*move)(void* to, void* from);  // moves, and destroys the callable at `from`
    void (*destroy)(void*);
  };

  template <class Fn>
  static constexpr bool fits() {
    return sizeof(Fn) <= kInlineBytes && alignof(Fn) <= alignof(std::max_align_t) &&
           std::is_nothrow_move_constructible_v<Fn>;
  }
  template <class Fn>
  static constexpr Ops kInline{[](void* p) { (*static_cast<Fn*>(p))(); },
                               [](void* to, void* from) {
                                 new (to) Fn(std::move(*static_cast<Fn*>(from)));
                                 static_cast<Fn*>(from)->~Fn();
                               },
                               [](void* p) { static_cast<Fn*>(p)->~Fn(); }};
  template <class Fn>
  static constexpr Ops kHeap{[](void* p) { (**static_cast<Fn**>(p))(); },
                             [](void* to, void* from) { new (to) Fn*(*static_cast<Fn**>(from)); },
                             [](void* p) { delete *static_cast<Fn**>(p); }};

  void take(Task& other) {
    ops_ = std::exchange(other.ops_, nullptr);
    if (ops_ != nullptr) ops_->move(storage_, other.storage_);
  }

  alignas(std::max_align_t) std::byte storage_[kInlineBytes];
  const Ops* ops_ = nullptr;
};

/// Calls the task of fiber `number` and destroys it. If the task throws, the function writes a line to stderr, drops
/// the exception and returns false. Suspends the fiber whenever the task does.
bool run_to_end(Task& task, uint64_t number);

}  // namespace loam::fiber
