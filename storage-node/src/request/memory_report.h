// The explanation that clients get with kNoSpace.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/base/env.h"
#include "common/memory/epoch.h"

namespace loam::storage {

/// Holds the text that says what fills the memory of the storage node.
///
/// Role: the background thread writes the text while memory is nearly full, and network threads add it to refusals, so
/// that a refusal costs no walk over tables and takes no lock. The text is up to a second old. Owner: the registry.
/// Threads: the background thread calls set(); any thread inside an epoch guard calls text().
class MemoryReport {
 public:
  MemoryReport() = default;
  // Relaxed: no other thread is left.
  ~MemoryReport() { delete text_.load(std::memory_order_relaxed); }
  MemoryReport(const MemoryReport&) = delete;
  MemoryReport& operator=(const MemoryReport&) = delete;

  /// Replaces the text, and retires the old one through the epochs. Call it outside of guards.
  void set(EpochThread& thread, std::string text) {
    const EpochGuard guard(thread);
    const std::string* const old = text_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
    // Release: pairs with the acquire in text().
    text_.store(new std::string(std::move(text)), std::memory_order_release);
    if (old != nullptr) thread.retire_delete(const_cast<std::string*>(old));
  }
  /// Returns the newest text; empty if there was none. It lives until the end of the caller's guard.
  std::string_view text() const {
    // Acquire: pairs with the release in set().
    const std::string* const text = text_.load(std::memory_order_acquire);
    return text == nullptr ? std::string_view() : *text;
  }

 private:
  Env::Atomic<const std::string*> text_{nullptr};
};

}  // namespace loam::storage
