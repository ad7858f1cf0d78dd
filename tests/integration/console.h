// A client that a test drives: it reads commands from stdin and writes one JSON object for each command to stdout.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "tests/integration/accounts.h"

namespace loam::integration {

/// The commands. Blanks separate words:
///
///     load COUNT BALANCE             accounts 1 … COUNT
///     transact CHANGE…               one transaction: read:KEY add:KEY=AMOUNT insert:KEY=AMOUNT remove:KEY
///     prepare CHANGE…                reads and buffers the writes of a transaction
///     commit                         commits the prepared transaction; the two replies together are that of transact
///     begin COUNT                    begins and aborts COUNT transactions; answers the first and the last id
///     reread                         repeats the reads of the prepared transaction
///     release                        aborts the prepared transaction
///     writable MILLISECONDS KEY…     tries to write all these, again and again, until that commits
///     sum · scan                     the total; every record as [key, version, balance]
///     create NAME int64|text         another table with one field of that type
///     stream NAME                    starts a scan of the table, of which the storage nodes may send one chunk ahead
///     drain                          reads the rest of this scan; answers its number of rows
///     session                        the session's number
///
/// Every reply has the members of json_status. The console ends at the end of stdin.
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
  std::string reread();
  std::string writable(const Words& words);
  std::string scan();
  std::string create(const Words& words);
  std::string stream(const Words& words);
  std::string drain();

  client::Client& client_;
  Accounts& accounts_;
  const client::Table table_;
  std::optional<BufferedTransaction> prepared_;
  std::optional<client::ScanStream> stream_;
};

}  // namespace loam::integration
