// What a storage node tells of itself and its tables.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/statistics.h"
#include "common/net/transport_counters.h"

namespace loam::storage {

/// Numbers of one table since it was created. Each is exact, together they are not of one instant.
template <class Number>
struct TableNumbers {
  Number gets{}, hops{}, writes{}, reverts{}, conflicts{}, no_space{}, lost_races{}, helped{};

  static constexpr auto fields() {
    using S = TableNumbers;
    using statistics::counter;
    return std::tuple(counter("gets", &S::gets, "records read by key"),
                      counter("hops", &S::hops, "versions that gets walked beyond the first"),
                      counter("writes", &S::writes, "versions written, removes included"),
                      counter("reverts", &S::reverts, "versions taken back"),
                      counter("conflicts", &S::conflicts, "writes refused because another transaction was faster"),
                      counter("no_space", &S::no_space, "writes refused because memory was full"),
                      counter("lost_races", &S::lost_races, "writes whose claim was taken: each cost an entry"),
                      counter("helped", &S::helped, "links mended on behalf of another thread"));
  }
};
using TableCounters = TableNumbers<uint64_t>;

/// A table's share of a node's statistics.
struct TableStatistics : TableNumbers<uint64_t> {
  uint64_t table = 0;
  std::string name;
  std::string index_of;
  uint64_t keys = 0, pages = 0, column_pages = 0, log_bytes = 0, garbage_bytes = 0, index_bytes = 0;

  static constexpr auto fields() {
    using S = TableStatistics;
    using statistics::level;
    using statistics::text;
    return std::tuple_cat(
        std::tuple(level("table", &S::table, "id"), text("name", &S::name, "name"),
                   text("index_of", &S::index_of, "the table that this is an index of; its records are tree nodes"),
                   level("keys", &S::keys, "keys, those included whose removal is not collected yet"),
                   level("pages", &S::pages, "pages of the log"),
                   level("column_pages", &S::column_pages, "of the pages, those whose rows lie in columns"),
                   level("log_bytes", &S::log_bytes, "entries in these pages"),
                   level("garbage_bytes", &S::garbage_bytes,
                         "upper estimate of the bytes that are superseded, removed or reverted"),
                   level("index_bytes", &S::index_bytes, "the hash index")),
        TableNumbers<uint64_t>::fields());
  }
};

/// What the executors of requests count.
template <class Number>
struct ExecutorNumbers {
  Number batches{}, operations{}, appends{}, malformed{}, fenced{}, refused{}, repeated{}, intents_refused{};

  static constexpr auto fields() {
    using S = ExecutorNumbers;
    using statistics::counter;
    return std::tuple(
        counter("batches", &S::batches, "frames executed"),
        counter("operations", &S::operations, "point operations in them"),
        counter("appends", &S::appends, "of the operations: writes that take the memory of ordinary writes"),
        counter("malformed", &S::malformed, "connections ended for bytes that are no message"),
        counter("fenced", &S::fenced, "requests refused because their session has ended"),
        counter("refused", &S::refused, "requests refused without a lease, without the records, or while stopping"),
        counter("repeated", &S::repeated, "requests that came again and were not executed again"),
        counter("intents_refused", &S::intents_refused,
                "writes refused because the memory for intents was full (--intent-memory)"));
  }
};

/// Statistics of a node since its start; for people, not consistent to the last operation.
struct NodeStatistics : ExecutorNumbers<uint64_t>, net::TransportNumbers<uint64_t> {
  uint64_t node = 0;
  uint64_t incarnation = 0;
  bool connected = false;
  bool lease_holds = false;
  bool memory_lost = false;
  std::string cluster;
  uint64_t manager_epoch = 0;
  std::string manager_refusal;
  uint64_t uptime_ns = 0;
  uint64_t memory_limit_bytes = 0, memory_used_bytes = 0;
  uint64_t query_memory_limit_bytes = 0, query_memory_used_bytes = 0, query_memory_refused = 0;
  uint64_t intent_memory_limit_bytes = 0, intent_memory_used_bytes = 0, intents = 0;
  uint64_t sessions = 0, reconnects = 0;
  uint64_t scans = 0, scan_pages = 0, scan_records = 0;
  uint64_t compacted_pages = 0, freed_pages = 0;
  std::vector<TableStatistics> tables;

  /// All but the tables, which have a list of their own.
  static constexpr auto fields() {
    using S = NodeStatistics;
    using statistics::counter;
    using statistics::flag;
    using statistics::level;
    using statistics::text;
    return std::tuple_cat(
        std::tuple(
            level("node", &S::node, "number; 0 before the node is registered"),
            level("incarnation", &S::incarnation, "one start of the node"),
            flag("connected", &S::connected, "to the commit manager"),
            flag("lease_holds", &S::lease_holds, "requests are served, unless memory_lost"),
            flag("memory_lost", &S::memory_lost,
                 "the shards wait until an operator accepts that their records are lost"),
            text("cluster", &S::cluster, "32 hexadecimal digits; empty before the node is registered"),
            level("manager_epoch", &S::manager_epoch, "epoch of the commit manager at the last registration"),
            text("manager_refusal", &S::manager_refusal,
                 "why the commit manager that answers is refused: it is of another cluster, or its state is not the "
                 "newest of this one; empty if it is not refused"),
            counter("uptime_ns", &S::uptime_ns, "since the start"),
            level("memory_limit_bytes", &S::memory_limit_bytes, "memory for records and indexes"),
            level("memory_used_bytes", &S::memory_used_bytes, "of it, in use"),
            level("query_memory_limit_bytes", &S::query_memory_limit_bytes, "memory for all scan queries together"),
            level("query_memory_used_bytes", &S::query_memory_used_bytes, "of it, in use"),
            counter("query_memory_refused", &S::query_memory_refused,
                    "times that a query could not have what it needed"),
            level("intent_memory_limit_bytes", &S::intent_memory_limit_bytes,
                  "memory for the intents of all sessions together"),
            level("intent_memory_used_bytes", &S::intent_memory_used_bytes, "of it, in use"),
            level("intents", &S::intents, "writes that are remembered until publications cover their transactions"),
            level("sessions", &S::sessions, "known now: with a connection, or with answers that are kept"),
            counter("reconnects", &S::reconnects, "times that the commit manager was found again"),
            counter("scans", &S::scans, "queries finished"),
            counter("scan_pages", &S::scan_pages, "pages walked, each once for all queries that met there"),
            counter("scan_records", &S::scan_records, "entries walked"),
            counter("compacted_pages", &S::compacted_pages, "pages rewritten"),
            counter("freed_pages", &S::freed_pages, "pages whose memory was given back")),
        ExecutorNumbers<uint64_t>::fields(), net::TransportNumbers<uint64_t>::fields());
  }
};

}  // namespace loam::storage
