// Administration of a running cluster over gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace loam::cli {

// Requests to the administration of the commit manager and of storage nodes. Threads: any; each call opens a connection
// of its own, blocks until the reply or its deadline, and closes it. JSON objects have the field names of the services'
// protocols, with enumerators in lower case. Every call returns kUnavailable if the server does not answer in time.

/// Returns the number in a field of a reply; 0 if the server has another version and sends no such field.
uint64_t number(const nlohmann::ordered_json& object, const char* field);
/// Returns the text in a field of a reply; empty if the server has another version and sends no such field.
std::string text(const nlohmann::ordered_json& object, const char* field);

/// Collects the statistics of all servers: {"manager": {…}, "nodes": [{"id": …, "state": …, "statistics": {…}}, …]}. A
/// live storage node that does not answer has "error" instead of "statistics"; a storage node that is not live, or runs
/// without administration, has neither.
Result<nlohmann::ordered_json> cluster_statistics(const std::string& admin_address);
/// Lists the storage nodes that the commit manager knows, dead ones included.
Result<nlohmann::ordered_json> list_nodes(const std::string& admin_address);
/// Lists all tables with their fields and indexes, those of the system included.
Result<nlohmann::ordered_json> list_tables(const std::string& admin_address);
/// Returns the shard map: its version, and the storage node of each virtual shard.
Result<nlohmann::ordered_json> shard_map(const std::string& admin_address);
/// Lists the sessions that the commit manager knows: open, and being recovered.
Result<nlohmann::ordered_json> list_sessions(const std::string& admin_address);
/// Ends the session of a client, as if its lease had run out. kNotFound: no such session is open.
Status end_session(const std::string& admin_address, uint64_t session);
/// Lists at most `max` open transactions, those with the oldest snapshots first: {"transactions": [{…}], "open": …,
/// "snapshots": …}, with the numbers of all read-write transactions and of all other snapshots.
Result<nlohmann::ordered_json> list_transactions(const std::string& admin_address, unsigned max);
/// Asks all servers for at most `max` slow operations each, and for the latencies of requests: {"operations":
/// [{"server": "manager" or "node 1", …}, …], "kinds": [{"server": …, …}, …], "errors": [{"server": …, "error": …},
/// …]}. The slowest operations come first. A server that does not answer is in "errors". kUnavailable: the commit
/// manager does not answer.
Result<nlohmann::ordered_json> slow_operations(const std::string& admin_address, unsigned max);
/// Lists the scan queries that run: {"queries": [{…}], "silent_nodes": [{"node": …, "error": …}]}. The numbers of a
/// query are sums over its storage nodes; "nodes" has the numbers of each node. "snapshot_age_ns" is null if the commit
/// manager lists no snapshot of the query. The queries of the silent nodes are missing.
Result<nlohmann::ordered_json> list_queries(const std::string& admin_address);
/// Ends the queries with this id at all storage nodes. Returns {"nodes": […], "silent_nodes": […]}: those that ran it,
/// and those that do not answer. kNotFound: no storage node that answers runs it. kInvalidArgument: the text is no id.
Result<nlohmann::ordered_json> cancel_query(const std::string& admin_address, const std::string& id);
/// Names of the damaged indexes: an operator accepted the loss of records after they were built, so they must be
/// rebuilt.
Result<std::vector<std::string>> damaged_indexes(const std::string& admin_address);

/// Accepts that the records of a lost storage node are gone; the node serves its shards again, empty (R10, cluster
/// identity and incarnations). kInvalidArgument: there is no such node, or it has lost nothing.
Status accept_loss(const std::string& admin_address, uint64_t node, uint64_t timeout_ns);

/// Asks a commit manager for its state: its address, whether it serves ("ready"), and more.
Result<nlohmann::ordered_json> manager_health(const std::string& admin_address, uint64_t timeout_ns);
/// Asks a storage node for its state: its id, whether it serves ("in_service"), and more.
Result<nlohmann::ordered_json> node_health(const std::string& admin_address, uint64_t timeout_ns);

}  // namespace loam::cli
