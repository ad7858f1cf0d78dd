// loam-workload: the client of the tests of a whole cluster. `console` executes commands from stdin, `transfers` runs
// random transactions. Both write a history that tests/integration/history.py checks.
#include <cstdio>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <loam/client/client.h>

#include "tests/integration/accounts.h"
#include "tests/integration/console.h"
#include "tests/integration/history.h"
#include "tests/integration/transfers.h"

namespace {

using namespace loam;
using namespace loam::integration;

struct Options {
  std::string connect = "tcp://127.0.0.1:7400";
  std::string table = "accounts";
  bool index = false;
  std::string history;
  std::string name = "workload";
  double connect_timeout_s = 10;
  double request_timeout_s = 10;
  double commit_timeout_s = 30;
  TransferOptions transfers;
};

Status run(const Options& options, bool console) {
  client::ClientOptions client_options;
  client_options.name = options.name;
  client_options.connect_timeout_ns = static_cast<uint64_t>(options.connect_timeout_s * 1e9);
  client_options.request_timeout_ns = static_cast<uint64_t>(options.request_timeout_s * 1e9);
  client_options.commit_timeout_ns = static_cast<uint64_t>(options.commit_timeout_s * 1e9);
  LOAM_ASSIGN_OR_RETURN(const auto client, client::Client::connect(options.connect, client_options));
  LOAM_ASSIGN_OR_RETURN(const client::Table table,
                        client->create_table(options.table, TableKind::kTransactional, Accounts::schema()));
  std::optional<client::Index> index;
  if (options.index) {
    LOAM_ASSIGN_OR_RETURN(index, client->create_index(options.table + ".by_balance", table, {{"balance"}}));
  }
  History history(options.history, options.name);
  Accounts accounts(*client, table, index, history);
  std::printf("{\"ready\":true,\"session\":%lu}\n", client->session().value);
  std::fflush(stdout);
  if (console) {
    Console(*client, accounts, table).run();
    return ok_status();
  }
  Transfers transfers(*client, accounts, options.transfers);
  transfers.run();
  std::printf("%s\n", transfers.summary().c_str());
  return ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A client of the tests of a whole cluster.");
  app.add_option("--connect", options.connect, "address of the commit manager")->capture_default_str();
  app.add_option("--table", options.table)->capture_default_str();
  app.add_flag("--index", options.index, "use an index of the balances, which sums check, too");
  app.add_option("--history", options.history, "file to which the history is appended");
  app.add_option("--name", options.name, "name of this client in the history and at the commit manager");
  app.add_option("--connect-timeout", options.connect_timeout_s, "seconds")->capture_default_str();
  app.add_option("--request-timeout", options.request_timeout_s, "seconds")->capture_default_str();
  app.add_option("--commit-timeout", options.commit_timeout_s, "seconds")->capture_default_str();
  app.require_subcommand(1);
  app.add_subcommand("console", "executes commands from stdin (tests/integration/console.h)");
  CLI::App* transfers = app.add_subcommand("transfers", "runs random transactions");
  transfers->add_option("--seed", options.transfers.seed)->capture_default_str();
  transfers->add_option("--keys", options.transfers.keys)->check(CLI::PositiveNumber)->capture_default_str();
  transfers->add_option("--fibers", options.transfers.fibers)->check(CLI::PositiveNumber)->capture_default_str();
  transfers->add_option("--seconds", options.transfers.seconds)->capture_default_str();
  transfers->add_option("--count", options.transfers.count, "total number of attempts; 0: as many as the time permits");
  transfers->add_option("--first-insert", options.transfers.first_insert, "first key that only this client inserts");
  CLI11_PARSE(app, argc, argv);

  const Status status = run(options, !transfers->parsed());
  if (!status.ok()) std::fprintf(stderr, "loam-workload: %s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
