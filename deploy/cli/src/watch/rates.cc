// The lists below name the statistics that become rates or levels. The names are those of the administration.
#include "deploy/cli/src/watch/rates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "deploy/cli/src/output/human_readable.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<const char*> kManagerCounters = {"begins",           "commits",           "aborts",
                                                   "read_only_begins", "recovered_aborted", "messages",
                                                   "refused",          "frames_in",         "frames_out"};
const std::vector<const char*> kManagerLevels = {
    "epoch", "sessions", "open", "orphaned_transactions", "open_snapshots", "log_accepted", "log_flushed", "log_bytes"};
const std::vector<const char*> kNodeCounters = {
    "operations",      "batches",     "scans",    "scan_pages", "scan_records",
    "compacted_pages", "freed_pages", "bytes_in", "bytes_out",  "query_memory_refused"};
const std::vector<const char*> kNodeLevels = {"memory_used_bytes", "memory_limit_bytes", "query_memory_used_bytes",
                                              "query_memory_limit_bytes"};

uint64_t number(const Json& object, const char* name) { return object.value(name, uint64_t{0}); }

void add_rates(const Json& before, const Json& after, double seconds, const std::vector<const char*>& names,
               Json& result) {
  for (const char* name : names) {
    const uint64_t now = number(after, name);
    const uint64_t then = number(before, name);
    const uint64_t gained = now >= then ? now - then : now;
    result[std::string(name) + "_per_s"] = seconds > 0 ? static_cast<double>(gained) / seconds : 0.0;
  }
}

void add_levels(const Json& after, const std::vector<const char*>& names, Json& result) {
  for (const char* name : names) result[name] = number(after, name);
}

// Returns whether both samples come from the same process, that is, the server has not restarted in between.
bool is_same_process(const Json& before, const Json& after) {
  return number(after, "uptime_ns") >= number(before, "uptime_ns");
}

const Json& or_empty(const Json& object, const char* name) {
  static const Json kEmpty = Json::object();
  return object.contains(name) ? object[name] : kEmpty;
}

std::string rate_of(const Json& object, const char* name) {
  return with_thousands_separators(static_cast<uint64_t>(std::llround(object.value(name, 0.0))));
}

}  // namespace

Json rates(const Json& before, const Json& after, double seconds) {
  Json result = {{"seconds", seconds}, {"manager", Json::object()}, {"nodes", Json::array()}};
  const Json none = Json::object();
  const Json& manager = or_empty(after, "manager");
  // A restarted server has counted from 0 since its start, so its rates are counted from 0, too.
  const Json& manager_before =
      is_same_process(or_empty(before, "manager"), manager) ? or_empty(before, "manager") : none;
  add_rates(manager_before, manager, seconds, kManagerCounters, result["manager"]);
  add_levels(manager, kManagerLevels, result["manager"]);
  for (const Json& node : after["nodes"]) {
    Json one = {{"node", number(node, "id")}, {"state", node.value("state", "")}};
    if (node.contains("statistics")) {
      const Json* then = &none;
      for (const Json& old : or_empty(before, "nodes")) {
        // A node of another incarnation is another process with counters of its own.
        const bool same =
            number(old, "id") == number(node, "id") && number(old, "incarnation") == number(node, "incarnation");
        if (same && old.contains("statistics")) then = &old["statistics"];
      }
      add_rates(*then, node["statistics"], seconds, kNodeCounters, one);
      add_levels(node["statistics"], kNodeLevels, one);
    }
    result["nodes"].push_back(std::move(one));
  }
  return result;
}

std::string format_rates(const Json& rates) {
  const Json& manager = rates["manager"];
  std::string text = fmt::format(
      "commit manager   {} begins/s   {} commits/s   {} aborts/s   {} read-only/s\n"
      "                 {} clients, {} transactions open, {} of them orphans\n",
      rate_of(manager, "begins_per_s"), rate_of(manager, "commits_per_s"), rate_of(manager, "aborts_per_s"),
      rate_of(manager, "read_only_begins_per_s"), with_thousands_separators(number(manager, "sessions")),
      with_thousands_separators(number(manager, "open")),
      with_thousands_separators(number(manager, "orphaned_transactions")));
  for (const Json& node : rates["nodes"]) {
    text += fmt::format("storage node {:<4}", number(node, "node"));
    if (!node.contains("operations_per_s")) {
      text += node.value("state", "") + ": no answer\n";
      continue;
    }
    text += fmt::format("{} operations/s   {} scans/s   {} records scanned/s   {} of {}\n",
                        rate_of(node, "operations_per_s"), rate_of(node, "scans_per_s"),
                        rate_of(node, "scan_records_per_s"), format_bytes(number(node, "memory_used_bytes")),
                        format_bytes(number(node, "memory_limit_bytes")));
  }
  return text;
}

}  // namespace loam::cli
