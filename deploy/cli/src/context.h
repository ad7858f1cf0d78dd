// What every subcommand shares: common options, the connection, and how errors are told.
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
#include "deploy/cli/src/query/question.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {

inline constexpr std::string_view kDefaultAddress = "tcp://127.0.0.1:7400";
inline constexpr std::string_view kDefaultAdminAddress = "127.0.0.1:7410";

/// One run of the program. Lives in main(); subcommands refer to it. One thread.
struct Context {
  std::string connect{kDefaultAddress};
  std::string name = "loam";  ///< of the session, for operators
  std::string admin;          ///< empty: found from `connect`
  std::string directory;      ///< of a cluster on this host; empty: the default
  bool json = false;
  bool csv = false;

  /// What to do after parsing; the subcommand that was given sets it. Returns the exit code.
  std::function<int()> run;

  OutputFormat format() const { return json ? OutputFormat::kJson : csv ? OutputFormat::kCsv : OutputFormat::kTable; }
};

/// Adds --json to a subcommand.
void add_json(CLI::App& command, Context& context);
/// Adds --connect (and LOAM_CONNECT) and --json.
void add_connection(CLI::App& command, Context& context);
/// Adds --connect, --admin (and LOAM_ADMIN) and --json.
void add_administration(CLI::App& command, Context& context);
/// What a command that is printed has to be told to reach the cluster whose commit manager has these addresses. The
/// default address is left out, unless LOAM_CONNECT is set, which the command would read. The administration is found
/// from the address, unless LOAM_ADMIN is set.
GivenPlace place_of(std::string_view address, std::string_view admin_address);

/// Makes `body` what the subcommand does. The body returns an exit code.
void set_body(CLI::App& command, Context& context, std::function<int()> body);

/// A session at the address of --connect; "host:port" is taken for tcp://. Exit code kExitNoConnection, or kExitUsage
/// for what is no address, has been told if it is null.
std::unique_ptr<client::Client> connect(const Context& context, int& exit_code);

/// Address of the commit manager's administration: --admin; or the port kAdminPortOffset above that of --connect, if
/// the commit manager of --connect answers there; or what a session at --connect is told. The first two need no
/// session, which a cluster that lacks a node does not give. If it is empty, the exit code has been told.
std::string administration(const Context& context, int& exit_code);

/// Tells an error on standard error, "loam: …" or with --json an object {"error": …}; returns `code`.
int fail(const Context& context, ExitCode code, std::string_view message);
/// The same for a status; the code is exit_code_of() unless given.
int fail(const Context& context, const Status& status);
int fail(const Context& context, ExitCode code, const Status& status);

/// Looks whether all that was printed has been written. The exit code: `code`, but kExitFailed for a success whose
/// output was lost, which is told on standard error.
int finish_output(const Context& context, program::StandardStreams& streams, int code);

/// The question's names over the types of its result.
std::vector<OutputColumn> output_columns(const Question& question, const ResultSchema& schema);

/// "n=5" → "n" and "5"; kInvalidArgument.
Result<std::pair<std::string, std::string>> split_assignment(std::string_view text);
/// A record key from 0 to 2^64 - 1.
Result<Key> parse_key(std::string_view text);

}  // namespace loam::cli
