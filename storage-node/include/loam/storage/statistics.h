// The statistics of a storage node and of its tables. Metrics, administration and the command line read them.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/statistics.h"
#include "common/net/transport/transport_counters.h"

namespace loam::storage {

/// The operation counters of one table, counted since its creation on this node.
///
/// `Number` is statistics::Counter for the counters that a thread raises, uint64_t for a copy of them. Each number of a
/// copy is exact; the numbers of one copy may stem from different moments.
template <class Number>
struct TableNumbers {
  /// @cond
  Number gets{}, hops{}, writes{}, reverts{}, conflicts{}, no_space{}, discarded_entries{}, helped{};
  /// @endcond

  /// Name, kind and meaning of each number (common/base/statistics.h).
  static constexpr auto fields() {
    using S = TableNumbers;
    using statistics::counter;
    return std::tuple(
        counter("gets", &S::gets, "reads of one record by key"),
        counter("hops", &S::hops, "versions that reads passed behind the newest one"),
        counter("writes", &S::writes, "versions written, removals included"),
        counter("reverts", &S::reverts, "versions removed by a revert"),
        counter("conflicts", &S::conflicts, "writes refused because another transaction changed the record first"),
        counter("no_space", &S::no_space, "writes refused because memory is full"),
        counter("discarded_entries", &S::discarded_entries,
                "appended entries that a refused or overtaken write discarded"),
        counter("helped", &S::helped, "pointers to frozen entries that an operation replaced"));
  }
};
/// A copy of the operation counters of one table.
using TableCounters = TableNumbers<uint64_t>;

/// The statistics of one table on one node: its identity, its size, and its operation counters.
struct TableStatistics : TableNumbers<uint64_t> {
  /// A property of the table on this node; fields() explains it and names its unit.
  /// @{
  uint64_t table = 0;
  std::string name;
  std::string index_of;
  uint64_t keys = 0, pages = 0, column_pages = 0, log_bytes = 0, garbage_bytes = 0, index_bytes = 0;
  /// @}

  /// Name, kind and meaning of each field.
  static constexpr auto fields() {
    using S = TableStatistics;
    using statistics::gauge;
    using statistics::text;
    return std::tuple_cat(
        std::tuple(gauge("table", &S::table, "id of the table"), text("name", &S::name, "name of the table"),
                   text("index_of", &S::index_of,
                        "the table that this index belongs to; empty unless the records are tree nodes"),
                   gauge("keys", &S::keys,
                         "keys in the hash index, including removed records whose tombstone is not collected"),
                   gauge("pages", &S::pages, "pages of the log"),
                   gauge("column_pages", &S::column_pages, "column pages among them"),
                   gauge("log_bytes", &S::log_bytes, "bytes of the entries and rows in these pages"),
                   gauge("garbage_bytes", &S::garbage_bytes,
                         "bytes of superseded, removed and reverted versions, an upper estimate"),
                   gauge("index_bytes", &S::index_bytes, "memory of the hash index")),
        TableNumbers<uint64_t>::fields());
  }
};

/// The request counters of one network thread, or their sum over all network threads.
template <class Number>
struct ExecutorNumbers {
  /// @cond
  Number batches{}, operations{}, appends{}, malformed{}, fenced{}, refused{}, repeated{}, intents_refused{};
  /// @endcond

