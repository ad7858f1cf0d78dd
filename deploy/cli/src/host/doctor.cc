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
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

#include "deploy/cli/src/output/figures.h"

namespace loam::cli {
namespace {

/// Registered memory of an RDMA transport is locked; less than this is too little for one.
constexpr uint64_t kUsefulLockedBytes = uint64_t{1} << 30;
/// Each client connection is one descriptor.
constexpr uint64_t kUsefulFiles = 4'096;
/// Each fiber stack with its guard page takes two mappings; 4,096 fibers and room.
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

// "[madvise]" of "always [madvise] never".
std::string chosen(const std::string& text) {
  const size_t begin = text.find('[');
  const size_t end = text.find(']', begin);
  return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

// The value of "MemAvailable:   123 kB" in bytes.
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
  return {std::move(topic), Health::kPoor, fmt::format("cannot be told: {} is not readable", path),
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
  for (const char* flag : {"cx16", "avx2", "bmi1", "bmi2", "fma", "movbe", "f16c", "abm"}) {
    if (!has(flag)) missing += (missing.empty() ? "" : ", ") + std::string(flag);
  }
  if (!missing.empty()) {
    return {
        "processor", Health::kBad, fmt::format("it lacks {}", missing),
        "Loam is built for x86-64-v3 (Intel Haswell, AMD Excavator and later) with cmpxchg16b; use such a machine, or "
        "give the virtual machine the host's CPU model"};
  }
  std::string wide = has("avx512f") ? "with AVX-512" : "without AVX-512";
  return {"processor", Health::kGood, fmt::format("x86-64-v3 and cmpxchg16b, {}", wide), ""};
}

Finding memory(const DoctorOptions& options) {
  const auto available = available_memory(options.root);
  if (!available) return unknown("memory", options.root + "/proc/meminfo");
  const std::string found = fmt::format("{} available, a node takes {}", bytes_for_people(*available),
                                        bytes_for_people(options.memory_bytes));
  if (*available < options.memory_bytes) {
    return {"memory", Health::kBad, found, "end other programs, or give the node less with --memory"};
  }
  return {"memory", Health::kGood, found, ""};
}

Finding huge_pages(const DoctorOptions& options) {
  const std::string path = options.root + "/sys/kernel/mm/transparent_hugepage/enabled";
  const auto text = read_file(path);
  if (!text) return unknown("huge pages", path);
  const std::string mode = chosen(*text);
  if (mode == "always" || mode == "madvise") {
    return {"huge pages", Health::kGood, fmt::format("transparent huge pages are '{}'", mode), ""};
  }
  return {"huge pages", Health::kPoor,
          fmt::format("transparent huge pages are '{}'; gets are up to 1.7 times slower", mode),
          "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding locked_memory(const DoctorOptions& options) {
  if (options.locked_limit >= kUsefulLockedBytes) {
    return {"locked memory", Health::kGood,
            options.locked_limit == RLIM_INFINITY ? "unlimited" : bytes_for_people(options.locked_limit), ""};
  }
  return {"locked memory", Health::kPoor,
          fmt::format("limited to {}; enough for TCP, too little for RDMA", bytes_for_people(options.locked_limit)),
          "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit"};
}

Finding files(const DoctorOptions& options) {
  if (options.files_limit >= kUsefulFiles) {
    return {"open files", Health::kGood, fmt::format("up to {}", grouped(options.files_limit)), ""};
  }
  return {"open files", Health::kPoor, fmt::format("limited to {}; each connection takes one", options.files_limit),
          fmt::format("ulimit -n {}, or LimitNOFILE={} in the service's unit", kUsefulFiles * 4, kUsefulFiles * 4)};
}

Finding mappings(const DoctorOptions& options) {
  const std::string path = options.root + "/proc/sys/vm/max_map_count";
  const auto count = read_number(path);
  if (!count) return unknown("memory mappings", path);
  if (*count >= kUsefulMappings) {
    return {"memory mappings", Health::kGood, fmt::format("up to {}", grouped(*count)), ""};
  }
  return {"memory mappings", Health::kPoor, fmt::format("limited to {}; each fiber's stack takes two", *count),
          "as root: sysctl -w vm.max_map_count=65530"};
}

Finding overcommit(const DoctorOptions& options) {
  const std::string path = options.root + "/proc/sys/vm/overcommit_memory";
  const auto mode = read_number(path);
  if (!mode) return unknown("overcommit", path);
  if (*mode == 2) {
    return {"overcommit", Health::kPoor, "the kernel counts reserved memory as used (vm.overcommit_memory = 2)",
            "as root: sysctl -w vm.overcommit_memory=0, or leave room for fiber stacks"};
  }
  return {"overcommit", Health::kGood, fmt::format("vm.overcommit_memory = {}", *mode), ""};
}

Finding clock_source(const DoctorOptions& options) {
  const std::string path = options.root + "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  auto text = read_file(path);
  if (!text) return unknown("clock", path);
  while (!text->empty() && text->back() == '\n') text->pop_back();
  const std::vector<std::string> fast = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};
  if (std::find(fast.begin(), fast.end(), *text) != fast.end()) {
    return {"clock", Health::kGood, fmt::format("{} is read without a system call", *text), ""};
  }
  return {"clock", Health::kPoor, fmt::format("'{}' is slow to read", *text),
          "choose the time stamp counter, if the machine's is reliable: boot with clocksource=tsc"};
}

Finding time_of_day() {
  timex state{};
  const bool synchronised = adjtimex(&state) != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  if (synchronised) return {"time of day", Health::kGood, "synchronised", ""};
  return {"time of day", Health::kPoor,
          "not synchronised, as far as the kernel knows; correctness does not depend on it, comparing logs does",
          "run chrony or systemd-timesyncd"};
}

Finding port(uint16_t number) {
  const std::string topic = fmt::format("port {}", number);
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return {topic, Health::kBad, std::strerror(errno), "allow this user to open sockets"};
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(number);
  const bool is_free = bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const std::string reason = is_free ? "" : std::strerror(errno);
  close(descriptor);
  if (is_free) return {topic, Health::kGood, "free on the loopback address", ""};
  return {topic, Health::kPoor, fmt::format("cannot be used: {}", reason),
          fmt::format("see who has it with `ss -ltnp sport = :{}` (a running `loam dev`, perhaps), or use another "
                      "with --listen",
                      number)};
}

/// The entries of a folder in their order; none if it is not there.
std::vector<std::string> entries(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The first line; empty if it cannot be read.
std::string first_line(const std::string& path) {
  const auto text = read_file(path);
  return text ? text->substr(0, text->find('\n')) : "";
}

/// How many GIDs a port has, and the network interfaces that they belong to (RoCE).
struct Gids {
  size_t count = 0;
  std::set<std::string> interfaces;
};

Gids gids(const std::string& port) {
  Gids found;
  for (const std::string& index : entries(port + "/gids")) {
    const std::string gid = first_line(fmt::format("{}/gids/{}", port, index));
    if (gid.find_first_not_of("0:") == std::string::npos) continue;  // a free place in the table
    ++found.count;
    const std::string interface = first_line(fmt::format("{}/gid_attrs/ndevs/{}", port, index));
    if (!interface.empty()) found.interfaces.insert(interface);
  }
  return found;
}

/// A port that is active: what it is, and what would slow it down or keep it from being used.
Finding active_port(const DoctorOptions& options, const std::string& topic, const std::string& port) {
  const Gids found = gids(port);
  std::string what = "active";
  for (const std::string& more : {first_line(port + "/link_layer"), first_line(port + "/rate")}) {
    if (!more.empty()) what += ", " + more;
  }
  what += fmt::format(", GIDs: {}", found.count);
  if (found.count == 0) {
    return {topic, Health::kPoor, what,
            "give its network interface an IP address (`ip address add`): rdma:// names servers by those"};
  }
  // The largest message of RoCE, 4,096 bytes, and its headers.
  constexpr uint64_t kBestMtu = 4'154;
  for (const std::string& interface : found.interfaces) {
    const std::string mtu = first_line(fmt::format("{}/sys/class/net/{}/mtu", options.root, interface));
    what += fmt::format(", MTU of {} {}", interface, mtu.empty() ? "unknown" : mtu);
    if (mtu.empty() || std::strtoull(mtu.c_str(), nullptr, 10) >= kBestMtu) continue;
    return {topic, Health::kPoor, what,
            fmt::format("messages are cut smaller than they need be: `ip link set {} mtu 4200`, or 9000, here, at the "
                        "other hosts and on the switches between them",
                        interface)};
  }
  return {topic, Health::kGood, what, ""};
}

// One finding for each port of each device, or one that there is none.
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
        findings.push_back({topic, Health::kPoor, fmt::format("is {}", state->substr(0, state->find('\n'))),
                            "plug the cable in and set the network interface up; on InfiniBand a subnet manager has to "
                            "run: `rdma link` shows the state"});
      } else {
        findings.push_back(active_port(options, topic, ports));
      }
    }
  }
  if (findings.empty()) findings.push_back({"RDMA", Health::kGood, "no device; tcp:// needs none", ""});
  return findings;
}

uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return 0;
  return limit.rlim_cur;
}

}  // namespace

std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings = {processor(options),     memory(options),       huge_pages(options),
                                   locked_memory(options), files(options),        mappings(options),
                                   overcommit(options),    clock_source(options), time_of_day()};
  for (Finding& finding : rdma(options)) findings.push_back(std::move(finding));
  for (const uint16_t number : options.ports) findings.push_back(port(number));
  return findings;
}

std::optional<uint64_t> available_memory(const std::string& root) {
  const auto text = read_file(root + "/proc/meminfo");
  return text ? meminfo(*text, "MemAvailable") : std::nullopt;
}

uint64_t locked_memory_limit() { return limit_of(RLIMIT_MEMLOCK); }
uint64_t open_files_limit() { return limit_of(RLIMIT_NOFILE); }

}  // namespace loam::cli
