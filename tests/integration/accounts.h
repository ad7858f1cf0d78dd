// The table that the tests of a whole cluster work on: accounts with a balance, whose total never changes.
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

/// What a transaction does with one record, after it has read it.
struct Change {
  enum class Kind : uint8_t {
    kRead,    ///< nothing
    kAdd,     ///< amount more; kNotFound if there is no such account
    kInsert,  ///< a new account with that amount
    kRemove,  ///< its balance goes to the first kAdd of the transaction, if there is one
  };
  Kind kind{};
  Key key;
  int64_t amount = 0;
};

/// A transaction that has read and buffered its writes, and was not asked to commit yet.
struct Prepared {
  Attempt attempt;  // its status: of the preparation
  std::optional<client::Transaction> transaction{};
};

/// One client's access to the accounts. Every transaction reads all the records that it names before it writes, and is
/// told to the history: the checker relies on both. Calls from fibers or ordinary threads, as the client's.
class Accounts {
 public:
  /// `index`: of the balances, if there is one.
  Accounts(client::Client& client, client::Table table, std::optional<client::Index> index, History& history)
      : client_(client), table_(std::move(table)), index_(std::move(index)), history_(history) {}

  /// (balance int64), transactional.
  static Schema schema();

  /// One transaction; never repeated. Keys are distinct.
  Attempt attempt(std::span<const Change> changes) { return finish(prepare(changes)); }
  /// The same in two steps.
  Prepared prepare(std::span<const Change> changes);
  Attempt finish(Prepared prepared);
  /// Accounts 1 … count with `balance` each, in transactions of up to 100.
  Status load(uint64_t count, int64_t balance);
  /// The total in a snapshot of its own, by a scan. kInternal: the index says something else of that snapshot.
  Result<int64_t> sum();
  /// Every record, by a scan.
  Result<std::vector<SeenRecord>> scan();

 private:
  Status read(std::span<const Change> changes, Prepared& prepared);
  Status check_index(client::Transaction& transaction, int64_t sum);
  Status write(client::Transaction& transaction, std::span<const Change> changes, Attempt& attempt);

  client::Client& client_;
  const client::Table table_;
  const std::optional<client::Index> index_;
  History& history_;
};

}  // namespace loam::integration
