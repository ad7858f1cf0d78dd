// The table that the tests of a whole cluster use: accounts with balances whose total never changes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <loam/client/client.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/integration/history.h"

namespace loam::integration {

/// One transaction's change of one record, after it has read the record.
struct Change {
  enum class Kind : uint8_t {
    kRead,    ///< no change
    kAdd,     ///< adds the amount; kNotFound if the account does not exist
    kInsert,  ///< creates an account with the amount
    kRemove,  ///< removes the account; its balance goes to the first kAdd of the transaction, if there is one
  };
  Kind kind{};
  Key key;
  int64_t amount = 0;
};

/// A transaction that has read its records and buffered its writes, and has not requested its commit.
struct BufferedTransaction {
  Attempt attempt;  // its status is that of run_until_commit()
  std::optional<client::Transaction> transaction{};
};

/// One client's access to the accounts. Every transaction reads all records that it names before it writes, and is
/// recorded in the history; the checker relies on both. Threads: fibers or ordinary threads, as the client permits.
class Accounts {
 public:
  /// `index`: an index of the balances, if there is one.
  Accounts(client::Client& client, client::Table table, std::optional<client::Index> index, History& history)
      : client_(client), table_(std::move(table)), index_(std::move(index)), history_(history) {}

  /// One field, the balance (int64); transactional.
  static Schema schema();

  /// Runs one transaction once, without retries. The keys of the changes are distinct.
  Attempt attempt(std::span<const Change> changes) { return finish(run_until_commit(changes)); }
  /// attempt() in two steps: reads and buffered writes, then the commit.
  BufferedTransaction run_until_commit(std::span<const Change> changes);
  Attempt finish(BufferedTransaction prepared);
  /// Inserts the accounts 1 to count with `balance` each, in transactions of up to 100.
  Status load(uint64_t count, int64_t balance);
  /// The total balance in a new snapshot, by a scan. kInternal: the index gives another total in that snapshot.
  Result<int64_t> sum();
  /// Every record, by a scan.
  Result<std::vector<ObservedRecord>> scan();

 private:
  Status read(std::span<const Change> changes, BufferedTransaction& prepared);
  Status check_index(client::Transaction& transaction, int64_t sum);
  Status write(client::Transaction& transaction, std::span<const Change> changes, Attempt& attempt);

  client::Client& client_;
  const client::Table table_;
  const std::optional<client::Index> index_;
  History& history_;
};

}  // namespace loam::integration
