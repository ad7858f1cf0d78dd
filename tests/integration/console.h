// A client that a test leads by the hand: commands on stdin, one JSON object a command on stdout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "tests/integration/accounts.h"

namespace loam::integration {

/// Commands, words between blanks:
///
///     load COUNT BALANCE             accounts 1 … COUNT
///     transact CHANGE…               one transaction: read:KEY add:KEY=AMOUNT insert:KEY=AMOUNT remove:KEY
///     begin COUNT                    so many transactions that are begun and aborted; the first id, the last
///     hold CHANGE…                   begins, reads and writes nothing of it: only reads, and stays open
///     look                           the same reads once more in the held transaction
///     release                        aborts it
///     writable MILLISECONDS KEY…     tries to write all these, again and again, until that commits
///     sum · scan                     the total; every record as [key, version, balance]
///     create NAME int64|text         another table with one field of that type
///     session                        the session's number
///
/// Every answer has the members of json_status. Ends at the end of stdin.
class Console {
 public:
  Console(client::Client& client, Accounts& accounts, const client::Table& table)
      : client_(client), accounts_(accounts), table_(table) {}

  void run();

 private:
  using Words = std::vector<std::string>;

  std::string answer(const Words& words);
  std::string begin(uint64_t count);
  std::string hold(const Words& words);
  std::string look();
  std::string writable(const Words& words);
  std::string scan();
  std::string create(const Words& words);

  client::Client& client_;
  Accounts& accounts_;
  const client::Table table_;
  std::vector<client::Transaction> held_;  // at most one
  std::vector<Key> held_keys_;
};

}  // namespace loam::integration
