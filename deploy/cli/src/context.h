// The common part of all subcommands: options, the connection to the cluster, and the output of errors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <loam/client/client.h>

#include "common/base/status.h"
#include "common/program/standard_streams.h"
#include "deploy/cli/src/exit_codes.h"
#include "deploy/cli/src/output/printer.h"
#include "deploy/cli/src/query/query_plan.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {

/// Default address of the commit manager.
inline constexpr std::string_view kDefaultAddress = "tcp://127.0.0.1:7400";
/// Default address of the commit manager's administration.
inline constexpr std::string_view kDefaultAdminAddress = "127.0.0.1:7410";

/// The options that the parser fills for one run of the program. Owner: CommandLine; subcommands refer to it. Threads:
/// one.
struct Context {
  std::string connect{kDefaultAddress};  ///< address of the commit manager
  std::string name = "loam";             ///< name of the session, which operators see in lists of sessions
  std::string admin;                     ///< address of the administration; empty: derived from `connect`
  std::string directory;                 ///< folder of a cluster on this host; empty: the default folder
  bool json = false;                     ///< print JSON
  bool csv = false;                      ///< print CSV

  /// The body of the given subcommand, which runs after parsing. Returns the exit code.
  std::function<int()> run;

  /// The format of rows on standard output.
  OutputFormat format() const { return json ? OutputFormat::kJson : csv ? OutputFormat::kCsv : OutputFormat::kTable; }
};

/// Adds --json to a subcommand.
void add_json(CLI::App& command, Context& context);
/// Adds --connect (and LOAM_CONNECT) and --json.
void add_connection(CLI::App& command, Context& context);
/// Adds --connect, --admin (and LOAM_ADMIN) and --json.
void add_administration(CLI::App& command, Context& context);
/// The options that a printed command needs to reach the cluster whose commit manager has these addresses. The default
/// address is left out unless LOAM_CONNECT is set, because the command would use that variable. The administration is
/// left out unless LOAM_ADMIN is set, because the command derives it from the address.
ClusterLocation location_of(std::string_view address, std::string_view admin_address);

/// Sets the function that runs if the user gives this subcommand. It returns an exit code.
void set_body(CLI::App& command, Context& context, std::function<int()> body);

/// Opens a session at the address of --connect; "host:port" means "tcp://host:port". On failure prints the error, sets
/// `exit_code` to kExitNoConnection, or to kExitUsage for a malformed address, and returns null.
std::unique_ptr<client::Client> connect(const Context& context, int& exit_code);

/// Finds the address of the commit manager's administration, in this order: the value of --admin; the port of --connect
/// plus kAdminPortOffset, if the commit manager of --connect answers there; the address that the commit manager tells a
/// new session. The first two need no session: a cluster that lacks a storage node gives none. On failure prints the
/// error, sets `exit_code` and returns "".
std::string administration(const Context& context, int& exit_code);
/// The address at which the administration of the commit manager of --connect listens by default: its port plus
/// kAdminPortOffset. Empty: --connect names no port that has one.
std::string default_administration(const Context& context);

/// Prints an error on standard error, as "loam: …" or with --json as an object {"error": …}. Returns `code`.
int fail(const Context& context, ExitCode code, std::string_view message);
/// Prints the message of a status as an error. The exit code is exit_code_of(status) unless given.
int fail(const Context& context, const Status& status);
int fail(const Context& context, ExitCode code, const Status& status);

/// Checks that all output was written, and returns the exit code of the program: `code`, or kExitFailed if the command
/// succeeded and its output was lost. Prints an error in that case.
int finish_output(const Context& context, program::StandardStreams& streams, int code);

/// The columns of a result: the names of the plan with the types of the result's schema.
std::vector<OutputColumn> output_columns(const QueryPlan& plan, const ResultSchema& schema);

/// Splits "field=value" at the first '='. kInvalidArgument: no '=', or no field before it.
Result<std::pair<std::string, std::string>> split_assignment(std::string_view text);
/// Parses a record key, a whole number from 0 to 2^64 - 1. kInvalidArgument.
Result<Key> parse_key(std::string_view text);

}  // namespace loam::cli
