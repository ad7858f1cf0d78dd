// One fiber of the workload: repeatedly chooses an activity and runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "common/testing/random.h"
#include "tests/sim/tracked_transaction.h"
#include "tests/sim/workload.h"

namespace loam::sim {

/// The tables that all clients know.
struct WorkloadTables {
  client::Table accounts;
  client::Table hot;
  client::Table plain;
  client::Table wide;
  std::optional<client::Table> unique_table{};  ///< only if the shape has its index

  static constexpr std::string_view kAccounts = "accounts";
  static constexpr std::string_view kHot = "hot";
  static constexpr std::string_view kPlain = "plain";
  static constexpr std::string_view kWide = "wide";
  static constexpr std::string_view kCounter = "numbers";
  static constexpr std::string_view kHotByValue = "hot.by_value";
  static constexpr std::string_view kHotByTag = "hot.by_tag";  ///< unique
  static constexpr std::string_view kWideByValue = "wide.by_value_and_tag";
  static constexpr std::string_view kUniqueTable = "claims";
  static constexpr std::string_view kUniqueByValue = "claims.one_value";  ///< unique, and there are few values
  static constexpr int64_t kUniqueTableValues = 12;
};

/// One fiber's work. Threads: one fiber of its client. No function blocks other than in calls of the client.
class WorkloadFiber {
 public:
  WorkloadFiber(ClientProcess& process, const WorkloadShape& shape, const WorkloadTables& tables,
                testing::Random random, std::function<bool()> stop)
      : process_(process), shape_(shape), tables_(tables), random_(random), stop_(std::move(stop)) {}

  void run();

 private:
  using Activity = void (WorkloadFiber::*)();
  struct Choice {
    uint32_t weight;
    Activity activity;
  };
  static const std::vector<Choice>& choices();

  // Transfers: the sum of all accounts stays the same.
  void transfer();
  void transfer_explicit();
  void rebalance();
  // Hot records: clients insert and remove them.
  void change_hot();
  void count_up();
  void blind_writes();
  void several_tables();
  void write_guarded();
  void write_wide();
  void rewrite_own_writes();
  void insert_late();
  /// Inserts and removes the key.
  bool insert_and_remove(Key key);
  /// Lets another client process insert and remove the key.
  bool delegate_insert_and_remove(Key key);
  /// Runs a write that another process has delegated. False: there is none.
  bool run_delegated_write();
  // Reading.
  void read_points();
  void scan_all();
  void scan_in_transaction();
  void scan_wide();
  void run_long_transaction();
  // Reads and writes by indexes (workload_fiber_index.cc).
  void read_by_index();
  void write_unique();
  void change_by_index();
  void toggle();
  void rebuild();
  // Non-transactional tables and counters.
  void write_plain();
  void read_plain();
  void draw_numbers();
  // Tables that clients create and drop.
  void make_table();
  void use_table();
  void add_field(const client::Table& table);
  void drop_table();
  void use_index();
  void drop_index();

  Key account() { return Key(random_.below(shape_.accounts)); }
  Key hot_key() { return Key(random_.below(shape_.hot_keys)); }
  int64_t value() { return static_cast<int64_t>(random_.below(1'000)); }
  std::string dynamic_table_name() { return "made." + std::to_string(random_.below(shape_.dynamic_tables)); }
  /// Changes one hot record: depending on the record that it reads, or without a read (`blind`).
  bool change_one(TrackedTransaction& tracked, Key key, bool blind);
  /// Moves money between two accounts. Inserts an account again that a lost node took away.
  bool move_money(TrackedTransaction& tracked, Key from, Key to, bool for_update);
  std::optional<client::Table> open_dynamic_table();
  bool has(uint32_t index) const { return (shape_.indexes & index) != 0; }
  std::optional<client::Index> index(std::string_view name, const client::Table& table);
  std::string dynamic_index_name(const client::Table& table);
  bool change_unique(TrackedTransaction& tracked, const client::Index& index);
  void pause(uint64_t mean_ns) { process_.client.sleep_for(random_.below(2 * mean_ns + 1)); }

  ClientProcess& process_;
  const WorkloadShape& shape_;
  const WorkloadTables& tables_;
  testing::Random random_;
  const std::function<bool()> stop_;
  std::optional<client::Counter> counter_;
  uint64_t counter_object_ = 0;
  std::map<std::string, client::Table> dynamic_tables_;  // handles, also of tables that have been dropped
};

}  // namespace loam::sim
