#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

constexpr uint64_t kAcceptWithinNs = 10'000'000'000;

struct RecoveryCommandOptions {
  uint64_t transaction = 0;
  bool yes = false;
};

// What an operator agrees to.
std::string consequences(uint64_t transaction) {
  return fmt::format(
      "The undo record of transaction {} cannot be read: nobody knows what the transaction has written.\n"
      "Given up, it counts as aborted, but what it has written stays, as if it had been committed, and all indexes "
      "are\n"
      "damaged: they have to be dropped and created again.\n",
      transaction);
}

int accept(const Context& context, const RecoveryCommandOptions& options) {
  const bool asks = !options.yes;
  if (asks && isatty(STDIN_FILENO) != 1) {
    return fail(context, kExitUsage,
                fmt::format("giving up the undo record of transaction {} leaves what it has written for good; say "
                            "--yes to do it",
                            options.transaction));
  }
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  if (asks) {
    std::cerr << consequences(options.transaction) << fmt::format("Type {} to accept: ", options.transaction);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != std::to_string(options.transaction)) return fail(context, kExitFailed, "nothing was accepted");
  }
  const Status status = accept_unreadable(admin, options.transaction, kAcceptWithinNs);
  if (!status.ok()) return fail(context, status);
  if (context.json) {
    std::cout << json_line({{"accepted", options.transaction}}) << "\n";
  } else {
    std::cout << fmt::format("transaction {} counts as aborted; `{}` shows when recovery is done\n",
                             options.transaction, hint(Hint::kStatus));
  }
  return kExitOk;
}

}  // namespace

void add_recovery(CLI::App& app, Context& context) {
  auto options = std::make_shared<RecoveryCommandOptions>();
  CLI::App* command = app.add_subcommand("recovery", "What recovery cannot decide by itself");
  command->require_subcommand(1);
  CLI::App* accepting = command->add_subcommand(
      "accept-unreadable", "Give up an undo record that nobody can read: its transaction counts as aborted");
  command::add_whole(*accepting, "transaction", options->transaction, {}, "Its number in `loam status`")
      ->required()
      ->default_str("")
      ->type_name("TRANSACTION");
  accepting->add_flag("--yes", options->yes, "Do not ask");
  add_administration(*accepting, context);
  set_body(*accepting, context, [&context, options] { return accept(context, *options); });
}

}  // namespace loam::cli
