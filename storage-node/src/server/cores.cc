// The parser of core lists, which checks each core against the affinity mask of the process.
#include "storage-node/src/server/cores.h"

#include <charconv>
#include <string>

#include <sched.h>

namespace loam::storage {
namespace {

Status refused(std::string_view text, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          "option network-cores must be a list of cores such as 2,4-7, not '" + std::string(text) + "': " + why};
}

/// Reads a number at the begin of the text and removes it. Returns false if there is none.
bool take_number(std::string_view& text, unsigned& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

std::string list_of(const cpu_set_t& set) {
  std::string list;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) list += (list.empty() ? "" : " ") + std::to_string(core);
  }
  return list;
}

}  // namespace

Result<std::vector<unsigned>> parse_cores(std::string_view text) {
  std::vector<unsigned> cores;
  if (text.empty()) return cores;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return refused(text, "the operating system does not list its cores");
  for (std::string_view rest = text;;) {
    unsigned first = 0;
    if (!take_number(rest, first)) return refused(text, "a number is missing");
    unsigned last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      if (!take_number(rest, last) || last < first) return refused(text, "a range ends before it begins");
    }
    for (unsigned core = first;; ++core) {
      if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed)) {
        return refused(text,
                       "core " + std::to_string(core) + " is not allowed; this process may use " + list_of(allowed));
      }
      cores.push_back(core);
      if (core == last) break;
    }
    if (rest.empty()) return cores;
    if (!rest.starts_with(',')) return refused(text, "'" + std::string(rest) + "' is not understood");
    rest.remove_prefix(1);
  }
}

void pin_to_core(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  static_cast<void>(sched_setaffinity(0, sizeof(set), &set));
}

}  // namespace loam::storage
