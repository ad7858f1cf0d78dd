// In-memory stores for tests. Several trees share the nodes, as if each tree were a process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <loam/bdtree/store.h>

#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/wire/storage.h"

namespace loam::bdtree {

/// An intent, and the tree node whose write carried it.
struct CarriedIntent {
  TreeNodeId node;
  TransactionId transaction;
  std::string key;

  bool operator==(const CarriedIntent&) const = default;
};

/// The shared nodes. Any thread; under the explorer every access is a scheduling point.
class MemoryNodes {
 public:
  std::vector<CarriedIntent> intents;      // carried by successful writes, in their order
  std::map<uint64_t, StoredNode> records;  // tests examine them between runs
  Reserve min_reserve = Reserve::kWrite;   // writes that may use only lower reserves get kNoSpace

  template <class F>
  auto with_lock(F&& f) {
    calls_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count, and a scheduling point for the explorer
    const std::scoped_lock lock(mutex_);
    return f();
  }
  Version next_version() { return Version(++version_); }
  TreeNodeId next_id() { return TreeNodeId(++id_); }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }  // relaxed: a count

 private:
  Env::Atomic<uint64_t> calls_{0};
  std::mutex mutex_;
  uint64_t version_ = 0;
  uint64_t id_ = kRoot.value;
};

/// The store of one process over the shared nodes. Deferred work waits until run_deferred(), or is lost with the
/// process.
class MemoryStore : public Store {
 public:
  explicit MemoryStore(MemoryNodes& nodes, uint64_t owner = 1) : nodes_(nodes), owner_(owner) {}

  std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) override {
    return nodes_.with_lock([&] {
      std::vector<Result<StoredNode>> found;
      for (const TreeNodeId id : ids) {
        const auto record = nodes_.records.find(id.value);
        if (dead_) {
          found.emplace_back(death());
        } else if (record == nodes_.records.end()) {
          found.emplace_back(Status(StatusCode::kNotFound, "no such node"));
        } else {
          found.emplace_back(record->second);
        }
      }
      return found;
    });
  }
  Result<Version> insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) override {
    return write(reserve, [&]() -> Result<Version> {
      const auto [record, first] = nodes_.records.try_emplace(id.value);
      if (!first) return Status(StatusCode::kAlreadyExists, "a node with this id exists");
      record->second = {nodes_.next_version(), Buffer(base.begin(), base.end()), Buffer(delta.begin(), delta.end())};
      return record->second.version;
    });
  }
  Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                          std::span<const wire::IndexIntent> intents) override {
    return change(id, expected, reserve, intents, [&](StoredNode& node) {
      node.base.assign(base.begin(), base.end());
      node.delta.assign(delta.begin(), delta.end());
    });
  }
  Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                std::span<const wire::IndexIntent> intents) override {
    return change(id, expected, reserve, intents,
                  [&](StoredNode& node) { node.delta.assign(delta.begin(), delta.end()); });
  }
  Status remove(TreeNodeId id, Version expected) override {
    return write(Reserve::kCompactor,
                 [&]() -> Result<Version> {
                   const auto record = nodes_.records.find(id.value);
                   if (record == nodes_.records.end() || record->second.version != expected) return conflict();
                   nodes_.records.erase(record);
                   return expected;
                 })
        .status();
  }
  Result<TreeNodeId> new_id() override {
    return nodes_.with_lock([&] { return nodes_.next_id(); });
  }
  uint64_t owner() override { return owner_; }
  void defer(std::function<void()> work) override { deferred_.push_back(std::move(work)); }
  void back_off(uint32_t) override { Env::spin_pause(); }

  /// Runs the deferred work, and the work that it defers in turn.
  void run_deferred() {
    while (!deferred_.empty()) {
      const std::vector<std::function<void()>> work = std::exchange(deferred_, {});
      for (const auto& each : work) each();
    }
  }
  /// Lets the process die at its write number `n` from now (0: the next one): this call and all later ones fail.
  void die_at_write(uint64_t n) { die_at_ = writes_ + n; }
  bool dead() const { return dead_; }
  uint64_t writes() const { return writes_; }

 private:
  static Status death() { return {StatusCode::kUnavailable, "the process is dead"}; }
  static Status conflict() { return {StatusCode::kConflict, "another version"}; }

  template <class F>
  Result<Version> write(Reserve reserve, F&& f) {
    return nodes_.with_lock([&]() -> Result<Version> {
      if (writes_ == die_at_) dead_ = true;
      if (dead_) return death();
      if (reserve < nodes_.min_reserve) return Status(StatusCode::kNoSpace, "memory is full");
      ++writes_;
      return f();
    });
  }
  template <class F>
  Result<Version> change(TreeNodeId id, Version expected, Reserve reserve, std::span<const wire::IndexIntent> intents,
                         F&& f) {
    return write(reserve, [&]() -> Result<Version> {
      const auto record = nodes_.records.find(id.value);
      if (record == nodes_.records.end() || record->second.version != expected) return conflict();
      f(record->second);
      for (const wire::IndexIntent& intent : intents) {
        nodes_.intents.push_back({id, intent.transaction, std::string(intent.key)});
      }
      return record->second.version = nodes_.next_version();
    });
  }

  MemoryNodes& nodes_;
  const uint64_t owner_;
  std::vector<std::function<void()>> deferred_;
  uint64_t writes_ = 0;
  uint64_t die_at_ = UINT64_MAX;
  bool dead_ = false;
};

}  // namespace loam::bdtree
