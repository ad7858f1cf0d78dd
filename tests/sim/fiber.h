// One fiber of the workload: chooses what to do next, and does it.
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
#include "tests/sim/actor.h"
#include "tests/sim/workload.h"

namespace loam::sim {

/// Tables that all clients know.
struct WorkloadTables {
  client::Table accounts;
  client::Table hot;
  client::Table plain;
  client::Table wide;
  std::optional<client::Table> claims{};  ///< if the shape has its index

  static constexpr std::string_view kAccounts = "accounts";
  static constexpr std::string_view kHot = "hot";
  static constexpr std::string_view kPlain = "plain";
  static constexpr std::string_view kWide = "wide";
  static constexpr std::string_view kCounter = "numbers";
  static constexpr std::string_view kHotByValue = "hot.by_value";
  static constexpr std::string_view kHotByTag = "hot.by_tag";  ///< unique
  static constexpr std::string_view kWideByValue = "wide.by_value_and_tag";
  static constexpr std::string_view kClaims = "claims";
  static constexpr std::string_view kClaimsByValue = "claims.one_value";  ///< unique, and there are few values
  static constexpr int64_t kClaimedValues = 12;
};

/// One fiber's work. Of a fiber of its client; no function here blocks by other means than the client's calls.
class WorkFiber {
 public:
  WorkFiber(Process& process, const WorkloadShape& shape, const WorkloadTables& tables, testing::Random random,
            std::function<bool()> stop)
      : process_(process), shape_(shape), tables_(tables), random_(random), stop_(std::move(stop)) {}

  void run();

 private:
  using Activity = void (WorkFiber::*)();
  struct Choice {
    uint32_t weight;
    Activity activity;
  };
  static const std::vector<Choice>& choices();

  // Money: the sum of all accounts stays.
  void transfer();
  void transfer_by_hand();
  void rebalance();
  // Hot records: they come and go.
  void change_hot();
  void count_up();
  void blind_writes();
  void several_tables();
  void write_guarded();
  void write_wide();
  void change_mind();
  void insert_late();
  /// Inserts and removes the key.
  bool come_and_go(Key key);
  /// Lets another client process insert and remove the key.
  bool let_come_and_go(Key key);
  /// Does what another process has asked for. False: there is nothing.
  bool do_errand();
  // Reading.
  void look();
  void scan_all();
  void scan_in_transaction();
  void scan_wide();
  void live_long();
  // By indexes (fiber_index.cc).
  void look_by_index();
  void claim();
  void change_by_index();
  void toggle();
  void rebuild();
  // Non-transactional tables and counters.
  void write_plain();
  void read_plain();
  void draw_numbers();
  // Tables that come and go.
  void make_table();
  void use_table();
  void drop_table();
  void use_index();
  void drop_index();

  Key account() { return Key(random_.below(shape_.accounts)); }
  Key hot_key() { return Key(random_.below(shape_.hot_keys)); }
  int64_t value() { return static_cast<int64_t>(random_.below(1'000)); }
  std::string made_name() { return "made." + std::to_string(random_.below(shape_.made_tables)); }
  /// Changes one hot record according to what is there, or blindly.
  bool change_one(Tracked& tracked, Key key, bool blind);
  /// Moves money between two accounts; what is missing (a lost node's) is put in anew.
  bool move_money(Tracked& tracked, Key from, Key to, bool for_update);
  std::optional<client::Table> made_table();
  bool has(uint32_t index) const { return (shape_.indexes & index) != 0; }
  std::optional<client::Index> index(std::string_view name, const client::Table& table);
  std::string made_index(const client::Table& table);
  bool change_claims(Tracked& tracked, const client::Index& index);
  void pause(uint64_t mean_ns) { process_.client.sleep_for(random_.below(2 * mean_ns + 1)); }

  Process& process_;
  const WorkloadShape& shape_;
  const WorkloadTables& tables_;
  testing::Random random_;
  const std::function<bool()> stop_;
  std::optional<client::Counter> counter_;
  uint64_t counter_object_ = 0;
  std::map<std::string, client::Table> made_;  // handles, which may be of dropped tables
};

}  // namespace loam::sim
