// `loam ping`: sends kPing messages over the transport of the data path. It needs no session, so it works while the
// commit manager admits no client.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/command/number_options.h"
#include "common/net/make_transport.h"
#include "common/net/transport/transport.h"
#include "common/wire/message.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PingCommandOptions {
  std::vector<std::string> addresses;
  size_t count = 100;
  size_t bytes = 64;
  double interval_s = 0;
  double timeout_s = 5;
};

/// Measures the round trips to one server. Threads: one.
class Pinger final : private net::Handler {
 public:
  explicit Pinger(const PingCommandOptions& options)
      : options_(options), timeout_ns_(static_cast<uint64_t>(options.timeout_s * 1e9)), payload_(options.bytes) {
    for (size_t i = 0; i < payload_.size(); ++i) payload_[i] = static_cast<std::byte>(i);
  }

  /// The result. `status` says why some requests have no reply.
  Status run(const std::string& text) {
    LOAM_ASSIGN_OR_RETURN(const net::Address address, net::Address::parse(text));
    LOAM_ASSIGN_OR_RETURN(const std::unique_ptr<net::Transport> transport, net::make_transport(address.scheme));
    const uint64_t from_ns = Env::now_ns();
    LOAM_ASSIGN_OR_RETURN(net::Connection* const connection, transport->connect(address, *this));
    LOAM_RETURN_IF_ERROR(poll_until(*transport, [&] { return connected_; }, "connection"));
    connect_ns_ = Env::now_ns() - from_ns;
    Buffer message;
    // One request is in flight at a time, so the time until its reply is one round trip.
    while (requests_ < options_.count && !interrupted()) {
      if (requests_ > 0) sleep_ns(static_cast<uint64_t>(options_.interval_s * 1e9));
      message.clear();
      wire::encode_message(wire::Ping{payload_}, ++requests_, message);
      const uint64_t sent_ns = Env::now_ns();
      LOAM_RETURN_IF_ERROR(connection->send(message));
      LOAM_RETURN_IF_ERROR(poll_until(*transport, [&] { return replies_ == requests_; }, "answer"));
      trips_ns_.push_back(Env::now_ns() - sent_ns);
    }
    return ok_status();
  }

  /// The measurements as {"address", "connect_ns", "requests", "replies", "bytes", "min_ns", …}; null for values that
  /// were not measured.
  Json to_json(const std::string& address) {
    std::ranges::sort(trips_ns_);
    const auto quantile = [&](double q) {
      return trips_ns_.empty() ? Json()
                               : Json(trips_ns_[static_cast<size_t>(q * static_cast<double>(trips_ns_.size() - 1))]);
    };
    return {{"address", address},         {"connect_ns", connected_ ? Json(connect_ns_) : Json()},
            {"requests", requests_},      {"replies", trips_ns_.size()},
            {"bytes", options_.bytes},    {"min_ns", quantile(0)},
            {"median_ns", quantile(0.5)}, {"p99_ns", quantile(0.99)},
            {"max_ns", quantile(1)}};
  }

 private:
  void on_connected(net::Connection&) override { connected_ = true; }
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) {
      ByteReader reader(message);
      wire::Envelope envelope;
      wire::Pong pong;
      Status valid = wire::decode_envelope(reader, envelope);
      if (valid.ok() && envelope.opcode == wire::Opcode::kPong) valid = wire::decode_body(reader, pong);
      // The reply must return the payload unchanged, so the command also notices damaged bytes.
      if (!valid.ok() || envelope.sequence != requests_ || !equal(pong.payload, payload_)) {
        connection.close({StatusCode::kMalformed, "the reply differs from the request"});
        return;
      }
      replies_ = envelope.sequence;
    }
  }
  void on_closed(net::Connection&, const Status& status) override { closed_ = status; }

  template <class Done>
  Status poll_until(net::Transport& transport, Done done, const char* what) {
    const uint64_t until_ns = Env::now_ns() + timeout_ns_;
    while (!done()) {
      const uint64_t now_ns = Env::now_ns();
      if (now_ns >= until_ns) {
        return {StatusCode::kTimeout, fmt::format("no {} within {} s", what, options_.timeout_s)};
      }
      // Waits at most 100 ms at a time, so that a signal is noticed.
      transport.poll(std::min<uint64_t>(until_ns - now_ns, 100'000'000));
      LOAM_RETURN_IF_ERROR(closed_);
      if (interrupted()) return {StatusCode::kCancelled, "interrupted"};
    }
    return ok_status();
  }

  const PingCommandOptions& options_;
  const uint64_t timeout_ns_;
  Buffer payload_;
  bool connected_ = false;
  Status closed_;
  uint64_t connect_ns_ = 0;
  uint64_t requests_ = 0;
  uint64_t replies_ = 0;
  std::vector<uint64_t> trips_ns_;
};

