// Calls the gRPC services of the commit manager (ClusterAdmin) and of the storage nodes (NodeAdmin), and converts each
// reply into JSON by reflection over its fields.
#include "deploy/cli/src/admin/admin_client.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

#include <loam/admin/statistics.pb.h>
#include <loam/commit/admin.grpc.pb.h>
#include <loam/storage/admin.grpc.pb.h>

#include "deploy/cli/src/admin/ask_nodes.h"
#include "deploy/cli/src/admin/call.h"

namespace loam::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The JSON of one value of a field; `index` is -1 for a field that is not repeated.
Json value_of(const Message& message, const FieldDescriptor* field, int index) {
  const auto* reflection = message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? reflection->GetUInt64(message, field) : reflection->GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? reflection->GetUInt32(message, field) : reflection->GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? reflection->GetInt64(message, field) : reflection->GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? reflection->GetInt32(message, field) : reflection->GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? reflection->GetDouble(message, field) : reflection->GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? reflection->GetFloat(message, field) : reflection->GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? reflection->GetBool(message, field) : reflection->GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? reflection->GetString(message, field) : reflection->GetRepeatedString(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return lower(
          (one ? reflection->GetEnum(message, field) : reflection->GetRepeatedEnum(message, field, index))->name());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(one ? reflection->GetMessage(message, field)
                         : reflection->GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

Json value_of(const admin::Statistic& statistic) {
  switch (statistic.value_case()) {
    case admin::Statistic::kFlag:
      return statistic.flag();
    case admin::Statistic::kText:
      return statistic.text();
    default:
      return statistic.number();
  }
}

// The table as a list with an object for each row.
Json rows_of(const admin::StatisticsTable& table) {
  Json rows = Json::array();
  for (const admin::StatisticsTable::Row& row : table.rows()) {
    Json object = Json::object();
    int number = 0;
    int text = 0;
    for (const admin::StatisticsTable::Column& column : table.columns()) {
      const bool is_text = column.kind() == admin::TEXT;
      // A row keeps its texts and its numbers in two lists, so each list has a position of its own.
      if (is_text ? text >= row.texts_size() : number >= row.numbers_size()) break;  // the server has another version
      if (is_text) {
        object[column.name()] = row.texts(text++);
      } else if (column.kind() == admin::FLAG) {
        object[column.name()] = row.numbers(number++) != 0;
      } else {
        object[column.name()] = row.numbers(number++);
      }
    }
    rows.push_back(std::move(object));
  }
  return rows;
}

}  // namespace

// Converts all fields, also those with their default value, so that a script finds every name. (The JSON of Protocol
// Buffers writes 64-bit numbers as text.) Statistics become fields beside the other fields of their message.
Json to_json(const Message& message) {
  if (const auto* table = dynamic_cast<const admin::StatisticsTable*>(&message)) return rows_of(*table);
  Json object = Json::object();
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (!field->is_repeated()) {
      object[field->name()] = value_of(message, field, -1);
      continue;
    }
    // Each Statistic carries its own name. It becomes a field of this object, not an element of a list.
    if (field->message_type() == admin::Statistic::descriptor()) {
      for (int k = 0; k < message.GetReflection()->FieldSize(message, field); ++k) {
        const Message& one = message.GetReflection()->GetRepeatedMessage(message, field, k);
        const auto& statistic = dynamic_cast<const admin::Statistic&>(one);
        object[statistic.name()] = value_of(statistic);
      }
      continue;
    }
    Json list = Json::array();
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int k = 0; k < size; ++k) list.push_back(value_of(message, field, k));
    object[field->name()] = std::move(list);
  }
  return object;
}

Result<Json> cluster_statistics(const std::string& admin_address) {
  namespace manager = commit::admin;
  namespace node = storage::admin;
  Json result;
  LOAM_ASSIGN_OR_RETURN(result["manager"],
                        (call<manager::ClusterAdmin, manager::StatisticsRequest, manager::StatisticsReply>(
                            admin_address, {}, &manager::ClusterAdmin::Stub::Statistics)));
  // The commit manager tells the addresses of the storage nodes; each live node is then asked for its own statistics.
  // An unreachable node does not fail the call, because operators need the statistics of the others.
  LOAM_ASSIGN_OR_RETURN(result["nodes"], list_nodes(admin_address));
  std::vector<NodeReply> replies = ask_nodes(result["nodes"], [](const std::string& address) {
    return call<node::NodeAdmin, node::StatisticsRequest, node::StatisticsReply>(address, {},
                                                                                 &node::NodeAdmin::Stub::Statistics);
  });
  for (NodeReply& one : replies) {
    const auto node_of_reply =
        std::ranges::find_if(result["nodes"], [&one](const Json& listed) { return number(listed, "id") == one.node; });
    if (one.reply.ok()) {
      (*node_of_reply)["statistics"] = *std::move(one.reply);
    } else {
      (*node_of_reply)["error"] = std::string(one.reply.status().message());
    }
  }
  return result;
}

Result<Json> list_nodes(const std::string& admin_address) {
  namespace manager = commit::admin;
  LOAM_ASSIGN_OR_RETURN(Json reply, (call<manager::ClusterAdmin, manager::ListNodesRequest, manager::ListNodesReply>(
                                        admin_address, {}, &manager::ClusterAdmin::Stub::ListNodes)));
  return std::move(reply["nodes"]);
}

