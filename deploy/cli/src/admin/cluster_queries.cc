// The scan queries of all storage nodes: a client sends a query to every node, so the replies of the nodes are merged.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <loam/commit/admin.grpc.pb.h>
#include <loam/storage/admin.grpc.pb.h>

#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/admin/ask_nodes.h"
#include "deploy/cli/src/admin/call.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Transactions that the commit manager lists at most.
constexpr unsigned kListedTransactions = 10'000;
/// The states of a query at the storage nodes. A query over several nodes has the last of their states.
constexpr std::array<std::string_view, 4> kStates = {"queued", "reading", "waiting_for_client", "waiting_for_memory"};

Json silent_node(const NodeReply& one) {
  return {{"node", one.node}, {"error", std::string(one.reply.status().message())}};
}

/// Adds the part of a query at one storage node to the whole query.
void add_part(Json& query, Json part, uint64_t node) {
  for (const char* sum : {"pages", "pages_done", "records", "rows", "chunks", "unread_chunks"}) {
    query[sum] = number(query, sum) + number(part, sum);
  }
  for (const char* largest : {"age_ns", "waiting_ns"}) {
    query[largest] = std::max(number(query, largest), number(part, largest));
  }
  const auto rank = [](const std::string& state) { return std::ranges::find(kStates, state) - kStates.begin(); };
  if (rank(text(part, "state")) > rank(text(query, "state"))) query["state"] = part["state"];
  for (const char* common : {"id", "session", "address", "table", "snapshot"}) part.erase(common);
  Json own = {{"node", node}};
  own.update(part);
  query["nodes"].push_back(std::move(own));
}

/// Merges the parts of the queries by their ids, the oldest query first.
Json merged(std::vector<NodeReply>& replies) {
  std::map<std::string, Json> by_id;
  for (NodeReply& one : replies) {
    if (!one.reply.ok()) continue;
    for (Json& part : (*one.reply)["queries"]) {
      Json& query = by_id[text(part, "id")];
      if (query.is_null()) {
        query = {{"id", part["id"]},
                 {"session", part["session"]},
                 {"client", ""},
                 {"address", part["address"]},
                 {"table", part["table"]},
                 {"age_ns", 0},
                 {"snapshot", part["snapshot"]},
                 {"snapshot_age_ns", nullptr},
                 {"state", std::string(kStates.front())},
                 {"waiting_ns", 0}};
      }
      add_part(query, std::move(part), one.node);
    }
  }
  std::vector<Json> queries;
  queries.reserve(by_id.size());
  for (auto& [id, query] : by_id) queries.push_back(std::move(query));
  std::ranges::stable_sort(queries, std::ranges::greater(), [](const Json& one) { return number(one, "age_ns"); });
  return Json(std::move(queries));
}

}  // namespace

Result<Json> list_queries(const std::string& admin_address) {
  namespace node = storage::admin;
  LOAM_ASSIGN_OR_RETURN(const Json nodes, list_nodes(admin_address));
  std::vector<NodeReply> replies = ask_nodes(nodes, [](const std::string& address) {
    return call<node::NodeAdmin, node::ListQueriesRequest, node::ListQueriesReply>(address, {},
                                                                                   &node::NodeAdmin::Stub::ListQueries);
  });
  Json result = {{"queries", merged(replies)}, {"silent_nodes", Json::array()}};
  for (const NodeReply& one : replies) {
    if (!one.reply.ok()) result["silent_nodes"].push_back(silent_node(one));
  }
  if (result["queries"].empty()) return result;
  // The commit manager knows the names of the clients and the ages of their snapshots.
  LOAM_ASSIGN_OR_RETURN(const Json sessions, list_sessions(admin_address));
  LOAM_ASSIGN_OR_RETURN(const Json open, list_transactions(admin_address, kListedTransactions));
  std::map<uint64_t, std::string> names;
  for (const Json& session : sessions) names[number(session, "id")] = text(session, "name");
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> ages;  // session and snapshot → age
  for (const Json& one : open["transactions"]) {
    ages[{number(one, "session"), number(one, "snapshot")}] = number(one, "snapshot_age_ns");
  }
  for (Json& query : result["queries"]) {
    query["client"] = names[number(query, "session")];
    const auto age = ages.find({number(query, "session"), number(query, "snapshot")});
    if (number(query, "snapshot") != 0 && age != ages.end()) query["snapshot_age_ns"] = age->second;
  }
  return result;
}

Result<Json> cancel_query(const std::string& admin_address, const std::string& id) {
  namespace node = storage::admin;
  node::CancelQueryRequest request;
  request.set_id(id);
  LOAM_ASSIGN_OR_RETURN(const Json nodes, list_nodes(admin_address));
  const std::vector<NodeReply> replies = ask_nodes(nodes, [&request](const std::string& address) {
    return call<node::NodeAdmin, node::CancelQueryRequest, node::CancelQueryReply>(address, request,
                                                                                   &node::NodeAdmin::Stub::CancelQuery);
  });
  Json result = {{"nodes", Json::array()}, {"silent_nodes", Json::array()}};
  for (const NodeReply& one : replies) {
    if (one.reply.ok()) {
      result["nodes"].push_back(one.node);
    } else if (one.reply.code() == StatusCode::kInvalidArgument) {
      return one.reply.status();
    } else if (one.reply.code() != StatusCode::kNotFound) {
      result["silent_nodes"].push_back(silent_node(one));
    }
  }
  if (result["nodes"].empty() && result["silent_nodes"].empty()) {
    return Status(StatusCode::kNotFound, fmt::format("no storage node runs query {}", id));
  }
  return result;
}

}  // namespace loam::cli
