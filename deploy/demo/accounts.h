// The accounts between which the demo moves money, and a ledger that counts the transfers of each fiber.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"

namespace loam::cli {

/// The balance of each account at the beginning.
inline constexpr int64_t kOpeningBalance = 1'000;
/// Upper bound on the fibers of a client process of the demo. A fiber's row in the ledger is client * kMaxFibers +
/// fiber.
inline constexpr uint64_t kMaxFibers = 4'096;

/// The two tables of the demo. A transfer changes two accounts and increments its fiber's row of the ledger in one
/// transaction. So the ledger knows how many transfers of a fiber were committed, even if the client process has died.
struct AccountTables {
  client::Table accounts;  ///< keys 0 to `count` - 1; field: the balance
  client::Table ledger;    ///< keys by ledger_key(); field: the number of transfers
  uint64_t count = 0;      ///< number of accounts
};

/// The key of a fiber's row in the ledger.
inline Key ledger_key(unsigned client, unsigned fiber) { return Key(client * kMaxFibers + fiber); }

/// Returns whether a later attempt may succeed after this error, for example because a server was absent, the session
/// was fenced, or a queue was full.
bool is_retryable(const Status& status);

/// Creates the tables and fills the accounts. kAlreadyExists: the tables have records.
Result<AccountTables> make_accounts(client::Client& client, uint64_t count);
/// Opens the tables that make_accounts() created.
Result<AccountTables> open_accounts(client::Client& client, uint64_t count);

/// Moves money in one transaction and increments the row `ledger`. The library repeats the transaction after a
/// conflict.
Status transfer(client::Client& client, const AccountTables& tables, uint64_t from, uint64_t to, int64_t amount,
                Key ledger);

/// Sums all balances by a shared scan in a snapshot of its own. kInternal: the sum or the number of accounts differs
/// from the beginning; the message has both. Other codes are those of the scan.
Status check_total(client::Client& client, const AccountTables& tables);

/// The number of committed transfers of each fiber of a client process, by the ledger.
Result<std::vector<uint64_t>> read_ledger(client::Client& client, const AccountTables& tables, unsigned client_number,
                                          unsigned fibers);

}  // namespace loam::cli