uint64_t number(const Json& object, const char* field) { return object.value(field, uint64_t{0}); }
std::string text(const Json& object, const char* field) { return object.value(field, std::string()); }

Result<Json> list_sessions(const std::string& admin_address) {
  namespace manager = commit::admin;
  LOAM_ASSIGN_OR_RETURN(Json reply,
                        (call<manager::ClusterAdmin, manager::ListSessionsRequest, manager::ListSessionsReply>(
                            admin_address, {}, &manager::ClusterAdmin::Stub::ListSessions)));
  return std::move(reply["sessions"]);
}

Status end_session(const std::string& admin_address, uint64_t session) {
  namespace manager = commit::admin;
  manager::EndSessionRequest request;
  request.set_session(session);
  return call<manager::ClusterAdmin, manager::EndSessionRequest, manager::EndSessionReply>(
             admin_address, request, &manager::ClusterAdmin::Stub::EndSession)
      .status();
}

Result<Json> list_transactions(const std::string& admin_address, unsigned max) {
  namespace manager = commit::admin;
  manager::ListTransactionsRequest request;
  request.set_max(max);
  return call<manager::ClusterAdmin, manager::ListTransactionsRequest, manager::ListTransactionsReply>(
      admin_address, request, &manager::ClusterAdmin::Stub::ListTransactions);
}

Result<Json> slow_operations(const std::string& admin_address, unsigned max) {
  namespace manager = commit::admin;
  namespace node = storage::admin;
  admin::SlowOperationsRequest request;
  request.set_max(max);
  Json result = {{"operations", Json::array()}, {"kinds", Json::array()}, {"errors", Json::array()}};
  const auto add = [&result](const std::string& server, const Result<Json>& reply) {
    const auto append = [&server](Json& list, const Json& objects) {
      for (const Json& one : objects) {
        Json object = {{"server", server}};
        object.update(one);
        list.push_back(std::move(object));
      }
    };
    if (!reply.ok()) {
      result["errors"].push_back({{"server", server}, {"error", std::string(reply.status().message())}});
      return;
    }
    append(result["operations"], (*reply)["operations"]);
    append(result["kinds"], (*reply)["kinds"]);
  };
  LOAM_ASSIGN_OR_RETURN(const Json nodes, list_nodes(admin_address));
  const std::vector<NodeReply> replies = ask_nodes(nodes, [&request](const std::string& address) {
    return call<node::NodeAdmin, admin::SlowOperationsRequest, admin::SlowOperationsReply>(
        address, request, &node::NodeAdmin::Stub::SlowOperations);
  });
  add("manager", call<manager::ClusterAdmin, admin::SlowOperationsRequest, admin::SlowOperationsReply>(
                     admin_address, request, &manager::ClusterAdmin::Stub::SlowOperations));
  for (const NodeReply& one : replies) add("node " + std::to_string(one.node), one.reply);
  std::stable_sort(result["operations"].begin(), result["operations"].end(), [](const Json& one, const Json& other) {
    return number(one, "total_ns") > number(other, "total_ns");
  });
  return result;
}

Result<Json> list_tables(const std::string& admin_address) {
  namespace manager = commit::admin;
  manager::ListTablesRequest request;
  request.set_with_system(true);
  return call<manager::ClusterAdmin, manager::ListTablesRequest, manager::ListTablesReply>(
      admin_address, request, &manager::ClusterAdmin::Stub::ListTables);
}

Result<Json> shard_map(const std::string& admin_address) {
  namespace manager = commit::admin;
  return call<manager::ClusterAdmin, manager::GetShardMapRequest, manager::ShardMap>(
      admin_address, {}, &manager::ClusterAdmin::Stub::GetShardMap);
}

Result<std::vector<std::string>> damaged_indexes(const std::string& admin_address) {
  namespace manager = commit::admin;
  LOAM_ASSIGN_OR_RETURN(const Json reply,
                        (call<manager::ClusterAdmin, manager::ListTablesRequest, manager::ListTablesReply>(
                            admin_address, {}, &manager::ClusterAdmin::Stub::ListTables)));
  std::vector<std::string> names;
  for (const Json& table : reply["tables"]) {
    for (const Json& index : table["indexes"]) {
      if (index["damaged"].get<bool>()) names.push_back(index["name"]);
    }
  }
  return names;
}

Status accept_loss(const std::string& admin_address, uint64_t node, uint64_t timeout_ns) {
  namespace manager = commit::admin;
  manager::AcceptLossRequest request;
  request.set_node(node);
  return call<manager::ClusterAdmin, manager::AcceptLossRequest, manager::AcceptLossReply>(
             admin_address, request, &manager::ClusterAdmin::Stub::AcceptLoss, timeout_ns)
      .status();
}

Result<Json> manager_health(const std::string& admin_address, uint64_t timeout_ns) {
  namespace manager = commit::admin;
  return call<manager::ClusterAdmin, manager::HealthRequest, manager::HealthReply>(
      admin_address, {}, &manager::ClusterAdmin::Stub::Health, timeout_ns);
}

Result<Json> node_health(const std::string& admin_address, uint64_t timeout_ns) {
  namespace node = storage::admin;
  return call<node::NodeAdmin, node::HealthRequest, node::HealthReply>(admin_address, {},
                                                                       &node::NodeAdmin::Stub::Health, timeout_ns);
}

}  // namespace loam::cli
