// The accounts between which money moves, and the ledger of who has moved how often.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"

namespace loam::cli {

/// What each account has at the beginning.
inline constexpr int64_t kOpeningBalance = 1'000;
/// Fibers that a client process of the demo may have; their numbers in the ledger are client * this + fiber.
inline constexpr uint64_t kMostFibers = 4'096;

/// Both tables. A transfer changes two accounts, and adds one to its fiber's row of the ledger, in one transaction: so
/// the ledger knows how many transfers of a fiber have happened, whatever became of the process.
struct AccountTables {
  client::Table accounts;  ///< keys 0 to `count` - 1: balance
  client::Table ledger;    ///< keys as of ledger_key(): transfers
  uint64_t count = 0;
};

inline Key ledger_key(unsigned client, unsigned fiber) { return Key(client * kMostFibers + fiber); }

/// Whether an error is of the sort that a server's absence, a fence or a full queue brings, and another attempt may not
/// meet.
bool may_pass(const Status& status);

/// Makes the tables and fills the accounts. kAlreadyExists if they have records.
Result<AccountTables> make_accounts(client::Client& client, uint64_t count);
/// Those that make_accounts() made.
Result<AccountTables> open_accounts(client::Client& client, uint64_t count);

/// Moves money and counts it in the ledger, once, with the library's retries after conflicts.
Status transfer(client::Client& client, const AccountTables& tables, uint64_t from, uint64_t to, int64_t amount,
                Key ledger);

/// Sums all balances by a shared scan in a snapshot of its own. kInternal: the sum or the number of accounts is not
/// what it was at the beginning, and the message tells both; other codes are those of the scan.
Status check_total(client::Client& client, const AccountTables& tables);

/// What the ledger says of each fiber of a client process.
Result<std::vector<uint64_t>> read_ledger(client::Client& client, const AccountTables& tables, unsigned client_number,
                                          unsigned fibers);

}  // namespace loam::cli
