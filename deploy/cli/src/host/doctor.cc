// The checks of `loam doctor`. Each function reads one property from /proc, /sys or the system and returns a finding.
// The subcommand in deploy/cli/src/doctor.cc prints them.
#include "deploy/cli/src/host/doctor.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

#include "deploy/cli/src/output/human_readable.h"

namespace loam::cli {
namespace {

/// The RDMA transport locks its registered memory. A lower limit than this is too small for one connection.
constexpr uint64_t kUsefulLockedBytes = uint64_t{1} << 30;
/// Each client connection uses one descriptor.
constexpr uint64_t kUsefulFiles = 4'096;
/// Each fiber stack with its guard page uses two mappings. The value covers 4,096 fibers with a reserve.
constexpr uint64_t kUsefulMappings = 16'384;

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto text = read_file(path);
  uint64_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

// The word in brackets: "madvise" of "always [madvise] never".
std::string chosen(const std::string& text) {
  const size_t begin = text.find('[');
  const size_t end = text.find(']', begin);
  return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

// The bytes of a line such as "MemAvailable:   123 kB".
std::optional<uint64_t> meminfo(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    std::istringstream rest(line.substr(name.size() + 1));
    uint64_t number = 0;
    std::string unit;
    rest >> number >> unit;
    return unit == "kB" ? number * 1024 : number;
  }
  return std::nullopt;
}

Finding unknown(std::string topic, const std::string& path) {
  return {std::move(topic), CheckResult::kWarning, fmt::format("unknown: {} is not readable", path),
          "run the doctor on the host itself, outside of a restricted container"};
}

Finding processor(const DoctorOptions& options) {
  const std::string path = options.root + "/proc/cpuinfo";
  const auto text = read_file(path);
  if (!text) return unknown("processor", path);
  const size_t at = text->find("\nflags");
  std::istringstream words(at == std::string::npos ? "" : text->substr(at + 1, text->find('\n', at + 1) - at));
  const std::vector<std::string> flags{std::istream_iterator<std::string>(words), {}};
  const auto has = [&](std::string_view flag) { return std::find(flags.begin(), flags.end(), flag) != flags.end(); };
  std::string missing;
  // cx16 is the double-width compare-and-swap. The others are the extensions that x86-64-v3 adds and the compiler
  // uses.
  for (const char* flag : {"cx16", "avx2", "bmi1", "bmi2", "fma", "movbe", "f16c", "abm"}) {
    if (!has(flag)) missing += (missing.empty() ? "" : ", ") + std::string(flag);
  }
  if (!missing.empty()) {
    return {
        "processor", CheckResult::kError, fmt::format("it lacks {}", missing),
        "Loam is built for x86-64-v3 (Intel Haswell, AMD Excavator and later) with cmpxchg16b; use such a machine, or "
        "give the virtual machine the host's CPU model"};
  }
  std::string wide = has("avx512f") ? "with AVX-512" : "without AVX-512";
  return {"processor", CheckResult::kOk, fmt::format("x86-64-v3 and cmpxchg16b, {}", wide), ""};
}

Finding memory(const DoctorOptions& options) {
  const auto available = available_memory(options.root);
  if (!available) return unknown("memory", options.root + "/proc/meminfo");
  const std::string found = fmt::format("{} available, a storage node needs {}", format_bytes(*available),
                                        format_bytes(options.memory_bytes));
  if (*available < options.memory_bytes) {
    return {"memory", CheckResult::kError, found, "end other programs, or give the storage node less with --memory"};
  }
  return {"memory", CheckResult::kOk, found, ""};
}

Finding huge_pages(const DoctorOptions& options) {
  const std::string path = options.root + "/sys/kernel/mm/transparent_hugepage/enabled";
  const auto text = read_file(path);
  if (!text) return unknown("huge pages", path);
  const std::string mode = chosen(*text);
  if (mode == "always" || mode == "madvise") {
    return {"huge pages", CheckResult::kOk, fmt::format("transparent huge pages are '{}'", mode), ""};
  }
  return {"huge pages", CheckResult::kWarning,
          fmt::format("transparent huge pages are '{}'; gets are up to 1.7 times slower", mode),
          "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

// A low limit is a warning, because only the RDMA transport locks memory.
Finding locked_memory(const DoctorOptions& options) {
  if (options.locked_limit >= kUsefulLockedBytes) {
    return {"locked memory", CheckResult::kOk,
            options.locked_limit == RLIM_INFINITY ? "unlimited" : format_bytes(options.locked_limit), ""};
  }
  return {"locked memory", CheckResult::kWarning,
          fmt::format("limited to {}; enough for TCP, too little for RDMA", format_bytes(options.locked_limit)),
          "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit"};
}

Finding files(const DoctorOptions& options) {
  if (options.files_limit >= kUsefulFiles) {
    return {"open files", CheckResult::kOk, fmt::format("up to {}", with_thousands_separators(options.files_limit)),
            ""};
  }
  return {"open files", CheckResult::kWarning,
          fmt::format("limited to {}; each connection takes one", options.files_limit),
          fmt::format("ulimit -n {}, or LimitNOFILE={} in the service's unit", kUsefulFiles * 4, kUsefulFiles * 4)};
}

Finding mappings(const DoctorOptions& options) {
  const std::string path = options.root + "/proc/sys/vm/max_map_count";
  const auto count = read_number(path);
  if (!count) return unknown("memory mappings", path);
  if (*count >= kUsefulMappings) {
    return {"memory mappings", CheckResult::kOk, fmt::format("up to {}", with_thousands_separators(*count)), ""};
  }
  return {"memory mappings", CheckResult::kWarning, fmt::format("limited to {}; each fiber's stack takes two", *count),
          "as root: sysctl -w vm.max_map_count=65530"};
}

Finding overcommit(const DoctorOptions& options) {
  const std::string path = options.root + "/proc/sys/vm/overcommit_memory";
  const auto mode = read_number(path);
  if (!mode) return unknown("overcommit", path);
  // In this mode the kernel counts address space that is reserved but not used, such as the stacks of fibers.
  if (*mode == 2) {
    return {"overcommit", CheckResult::kWarning, "the kernel counts reserved memory as used (vm.overcommit_memory = 2)",
            "as root: sysctl -w vm.overcommit_memory=0, or leave room for fiber stacks"};
  }
  return {"overcommit", CheckResult::kOk, fmt::format("vm.overcommit_memory = {}", *mode), ""};
}

Finding clock_source(const DoctorOptions& options) {
  const std::string path = options.root + "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  auto text = read_file(path);
  if (!text) return unknown("clock", path);
  while (!text->empty() && text->back() == '\n') text->pop_back();
  // The process reads these clocks in user space. The others cost a system call for each read.
  const std::vector<std::string> fast = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};
  if (std::find(fast.begin(), fast.end(), *text) != fast.end()) {
    return {"clock", CheckResult::kOk, fmt::format("{} is read without a system call", *text), ""};
  }
  return {"clock", CheckResult::kWarning, fmt::format("'{}' is slow to read", *text),
          "choose the time stamp counter, if the machine's is reliable: boot with clocksource=tsc"};
}

Finding time_of_day() {
  timex state{};
  const bool synchronised = adjtimex(&state) != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  if (synchronised) return {"time of day", CheckResult::kOk, "synchronised", ""};
  return {"time of day", CheckResult::kWarning,
          "not synchronised, as far as the kernel knows; correctness does not depend on it, comparing logs does",
          "run chrony or systemd-timesyncd"};
}

/// The error with which a server could not bind this address now, or 0.
int bind_error(const addrinfo& address) {
  const int descriptor = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  // With SO_REUSEADDR connections in TIME_WAIT do not count as a use, as for the servers themselves.
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // The IPv6 wildcard would include the IPv4 addresses, which port() tries by themselves.
  if (address.ai_family == AF_INET6) setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const int error = bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(descriptor);
  return error;
}

/// Tries a port of one address, or of all addresses of the host if `host` is empty: a wildcard cannot be bound while
/// a server listens at any of its addresses.
Finding port(const std::string& host, uint16_t number) {
  const std::string topic = fmt::format("port {}", number);
  const std::string place = host.empty() ? "all addresses of this host" : host;
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(number).c_str(), &hints, &list);
  if (failed != 0) {
    return {topic, CheckResult::kWarning, fmt::format("'{}' has no address: {}", host, gai_strerror(failed)),
            "choose an address of this host with --address"};
  }
  int error = 0;
  for (const addrinfo* at = list; at != nullptr && error == 0; at = at->ai_next) {
    error = bind_error(*at);
    // A host without IPv6 has no wildcard of it.
    if (host.empty() && at->ai_family == AF_INET6 && error != EADDRINUSE) error = 0;
  }
  freeaddrinfo(list);
  if (error == 0) return {topic, CheckResult::kOk, fmt::format("free on {}", place), ""};
  const std::string observation = fmt::format("cannot be used on {}: {}", place, std::strerror(error));
  if (error == EADDRNOTAVAIL) {
    return {topic, CheckResult::kWarning, observation, "choose an address of this host with --address"};
  }
  return {
      topic, CheckResult::kWarning, observation,
      fmt::format("find the process that uses it by `ss -ltnp sport = :{}` (perhaps a running `loam dev`), or choose "
                  "another port with --listen",
                  number)};
}

/// The names in a folder, sorted; empty if there is no such folder.
std::vector<std::string> entries(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The first line of a file; empty if the file cannot be read.
std::string first_line(const std::string& path) {
  const auto text = read_file(path);
  return text ? text->substr(0, text->find('\n')) : "";
}

/// The number of GIDs of a port, and the network interfaces to which they belong (RoCE).
struct Gids {
  size_t count = 0;
  std::set<std::string> interfaces;
};

Gids gids(const std::string& port) {
  Gids found;
  for (const std::string& index : entries(port + "/gids")) {
    const std::string gid = first_line(fmt::format("{}/gids/{}", port, index));
    if (gid.find_first_not_of("0:") == std::string::npos) continue;  // an unused entry of the table
    ++found.count;
    const std::string interface = first_line(fmt::format("{}/gid_attrs/ndevs/{}", port, index));
    if (!interface.empty()) found.interfaces.insert(interface);
  }
  return found;
}

/// Describes an active port and reports settings that slow it down or prevent its use.
Finding active_port(const DoctorOptions& options, const std::string& topic, const std::string& port) {
  const Gids found = gids(port);
  std::string observation = "active";
  for (const std::string& more : {first_line(port + "/link_layer"), first_line(port + "/rate")}) {
    if (!more.empty()) observation += ", " + more;
  }
  observation += fmt::format(", GIDs: {}", found.count);
  if (found.count == 0) {
    return {topic, CheckResult::kWarning, observation,
            "give its network interface an IP address (`ip address add`): rdma:// names servers by those"};
  }
  // The largest packet of RoCE, 4,096 bytes, with its headers.
  constexpr uint64_t kBestMtu = 4'154;
  for (const std::string& interface : found.interfaces) {
    const std::string mtu = first_line(fmt::format("{}/sys/class/net/{}/mtu", options.root, interface));
    observation += fmt::format(", MTU of {} {}", interface, mtu.empty() ? "unknown" : mtu);
    if (mtu.empty() || std::strtoull(mtu.c_str(), nullptr, 10) >= kBestMtu) continue;
    return {topic, CheckResult::kWarning, observation,
            fmt::format("packets are smaller than necessary: `ip link set {} mtu 4200`, or 9000, here, at the "
                        "other hosts and on the switches between them",
                        interface)};
  }
  return {topic, CheckResult::kOk, observation, ""};
}

// Makes one finding for each port of each device, or one that says that there is no device.
std::vector<Finding> rdma(const DoctorOptions& options) {
  const std::string devices = options.root + "/sys/class/infiniband/";
  std::vector<Finding> findings;
  for (const std::string& device : entries(devices)) {
    for (const std::string& number : entries(fmt::format("{}{}/ports", devices, device))) {
      const std::string ports = fmt::format("{}{}/ports/{}", devices, device, number);
      const std::string topic = fmt::format("RDMA {} port {}", device, number);
      const auto state = read_file(ports + "/state");  // "4: ACTIVE"
      if (!state) {
        findings.push_back(unknown(topic, ports + "/state"));
      } else if (state->find("ACTIVE") == std::string::npos) {
        findings.push_back({topic, CheckResult::kWarning, fmt::format("is {}", state->substr(0, state->find('\n'))),
                            "plug the cable in and set the network interface up; on InfiniBand a subnet manager has to "
                            "run: `rdma link` shows the state"});
      } else {
        findings.push_back(active_port(options, topic, ports));
      }
    }
  }
  if (findings.empty()) findings.push_back({"RDMA", CheckResult::kOk, "no device; tcp:// needs none", ""});
  return findings;
}

uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return 0;
  return limit.rlim_cur;
}

}  // namespace

std::vector<Finding> run_checks(const DoctorOptions& options) {
  std::vector<Finding> findings = {processor(options),     memory(options),       huge_pages(options),
                                   locked_memory(options), files(options),        mappings(options),
                                   overcommit(options),    clock_source(options), time_of_day()};
  for (Finding& finding : rdma(options)) findings.push_back(std::move(finding));
  for (const uint16_t number : options.ports) findings.push_back(port(options.address, number));
  return findings;
}

std::optional<uint64_t> available_memory(const std::string& root) {
  const auto text = read_file(root + "/proc/meminfo");
  return text ? meminfo(*text, "MemAvailable") : std::nullopt;
}

uint64_t locked_memory_limit() { return limit_of(RLIMIT_MEMLOCK); }
uint64_t open_files_limit() { return limit_of(RLIMIT_NOFILE); }

}  // namespace loam::cli
