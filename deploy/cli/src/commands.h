// The subcommands of `loam`, one source file each.
#pragma once

#include <CLI/CLI.hpp>

#include "deploy/cli/src/context.h"

namespace loam::cli {

// Each function adds the subcommand of its name to the parser. `context` outlives the parser.
void add_cluster(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_delete(CLI::App& app, Context& context);
void add_demo(CLI::App& app, Context& context);
void add_demo_client(CLI::App& app, Context& context);
void add_dev(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_get(CLI::App& app, Context& context);
void add_import(CLI::App& app, Context& context);
void add_index(CLI::App& app, Context& context);
void add_log(CLI::App& app, Context& context);
void add_node(CLI::App& app, Context& context);
void add_ping(CLI::App& app, Context& context);
void add_put(CLI::App& app, Context& context);
void add_queries(CLI::App& app, Context& context);
void add_scan(CLI::App& app, Context& context);
void add_sessions(CLI::App& app, Context& context);
void add_slow(CLI::App& app, Context& context);
void add_stats(CLI::App& app, Context& context);
void add_status(CLI::App& app, Context& context);
void add_support_bundle(CLI::App& app, Context& context);
void add_table(CLI::App& app, Context& context);
void add_transactions(CLI::App& app, Context& context);
void add_version(CLI::App& app, Context& context);

}  // namespace loam::cli
