// A client that a test leads by the hand: commands on stdin, one JSON object a command on stdout.
#pragma once

#include <optional>
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
///     prepare CHANGE…                the same up to the commit
///     commit                         what was prepared; together they answer what transact does
///     begin COUNT                    so many transactions that are begun and aborted; the first id, the last
///     look                           the reads of what was prepared, once more
///     release                        aborts what was prepared
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
  std::string prepare(const Words& words);
  std::string look();
  std::string writable(const Words& words);
  std::string scan();
  std::string create(const Words& words);

  client::Client& client_;
  Accounts& accounts_;
  const client::Table table_;
  std::optional<Prepared> prepared_;
};

}  // namespace loam::integration
