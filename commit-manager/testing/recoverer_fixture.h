// A stand-in for the commit manager in tests of recoverers.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
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
#include "commit-manager/testing/scripted_nodes.h"
#include "common/testing/eventually.h"

namespace loam::commit {

/// Runs one recoverer after another, as the commit manager does. When a recoverer reports a task, it checks at once
/// that the nodes hold no intent of the task that is not undone.
class ScriptedManager {
 public:
  explicit ScriptedManager(ScriptedNodes& nodes) : nodes_(nodes) {}
  ~ScriptedManager() { stop(); }
  ScriptedManager(const ScriptedManager&) = delete;
  ScriptedManager& operator=(const ScriptedManager&) = delete;

  /// Starts a recoverer with `options`.
  void start(RecovererOptions options = {}) {
    options.manager_epoch = 1;
    options.session = SessionId(next_session_++);
    if (options.request_timeout_ns == RecovererOptions{}.request_timeout_ns) options.request_timeout_ns = 200'000'000;
    options.on_recovered = [this](const RecoveryTask& task) {
      const std::string left = nodes_.find_not_undone(task);
      note([&] {
        if (!left.empty()) left_.push_back(left);
        for (const NodeId node : task.nodes) {
          if (!recovered_.emplace(task.session, node).second) ++repeated_;
        }
      });
    };
    options.on_swept = [this](const Status&) {
      note([&] { ++observed.sweeps; });
      if (throws_when_swept) throw std::runtime_error("when it was swept");
    };
    options.on_failed = [this](const Status& status) { note([&] { observed.failed = status; }); };
    options.on_log_line = [this](LogEvent, std::string_view line, LogFields, std::source_location) {
      note([&] { observed.notes.emplace_back(line); });
    };
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

  /// Returns the task without the reported nodes, as Core would return it.
  void add(RecoveryTask task) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(task.nodes, [&](NodeId node) { return recovered_.contains({task.session, node}); });
    }
    if (!task.nodes.empty()) recoverer_->add({std::move(task)});
  }

  /// Waits until `condition` holds. It may read `observed` and is_recovered().
  template <class Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kTestTimeout, condition);
  }
  /// Waits until these nodes of the session are reported.
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
  /// Fails the test if a task was reported before it was undone, or if a node was reported twice.
  void expect_true_reports() {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(left_.empty()) << "reported as undone, and left: " << left_[0];
    EXPECT_EQ(repeated_, 0);
  }

  // Guarded by the mutex; read in the condition of wait_for(), or when the recoverer is idle.
  struct Observed {
    std::optional<Status> failed;
    int sweeps = 0;
    std::vector<std::string> notes;
  };
  Observed observed;
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

/// Makes a task for one session at all nodes.
inline RecoveryTask task_of(SessionId session, std::vector<TransactionId> aborted, uint64_t nodes) {
  RecoveryTask task;
  task.session = session;
  task.aborted = std::make_shared<const std::vector<TransactionId>>(std::move(aborted));
  for (uint64_t id = 1; id <= nodes; ++id) task.nodes.emplace_back(id);
  return task;
}

/// The writes of one dead client in tables of its own: committed transactions and open ones.
class DeadClient {
 public:
  static constexpr uint64_t kRecords = 6;
  static constexpr uint64_t kStep = 1'000'000;  ///< upper bound on transactions and keys of a session

  /// `indexes` have trees. One of them has shared entries.
  DeadClient(ScriptedNodes& nodes, SessionId session, std::vector<TableId> indexes)
      : nodes_(nodes), session_(session), indexes_(std::move(indexes)) {}

  /// Adds a transaction that writes records at all nodes, each with an entry in each index. `complete`: it is
  /// committed.
  TransactionId run_transaction(bool complete, bool with_indexes = true) {
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
  /// Adds an open transaction that changes the records of a complete one and removes their index entries.
  TransactionId overwrite_records_of(TransactionId other) {
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

/// A recoverer of three storage nodes, each with the root of an index. The destructor stops the recoverer and checks
/// its reports.
class RecovererTest : public ::testing::Test {
 protected:
  RecovererTest() {
    for (const NodeId node : {kSecond, kThird, kFirst}) {
      indexes_.push_back(nodes_.index_at(node));
      nodes_.make_tree(indexes_.back());
    }
  }
  ~RecovererTest() override {
    manager_.stop();
    manager_.expect_true_reports();
  }

  DeadClient client(uint64_t session) { return {nodes_, SessionId(session), indexes_}; }
  static RecoveryTask task(const DeadClient& client) { return task_of(client.session(), client.open(), kNodes); }
  /// A record at that node that no client has.
  wire::RecordId record_at(NodeId node) {
    wire::RecordId record{TableId(2'000), Key()};
    do {
      record.key = Key(++last_key_);
    } while (nodes_.owner(record) != node);
    return record;
  }
  void script(std::function<bool(NodeId, wire::Opcode)> which, ScriptedAction fate) {
    nodes_.set_script([which = std::move(which), fate](NodeId node, wire::Opcode opcode) {
      return which(node, opcode) ? fate : ScriptedAction::kAnswer;
    });
  }
  bool noted(const std::string& text) {
    return manager_.wait_for([&] {
      return std::ranges::any_of(manager_.observed.notes,
                                 [&](const std::string& line) { return line.find(text) != std::string::npos; });
    });
  }

  static constexpr uint64_t kNodes = 3;
  static constexpr NodeId kFirst{1}, kSecond{2}, kThird{3};

  ScriptedNodes nodes_{kNodes};
  std::vector<TableId> indexes_;
  ScriptedManager manager_{nodes_};
  uint64_t last_key_ = 0;
};

}  // namespace loam::commit
