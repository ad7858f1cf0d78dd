// The probes poll with transactions of their own, one fiber for each account.
#include "deploy/demo/lock_probe.h"

#include <fmt/format.h>

#include "common/base/env.h"

namespace loam::cli {
namespace {

constexpr uint64_t kTryAgainAfterNs = 1'000'000;

Status write_once(client::Client& client, const AccountTables& tables, uint64_t account) {
  LOAM_ASSIGN_OR_RETURN(client::Transaction transaction, client.begin());
  LOAM_ASSIGN_OR_RETURN(const client::Record record, transaction.get(tables.accounts, Key(account)));
  LOAM_RETURN_IF_ERROR(transaction.update(tables.accounts, Key(account), record));
  return transaction.commit();
}

}  // namespace

Result<std::vector<uint64_t>> measure_unlock_times(client::Client& client, const AccountTables& tables,
                                                   const std::vector<uint64_t>& accounts, uint64_t since_ns,
                                                   uint64_t timeout_ns) {
  std::vector<uint64_t> times(accounts.size(), 0);  // written by the fibers, on the client's worker thread
  std::vector<Status> last(accounts.size());
  std::vector<client::Task> tasks;
  tasks.reserve(accounts.size());
  const uint64_t end_ns = Env::now_ns() + timeout_ns;
  for (size_t i = 0; i < accounts.size(); ++i) {
    tasks.push_back(client.spawn([&, i] {
      do {
        last[i] = write_once(client, tables, accounts[i]);
        if (last[i].ok()) {
          times[i] = Env::now_ns() - since_ns;
          return;
        }
        // Bounds the error of the measurement to 1 ms, and the load of the probes.
        client.sleep_for(kTryAgainAfterNs);
      } while (Env::now_ns() < end_ns);
    }));
  }
  for (client::Task& task : tasks) task.join();
  for (size_t i = 0; i < accounts.size(); ++i) {
    if (last[i].ok()) continue;
    return Status(StatusCode::kTimeout,
                  fmt::format("account {} cannot be written {:.1f} s after the death of the client "
                              "that held it: {}",
                              accounts[i], static_cast<double>(Env::now_ns() - since_ns) / 1e9, last[i].to_string()));
  }
  return times;
}

Result<uint64_t> time_until_begin(client::Client& client, uint64_t since_ns, uint64_t timeout_ns) {
  const uint64_t end_ns = Env::now_ns() + timeout_ns;
  return client.run([&]() -> Result<uint64_t> {
    for (;;) {
      const auto transaction = client.begin();
      if (transaction.ok()) return Env::now_ns() - since_ns;
      if (Env::now_ns() >= end_ns) {
        return Status(
            StatusCode::kTimeout,
            fmt::format("no transaction can begin {:.1f} s after the death of the commit manager: {}",
                        static_cast<double>(Env::now_ns() - since_ns) / 1e9, transaction.status().to_string()));
      }
      client.sleep_for(kTryAgainAfterNs);
    }
  });
}

}  // namespace loam::cli
