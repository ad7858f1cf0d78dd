// The commit manager, as far as a recoverer sees it: for tests.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/recovery/recoverer.h"
#include "commit-manager/src/recovery/scripted_test_nodes.h"
#include "common/testing/patience.h"

namespace loam::commit {

/// Stands in for the commit manager: runs one recoverer after another. When a recoverer reports a task as undone, this
/// checks at once that the nodes hold nothing of it any more.
class ScriptedManager {
 public:
  explicit ScriptedManager(ScriptedNodes& nodes) : nodes_(nodes) {}
  ~ScriptedManager() { stop(); }
  ScriptedManager(const ScriptedManager&) = delete;
  ScriptedManager& operator=(const ScriptedManager&) = delete;

  /// With what the caller has set in `options`.
  void start(RecovererOptions options = {}) {
    options.manager_epoch = 1;
    options.session = SessionId(next_session_++);
    if (options.request_timeout_ns == RecovererOptions{}.request_timeout_ns) options.request_timeout_ns = 200'000'000;
    options.on_recovered = [this](const RecoveryTask& task) {
      const std::string left = nodes_.left(task);
      note([&] {
        if (!left.empty()) left_.push_back(left);
        for (const NodeId node : task.nodes) {
          if (!recovered_.emplace(task.session, node).second) ++repeated_;
        }
      });
    };
    options.on_swept = [this](const Status&) {
      note([&] { ++heard.sweeps; });
      if (throws_when_swept) throw std::runtime_error("when it was swept");
    };
    options.on_failed = [this](const Status& status) { note([&] { heard.failed = status; }); };
    options.on_note = [this](std::string_view line) { note([&] { heard.notes.emplace_back(line); }); };
    auto started = Recoverer::start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    recoverer_ = std::move(started).value();
    recoverer_->set_catalog(nodes_.catalog());
  }
  void stop() {
    if (recoverer_ != nullptr) recoverer_->stop();
  }
  Recoverer& recoverer() { return *recoverer_; }
  RecoveryStatistics statistics() const { return recoverer_->statistics(); }

  /// Without the nodes that were reported, as Core would give it.
  void add(RecoveryTask task) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(task.nodes, [&](NodeId node) { return recovered_.contains({task.session, node}); });
    }
    if (!task.nodes.empty()) recoverer_->add({std::move(task)});
  }

  /// `condition` may look at `heard` and is_recovered().
  template <class Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kPatience, condition);
  }
  /// Until these nodes of the session are reported.
  bool wait_until_recovered(SessionId session, const std::vector<NodeId>& nodes) {
    return wait_for(
        [&] { return std::ranges::all_of(nodes, [&](NodeId node) { return recovered_.contains({session, node}); }); });
  }
  bool wait_until_recovered(const RecoveryTask& task) { return wait_until_recovered(task.session, task.nodes); }
  bool is_recovered(SessionId session, NodeId node) {
    const std::lock_guard lock(mutex_);
    return recovered_.contains({session, node});
  }
  size_t recovered() {
    const std::lock_guard lock(mutex_);
    return recovered_.size();
  }
  /// Fails if a task was reported as undone while something of it was left, or if a node was reported twice.
  void expect_true_reports() {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(left_.empty()) << "reported as undone, and left: " << left_[0];
    EXPECT_EQ(repeated_, 0);
  }

  // Guarded by the mutex; read in wait_for()'s condition, or when the recoverer stands still.
  struct Heard {
    std::optional<Status> failed;
    int sweeps = 0;
    std::vector<std::string> notes;
  };
  Heard heard;
  bool throws_when_swept = false;  // set before start()

 private:
  template <class Change>
  void note(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  ScriptedNodes& nodes_;
  uint64_t next_session_ = 10'000;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<SessionId, NodeId>> recovered_;
  std::vector<std::string> left_;
  int repeated_ = 0;
  std::unique_ptr<Recoverer> recoverer_;
};

/// A task of one session at all nodes.
inline RecoveryTask task_of(SessionId session, std::vector<TransactionId> aborted, uint64_t nodes) {
  RecoveryTask task;
  task.session = session;
  task.aborted = std::make_shared<const std::vector<TransactionId>>(std::move(aborted));
  for (uint64_t id = 1; id <= nodes; ++id) task.nodes.emplace_back(id);
  return task;
}

/// What one dead client has left, in tables of its own: transactions that it had committed, and others.
class DeadClient {
 public:
  static constexpr uint64_t kRecords = 6;
  static constexpr uint64_t kStep = 1'000'000;  ///< transactions and keys of a session

  /// `indexes`: one whose entries are shared, and others. They have trees.
  DeadClient(ScriptedNodes& nodes, SessionId session, std::vector<TableId> indexes)
      : nodes_(nodes), session_(session), indexes_(std::move(indexes)) {}

  /// A transaction with records at all nodes, each of which gets a value in each index. `complete`: it is committed.
  TransactionId leave(bool complete, bool with_indexes = true) {
    const TransactionId id(session_.value * kStep + ++transactions_);
    for (uint64_t i = 0; i < kRecords; ++i) {
      const wire::RecordId record{TableId(1'024), Key(session_.value * kStep + transactions_ * 10 + i)};
      complete ? nodes_.put(id, record) : nodes_.write(session_, id, record);
      if (!with_indexes) continue;
      change(id, record.key, false, complete);
    }
    if (!complete) open_.push_back(id);
    return id;
  }
  /// A transaction that changes the records of a complete one, and takes their values.
  TransactionId change_those_of(TransactionId other) {
    const TransactionId id(session_.value * kStep + ++transactions_);
    for (uint64_t i = 0; i < kRecords; ++i) {
      const wire::RecordId record{TableId(1'024), Key(other.value / kStep * kStep + other.value % kStep * 10 + i)};
      nodes_.write(session_, id, record);
      change(id, record.key, true, false);
    }
    open_.push_back(id);
    return id;
  }

  SessionId session() const { return session_; }
  const std::vector<TransactionId>& open() const { return open_; }

 private:
  void change(TransactionId id, Key record, bool take, bool complete) {
    for (size_t i = 0; i < indexes_.size(); ++i) {
      const bool shared = i == 0;
      std::string key = "value " + std::to_string(session_.value) + (shared ? "" : "/" + std::to_string(record.value));
      const wire::IndexChange change{indexes_[i], record, take, shared, std::move(key)};
      complete ? nodes_.change_index(id, change) : nodes_.change_index(session_, id, change);
    }
  }

  ScriptedNodes& nodes_;
  const SessionId session_;
  const std::vector<TableId> indexes_;
  uint64_t transactions_ = 0;
  std::vector<TransactionId> open_;
};

}  // namespace loam::commit