  /// Name, kind and meaning of each number.
  static constexpr auto fields() {
    using S = ExecutorNumbers;
    using statistics::counter;
    return std::tuple(
        counter("batches", &S::batches, "frames executed"),
        counter("operations", &S::operations, "point operations executed"),
        counter("appends", &S::appends, "point operations that allocate memory as ordinary writes do"),
        counter("malformed", &S::malformed, "connections closed because they sent a malformed message"),
        counter("fenced", &S::fenced, "requests refused because their session is fenced"),
        counter("refused", &S::refused,
                "requests refused because the node has no lease, has lost its records, or is stopping"),
        counter("repeated", &S::repeated, "repeated requests that were answered without a second execution"),
        counter("intents_refused", &S::intents_refused,
                "writes refused because the memory for intents is full (--intent-memory)"));
  }
};

/// The statistics of a storage node since its start.
///
/// They serve monitoring: the numbers of one copy may stem from different moments.
struct NodeStatistics : ExecutorNumbers<uint64_t>, net::TransportNumbers<uint64_t> {
  /// A property of the node or a count; fields() explains it and names its unit.
  /// @{
  uint64_t node = 0;
  uint64_t incarnation = 0;
  bool connected = false;
  bool lease_holds = false;
  bool memory_lost = false;
  std::string cluster;
  uint64_t manager_epoch = 0;
  std::string manager_refusal;
  uint64_t uptime_ns = 0;
  uint64_t memory_limit_bytes = 0, memory_write_limit_bytes = 0, memory_used_bytes = 0;
  uint64_t query_memory_limit_bytes = 0, query_memory_used_bytes = 0, query_memory_refused = 0;
  uint64_t intent_memory_limit_bytes = 0, intent_memory_used_bytes = 0, intents = 0;
  uint64_t sessions = 0, reconnects = 0;
  uint64_t scans = 0, scan_pages = 0, scan_records = 0;
  uint64_t compacted_pages = 0, freed_pages = 0;
  /// @}
  /// One element for each table that the node serves.
  std::vector<TableStatistics> tables;

  /// Name, kind and meaning of each field except `tables`; TableStatistics describes those.
  static constexpr auto fields() {
    using S = NodeStatistics;
    using statistics::counter;
    using statistics::flag;
    using statistics::gauge;
    using statistics::text;
    return std::tuple_cat(
        std::tuple(
            gauge("node", &S::node, "number of the node; 0 before it is registered"),
            gauge("incarnation", &S::incarnation, "number of this start of the node (incarnation)"),
            flag("connected", &S::connected, "the node is connected to the commit manager"),
            flag("lease_holds", &S::lease_holds, "the node holds its lease; it serves requests unless memory_lost"),
            flag("memory_lost", &S::memory_lost,
                 "the shards refuse requests until an operator accepts the loss of their records"),
            text("cluster", &S::cluster,
                 "id of the cluster, 32 hexadecimal digits; empty before the node is registered"),
            gauge("manager_epoch", &S::manager_epoch, "epoch of the commit manager at the last registration"),
            text("manager_refusal", &S::manager_refusal,
                 "why the node refuses the commit manager that answers: it belongs to another cluster, or its state is "
                 "not the newest of this cluster; empty if the node accepts it"),
            counter("uptime_ns", &S::uptime_ns, "time since the start of the node"),
            gauge("memory_limit_bytes", &S::memory_limit_bytes, "limit of the memory for records and indexes"),
            gauge("memory_write_limit_bytes", &S::memory_write_limit_bytes,
                  "part of this memory that inserts and updates may fill; the node refuses them beyond it"),
            gauge("memory_used_bytes", &S::memory_used_bytes, "memory of records and indexes in use"),
            gauge("query_memory_limit_bytes", &S::query_memory_limit_bytes, "limit of the memory of all scan queries"),
            gauge("query_memory_used_bytes", &S::query_memory_used_bytes, "memory of scan queries in use"),
            counter("query_memory_refused", &S::query_memory_refused, "allocations of scan queries that were refused"),
            gauge("intent_memory_limit_bytes", &S::intent_memory_limit_bytes, "limit of the memory of all intents"),
            gauge("intent_memory_used_bytes", &S::intent_memory_used_bytes, "memory of intents in use"),
            gauge("intents", &S::intents, "writes of open transactions that recovery could undo"),
            gauge("sessions", &S::sessions, "sessions that have a connection or stored replies"),
            counter("reconnects", &S::reconnects, "connections to the commit manager after the first one"),
            counter("scans", &S::scans, "scan queries that have ended"),
            counter("scan_pages", &S::scan_pages, "pages scanned; a page that serves several queries counts once"),
            counter("scan_records", &S::scan_records, "entries scanned"),
            counter("compacted_pages", &S::compacted_pages, "pages that compaction has rewritten"),
            counter("freed_pages", &S::freed_pages, "pages that compaction has freed")),
        ExecutorNumbers<uint64_t>::fields(), net::TransportNumbers<uint64_t>::fields());
  }
};

}  // namespace loam::storage