void print(const Json& result) {
  std::string line = result["address"].get<std::string>();
  const auto time = [&](const char* name) { return format_duration(result[name].get<uint64_t>()); };
  if (!result["connect_ns"].is_null()) line += fmt::format("  connected in {}", time("connect_ns"));
  if (!result["min_ns"].is_null()) {
    line += fmt::format("; {} of {} answered: {} at least, {} median, {} p99, {} at most",
                        result["replies"].get<uint64_t>(), result["requests"].get<uint64_t>(), time("min_ns"),
                        time("median_ns"), time("p99_ns"), time("max_ns"));
  }
  std::cout << line << std::endl;
}

/// The addresses of the commit manager and of the storage nodes that it knows.
std::vector<std::string> whole_cluster(const Context& context, int& exit_code) {
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return {};
  const auto statistics = cluster_statistics(admin);
  if (!statistics.ok()) {
    exit_code = fail(context, statistics.status());
    return {};
  }
  std::vector<std::string> addresses = {context.connect};
  for (const Json& node : (*statistics)["nodes"]) addresses.push_back(node["address"].get<std::string>());
  return addresses;
}

int run_ping(const Context& context, const PingCommandOptions& options) {
  int exit_code = kExitOk;
  // The servers are measured one after another, so that they do not disturb each other.
  const std::vector<std::string> addresses =
      options.addresses.empty() ? whole_cluster(context, exit_code) : options.addresses;
  catch_interrupts();
  for (const std::string& named : addresses) {
    if (interrupted() || !std::cout) break;
    const std::string address = named.find("://") == std::string::npos ? "tcp://" + named : named;
    Pinger pinger(options);
    const Status status = pinger.run(address);
    const Json result = pinger.to_json(address);
    if (context.json) {
      std::cout << json_line(result) << std::endl;
    } else if (result["replies"] != 0 || status.ok()) {
      print(result);
    }
    if (status.ok()) continue;
    const ExitCode code = status == StatusCode::kInvalidArgument ? kExitUsage : kExitNoConnection;
    exit_code = fail(context, code, Status(status.code(), address + ": " + std::string(status.message())));
  }
  return interrupted() ? kExitInterrupted : exit_code;
}

}  // namespace

void add_ping(CLI::App& app, Context& context) {
  auto options = std::make_shared<PingCommandOptions>();
  CLI::App* command =
      app.add_subcommand("ping", "Measure the round-trip time to servers over the network of the data path");
  add_administration(*command, context);
  constexpr size_t kMostBytes = 65'536;
  constexpr double kLongestS = 3'600;
  command
      ->add_option("address", options->addresses,
                   "Servers, as tcp://HOST:PORT or rdma://HOST:PORT; without one, the commit manager and all storage "
                   "nodes")
      ->type_name("ADDRESS");
  command::add_unsigned(*command, "--count", options->count, {1, 1'000'000'000},
                        "Requests to each server, one after another");
  command::add_unsigned(*command, "--bytes", options->bytes, {0, kMostBytes}, "Bytes of each request and of its reply");
  command::add_decimal(*command, "--interval", options->interval_s, {0, kLongestS},
                       "Time between a reply and the next request")
      ->type_name("SECONDS");
  command::add_decimal(*command, "--timeout", options->timeout_s, {0.001, kLongestS},
                       "Time limit for a connection and for each reply")
      ->type_name("SECONDS");
  set_body(*command, context, [&context, options] { return run_ping(context, *options); });
}

}  // namespace loam::cli
