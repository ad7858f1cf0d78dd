#include "deploy/cli/src/bundle/collector.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/admin/http_get.h"
#include "common/program/descriptors.h"
#include "deploy/cli/src/admin/admin_client.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A server that does not answer one request within this time is asked no more.
constexpr uint64_t kAnswerWithinNs = 5'000'000'000;
/// Upper bound on the listed transactions; the service lists no more.
constexpr unsigned kMaxTransactions = 10'000;
/// Upper bound on the listed slow operations of one server.
constexpr unsigned kMaxSlowOperations = 1'000;

/// Returns the last `count` lines.
std::string last_lines(const std::string& text, uint64_t count) {
  size_t begin = text.size();
  for (uint64_t lines = 0; lines < count && begin > 0; ++lines) {
    // The line break before `begin` ends the line that is looked for.
    const size_t before = begin < 2 ? std::string::npos : text.rfind('\n', begin - 2);
    begin = before == std::string::npos ? 0 : before + 1;
  }
  return text.substr(begin);
}

/// Returns the body of the page `path` at an administration port. kNotFound: the server has no such page.
Result<std::string> fetch(const std::string& address, const std::string& path) {
  LOAM_RETURN_IF_ERROR(program::ensure_descriptors(program::kClientDescriptors));
  constexpr auto kTimeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(kAnswerWithinNs));
  LOAM_ASSIGN_OR_RETURN(HttpReply reply, http_get(address, path, kTimeout));
  if (reply.status == 200) return std::move(reply.body);
  return Status(reply.status == 404 ? StatusCode::kNotFound : StatusCode::kUnavailable,
                "GET " + path + " at " + address + ": HTTP status " + std::to_string(reply.status));
}

/// Replaces what an address has and a file name should not have.
std::string as_file_name(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }, '_');
  return text;
}

}  // namespace

BundleCollector::BundleCollector(BundleOptions options, AddFile add_file, Progress progress)
    : options_(std::move(options)), add_file_(std::move(add_file)), progress_(std::move(progress)) {
  manifest_ = {{"manager", options_.manager}, {"files", Json::array()}, {"not_collected", Json::array()}};
}

Status BundleCollector::add(const std::string& name, std::string_view content) {
  LOAM_RETURN_IF_ERROR(add_file_(name, content));
  manifest_["files"].push_back({{"path", name}, {"bytes", content.size()}});
  return ok_status();
}

Status BundleCollector::add_text(const std::string& name, const Result<std::string>& content) {
  if (content.ok()) return add(name, std::string_view(*content));
  leave_out(name, content.status());
  return ok_status();
}

Status BundleCollector::add_json(const std::string& name, const Result<Json>& content) {
  if (!content.ok()) return add_text(name, content.status());
  // Names come from clients, so they may be no UTF-8.
  return add(name, content->dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void BundleCollector::leave_out(const std::string& name, const Status& why) {
  manifest_["not_collected"].push_back({{"path", name}, {"reason", why.message()}});
  if (why != StatusCode::kNotFound) complete_ = false;
}

Status BundleCollector::run() {
  Json nodes = Json::array();
  LOAM_RETURN_IF_ERROR(collect_manager(nodes));
  for (const std::string& address : options_.nodes) {
    const bool known = std::ranges::any_of(nodes, [&](const Json& node) { return node["admin_address"] == address; });
    if (!known) nodes.push_back({{"admin_address", address}});
  }
  for (const Json& node : nodes) LOAM_RETURN_IF_ERROR(collect_node(node));
  return ok_status();
}

Status BundleCollector::collect_manager(Json& nodes) {
  const std::string& address = options_.manager;
  progress_("the commit manager at " + address);
  const auto health = manager_health(address, kAnswerWithinNs);
  LOAM_RETURN_IF_ERROR(add_json("manager/health.json", health));
  if (!health.ok()) {
    for (const char* name : {"manager/", "cluster/"}) leave_out(name, health.status());
    return ok_status();
  }
  LOAM_RETURN_IF_ERROR(collect_server("manager", address, "the commit manager"));
  const auto listed = list_nodes(address);
  if (listed.ok()) nodes = *listed;
  LOAM_RETURN_IF_ERROR(add_json("cluster/nodes.json", listed));
  LOAM_RETURN_IF_ERROR(add_json("cluster/statistics.json", cluster_statistics(address)));
  LOAM_RETURN_IF_ERROR(add_json("cluster/tables.json", list_tables(address)));
  LOAM_RETURN_IF_ERROR(add_json("cluster/shards.json", shard_map(address)));
  LOAM_RETURN_IF_ERROR(add_json("cluster/sessions.json", list_sessions(address)));
  LOAM_RETURN_IF_ERROR(add_json("cluster/transactions.json", list_transactions(address, kMaxTransactions)));
  LOAM_RETURN_IF_ERROR(add_json("cluster/queries.json", list_queries(address)));
  return add_json("cluster/slow.json", slow_operations(address, kMaxSlowOperations));
}

Status BundleCollector::collect_node(const Json& node) {
  const std::string address = node["admin_address"];
  const bool named = node.contains("id");
  const std::string folder = "nodes/" + (named ? std::to_string(number(node, "id")) : as_file_name(address));
  const std::string what = named ? "storage node " + std::to_string(number(node, "id")) : "the storage node";
  if (address.empty()) {
    leave_out(folder + "/", Status(StatusCode::kUnavailable, what + " runs without administration (--admin)"));
    return ok_status();
  }
  progress_(what + " at " + address);
  const auto health = node_health(address, kAnswerWithinNs);
  LOAM_RETURN_IF_ERROR(add_json(folder + "/health.json", health));
  if (health.ok()) return collect_server(folder, address, what);
  leave_out(folder + "/", health.status());
  return ok_status();
}

/// Adds the pages that every server has.
Status BundleCollector::collect_server(const std::string& folder, const std::string& address, const std::string& what) {
  struct Page {
    const char* path;
    const char* file;
  };
  for (const Page& page : {Page{"/version", "version.json"}, Page{"/options", "options.json"},
                           Page{"/metrics", "metrics.txt"}, Page{"/logs", "log.txt"}}) {
    auto content = fetch(address, page.path);
    if (content.ok() && std::string_view(page.path) == "/logs") content = last_lines(*content, options_.log_lines);
    if (content.code() == StatusCode::kNotFound) {
      content = Status(StatusCode::kNotFound, what + " has no page " + page.path +
                                                  ": it has an earlier version, or its process runs several servers");
    }
    LOAM_RETURN_IF_ERROR(add_text(folder + "/" + page.file, content));
  }
  return ok_status();
}

}  // namespace loam::cli
