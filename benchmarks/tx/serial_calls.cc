// One thread outside of the client library makes one call at a time, so that a latency contains the handover to the
// worker thread of the client and back.
#include "benchmarks/tx/serial_calls.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <sys/resource.h>

#include <loam/client/client.h>

#include "benchmarks/harness/check_ok.h"
#include "benchmarks/tx/transfers.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::bench {
namespace {

/// Number of voluntary context switches of this process's threads.
uint64_t sleeps() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_nvcsw);
}

/// A client whose only user is the calling thread.
class SerialCaller {
 public:
  explicit SerialCaller(const std::string& manager) : client_(value_or_die(client::Client::connect(manager))) {
    transfers_.table = "lone_accounts";
    transfers_.accounts = 1'000;
    table_.emplace(value_or_die(open_accounts(*client_, transfers_)));
    balances_.assign(transfers_.accounts, kOpeningBalance);
  }

  void gets(size_t count) {
    client::Transaction tx = value_or_die(client_->begin({.read_only = true}));
    measure("get", count, [&](size_t number) {
      const client::Record record = value_or_die(tx.get(*table_, Key(number % transfers_.accounts)));
      LOAM_CHECK(record.int64("balance") == balances_[number % transfers_.accounts], "an account has another balance");
    });
  }
  void transfers(size_t count) {
    measure("transfer", count, [&](size_t number) {
      const Key from(number % transfers_.accounts);
      const Key to((number * 7 + 1) % transfers_.accounts);
      if (from != to) transfer(from, to);
    });
  }
  /// The samples of each figure by its name, one value for each turn.
  std::map<std::string, Samples>& columns() { return columns_; }

 private:
  template <class Call>
  void measure(const std::string& name, size_t count, const Call& call) {
    std::vector<uint64_t> times_ns;
    times_ns.reserve(count);
    const uint64_t sleeps_before = sleeps();
    for (size_t number = 0; number < count; ++number) {
      const uint64_t from_ns = Env::now_ns();
      call(number);
      times_ns.push_back(Env::now_ns() - from_ns);
    }
    const auto slept = static_cast<double>(sleeps() - sleeps_before);
    columns_[name + "_us"].values.push_back(static_cast<double>(Latencies::of(times_ns).p50_ns) / 1'000);
    columns_[name + "_sleeps"].values.push_back(slept / static_cast<double>(count));
  }

  void transfer(Key from, Key to) {
    const Status moved = client_->run_transaction([&](client::Transaction& tx) -> Status {
      LOAM_ASSIGN_OR_RETURN(const client::Record source, tx.get(*table_, from));
      LOAM_ASSIGN_OR_RETURN(const client::Record target, tx.get(*table_, to));
      LOAM_RETURN_IF_ERROR(tx.update(*table_, from, {{"balance", Value::int64(source.int64("balance") - 1)}}));
      return tx.update(*table_, to, {{"balance", Value::int64(target.int64("balance") + 1)}});
    });
    LOAM_CHECK(moved.ok(), "a transfer that nothing disturbs fails");
    --balances_[from.value];
    ++balances_[to.value];
  }

  std::unique_ptr<client::Client> client_;
  TransferOptions transfers_;
  std::optional<client::Table> table_;
  std::map<std::string, Samples> columns_;
  std::vector<int64_t> balances_;  // by account, after the acknowledged transfers
};

}  // namespace

void serial_calls(Run& run, const std::string& manager) {
  const size_t gets = run.quick ? 5'000 : 50'000;
  SerialCaller caller(manager);
  const auto turn = [&] {
    caller.gets(gets);
    caller.transfers(gets / 5);
    return caller.columns().at("get_us").values.back();
  };
  const std::vector<Variant> variants = {{"lone", turn}};
  alternate(run.turns, variants);
  for (auto& [name, samples] : caller.columns()) {
    samples.values.erase(samples.values.begin());  // the turn that does not count
    run.report.add("tx.lone_" + name, samples, name.ends_with("_us") ? "us" : "sleeps", Better::kLower);
  }
}

}  // namespace loam::bench
