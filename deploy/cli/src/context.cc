// Options, connection and error output that all subcommands share.
#include "deploy/cli/src/context.h"

#include <cstdlib>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/command/environment.h"
#include "common/program/numbers.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/cluster/cluster_folder.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

constexpr const char* kConnectVariable = "LOAM_CONNECT";
constexpr const char* kAdminVariable = "LOAM_ADMIN";

/// Returns whether an environment variable is set and not empty.
bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

ExitCode exit_code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kUnavailable:
    case StatusCode::kUnsupportedVersion:
    case StatusCode::kFenced:
    case StatusCode::kWrongCluster:
      return kExitNoConnection;
    default:
      return kExitFailed;
  }
}

void add_json(CLI::App& command, Context& context) {
  command.add_flag("--json", context.json, "Print JSON: one object a row or answer; errors too");
}

void add_connection(CLI::App& app, Context& context) {
  command::add_with_environment(app, "--connect", context.connect, kConnectVariable, "Address of the commit manager")
      ->type_name("ADDRESS")
      ->capture_default_str();
  add_json(app, context);
}

void add_administration(CLI::App& app, Context& context) {
  add_connection(app, context);
  command::add_with_environment(app, "--admin", context.admin, kAdminVariable,
                                "Administration of the commit manager; without it, derived from --connect")
      ->type_name("HOST:PORT");
}

ClusterLocation location_of(std::string_view address, std::string_view admin_address) {
  ClusterLocation place;
  if (address != kDefaultAddress || is_set(kConnectVariable)) place.connect = address;
  if (is_set(kAdminVariable)) place.admin = admin_address;
  return place;
}

void set_body(CLI::App& command, Context& context, std::function<int()> body) {
  // The callback only stores the body. CLI11 calls callbacks during parsing, but the body must run after parsing, when
  // hints know the location of the cluster.
  command.callback([&context, body = std::move(body)] { context.run = body; });
}

std::unique_ptr<client::Client> connect(const Context& context, int& exit_code) {
  std::string address = context.connect;
  if (address.find("://") == std::string::npos) address = "tcp://" + address;
  client::ClientOptions options;
  options.name = context.name;
  // A person waits for the answer, so the loss of the cluster is reported sooner than the library's default.
  options.commit_timeout_ns = 10'000'000'000;
  auto connected = client::Client::connect(address, options);
  if (connected.ok()) return std::move(connected).value();
  const Status& status = connected.status();
  if (status == StatusCode::kInvalidArgument) {
    exit_code = fail(context, kExitUsage, fmt::format("--connect: {}", status.message()));
  } else {
    exit_code = fail(
        context, kExitNoConnection,
        fmt::format("cannot connect to {}: {}\n  Is a cluster running there? `{}` starts one; "
                    "--connect or LOAM_CONNECT name another address.",
                    address, status.message().empty() ? to_string(status.code()) : status.message(), hint(Hint::kDev)));
  }
  return nullptr;
}

std::string default_administration(const Context& context) {
  const size_t scheme = context.connect.find("://");
  const std::string address = scheme == std::string::npos ? context.connect : context.connect.substr(scheme + 3);
  const uint16_t port = port_of(address);
  if (port == 0 || port > UINT16_MAX - kAdminPortOffset) return "";
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port + kAdminPortOffset);
}

std::string administration(const Context& context, int& exit_code) {
  if (!context.admin.empty()) return context.admin;
  constexpr uint64_t kAnswerWithinNs = 1'000'000'000;
  // Step 1: guess the address from the data port, and ask there. The reply names the data address of that commit
  // manager, so a wrong guess that reaches another cluster's administration is noticed.
  if (const std::string guess = default_administration(context); !guess.empty()) {
    const auto health = manager_health(guess, kAnswerWithinNs);
    if (health.ok() && port_of(health->value("address", "")) == port_of(context.connect)) return guess;
  }
  // Step 2: ask the commit manager through a session.
  const auto client = connect(context, exit_code);
  if (!client) return "";
  const std::string reported_address = client->admin_address();
  if (reported_address.empty())
    exit_code = fail(context, kExitFailed, "the commit manager runs without administration (--admin)");
  return reported_address;
}

int fail(const Context& context, ExitCode code, std::string_view message) {
  if (context.json) {
    const nlohmann::ordered_json object = {{"error", {{"exit_code", static_cast<int>(code)}, {"message", message}}}};
    std::cerr << json_line(object) << std::endl;
  } else {
    std::cerr << "loam: " << message << std::endl;
  }
  return code;
}

int fail(const Context& context, const Status& status) { return fail(context, exit_code_of(status), status); }

int fail(const Context& context, ExitCode code, const Status& status) {
  return fail(context, code, status.message().empty() ? to_string(status.code()) : status.message());
}

int finish_output(const Context& context, program::StandardStreams& streams, int code) {
  // Output can fail at the very end only, for example on a full disk, so the check comes after the command.
  const Status written = streams.finish();
  if (written.ok()) return code;
  fail(context, kExitFailed, written);
  return code == kExitOk ? kExitFailed : code;
}

std::vector<OutputColumn> output_columns(const QueryPlan& plan, const ResultSchema& schema) {
  std::vector<OutputColumn> columns;
  columns.reserve(plan.names.size());
  for (size_t i = 0; i < plan.names.size(); ++i) columns.push_back({plan.names[i], schema.columns[i].type});
  return columns;
}

Result<std::pair<std::string, std::string>> split_assignment(std::string_view text) {
  const size_t at = text.find('=');
  if (at == std::string_view::npos || at == 0) {
    return Status(StatusCode::kInvalidArgument, fmt::format("'{}' is no assignment: write field=value", text));
  }
  return std::pair(std::string(text.substr(0, at)), std::string(text.substr(at + 1)));
}

Result<Key> parse_key(std::string_view text) {
  const auto key = program::parse_unsigned(text);
  if (!key.ok()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is no record key; a key is a whole number from 0 to 2^64 - 1", text));
  }
  return Key(*key);
}

}  // namespace loam::cli
