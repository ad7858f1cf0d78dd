// Chooses the ports of a cluster on this host, and writes and reads the folder that describes it. local_cluster.cc
// starts the processes.
#include "deploy/cli/src/cluster/cluster_folder.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "deploy/cli/src/shell/hint.h"
#include "deploy/local/templates.h"

namespace loam::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint16_t kFirstPort = 7400;
constexpr const char* kClusterFile = "cluster.json";
// The folder in which the commit manager keeps its state and commit log (`data` in its template).
constexpr const char* kStoredByManager = "commit-manager.data";

Status cannot_write(const fs::path& path, const std::string& why) {
  return Status(StatusCode::kInternal,
                fmt::format("cannot write {}: {}; --dir names another folder", path.string(), why));
}

Status write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? ok_status() : cannot_write(path, "the file cannot be opened or the disk is full");
}

// The two ports of member `index` of a cluster whose first port is `base`.
std::pair<uint16_t, uint16_t> ports(uint16_t base, unsigned index) {
  const auto port = static_cast<uint16_t>(base + index);
  return {port, static_cast<uint16_t>(port + kAdminPortOffset)};
}

bool all_free(uint16_t base, unsigned members) {
  for (unsigned i = 0; i < members; ++i) {
    const auto [data, admin] = ports(base, i);
    if (!port_is_free(data) || !port_is_free(admin)) return false;
  }
  return true;
}

// The ports lie below the range of the kernel's outgoing connections, so that no such connection uses one of them.
Result<uint16_t> free_base(unsigned members) {
  constexpr int kAttempts = 1'000;
  std::random_device device;
  // The bases are multiples of 20, and a cluster needs at most 20 ports: 10 for data and 10 for administration. So two
  // clusters with different bases share no port.
  std::uniform_int_distribution<int> choice(500, 1'590);  // times 20: 10,000 to 31,800
  for (int i = 0; i < kAttempts; ++i) {
    const auto base = static_cast<uint16_t>(choice(device) * 20);
    if (all_free(base, members)) return base;
  }
  return Status(StatusCode::kUnavailable, "no free ports were found between 10,000 and 32,000");
}

Status check_ports(uint16_t base, unsigned members) {
  for (unsigned i = 0; i < members; ++i) {
    const auto [data, admin] = ports(base, i);
    for (const uint16_t port : {data, admin}) {
      if (port_is_free(port)) continue;
      return Status(StatusCode::kUnavailable,
                    fmt::format("port {} of 127.0.0.1 is in use, perhaps by another cluster or a `loam dev`; end that, "
                                "or use free ports with --free-ports",
                                port));
    }
  }
  return ok_status();
}

std::vector<Member> make_members(uint16_t base, unsigned nodes) {
  std::vector<Member> members;
  for (unsigned i = 0; i <= nodes; ++i) {
    const auto [data, admin] = ports(base, i);
    members.push_back({i == 0 ? "commit-manager" : fmt::format("node-{}", i),
                       i == 0 ? Role::kCommitManager : Role::kStorageNode, fmt::format("tcp://127.0.0.1:{}", data),
                       fmt::format("127.0.0.1:{}", admin)});
  }
  return members;
}

// Escapes a text for a string in double quotes, which JSON and TOML write alike.
std::string inside_quotes(const std::string& value) {
  const std::string quoted = Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

bool needs_no_quotes(const std::string& value) {
  if (value == "true" || value == "false") return true;
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size();
}

}  // namespace

std::string_view Member::program() const {
  return role == Role::kCommitManager ? "loam-commit-manager" : "loam-storage-node";
}

Result<ClusterFolder> ClusterFolder::create(const FolderOptions& options) {
  if (options.nodes < 1 || options.nodes > kMaxLocalNodes) {
    return Status(StatusCode::kInvalidArgument, fmt::format("a cluster on one host has 1 to {} storage nodes, not {}",
                                                            kMaxLocalNodes, options.nodes));
  }
  // Phase 1: choose the ports. Another program may bind one of them before the servers do. The server then fails to
  // start, and its log names the port.
  uint16_t base = kFirstPort;
  if (options.free_ports) {
    LOAM_ASSIGN_OR_RETURN(base, free_base(options.nodes + 1));
  } else {
    LOAM_RETURN_IF_ERROR(check_ports(base, options.nodes + 1));
  }
  // Phase 2: write the files.
  ClusterFolder folder;
  folder.directory_ = options.directory;
  folder.members_ = make_members(base, options.nodes);
  LOAM_RETURN_IF_ERROR(folder.write(options));
  return folder;
}

Status ClusterFolder::write(const FolderOptions& options) const {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return cannot_write(directory_, error.message());
  // The records of a cluster end with its processes. A commit manager with the earlier state would count the new
  // storage nodes as lost: they have the addresses of the old ones and no records (R10, cluster identity and
  // incarnations).
  fs::remove_all(directory_ / kStoredByManager, error);
  Json description = Json::object();
  for (const Member& member : members_) {
    const bool is_manager = member.role == Role::kCommitManager;
    description["members"].push_back({{"name", member.name},
                                      {"role", is_manager ? "commit-manager" : "storage-node"},
                                      {"address", member.address},
                                      {"admin_address", member.admin_address}});
    std::string config = substitute(is_manager ? local::kCommitManagerTemplate : local::kStorageNodeTemplate,
                                    {{"address", member.address},
                                     {"admin_address", member.admin_address},
                                     {"manager", manager().address},
                                     {"nodes", std::to_string(options.nodes)},
                                     {"memory", options.memory},
                                     {"dir", directory_.string()}});
    for (const Setting& setting : is_manager ? options.manager_settings : options.node_settings) {
      set_toml_value(config, setting);
    }
    LOAM_RETURN_IF_ERROR(write_file(config_file(member), config));
    // Without a pid file the process counts as down, not as dead.
    fs::remove(pid_file(member), error);
  }
  // cluster.json comes last: if a write before it fails, open() finds the earlier description or none.
  return write_file(directory_ / kClusterFile, description.dump(2) + "\n");
}

Result<ClusterFolder> ClusterFolder::open(const fs::path& directory) {
  const fs::path path = directory / kClusterFile;
  std::ifstream file(path);
  if (!file) {
    return Status(StatusCode::kNotFound,
                  fmt::format("there is no cluster in {}; `{}` makes one, --dir names another folder",
                              directory.string(), hint(Hint::kClusterUp)));
  }
  const Json description = Json::parse(file, nullptr, false);
  const Status malformed(StatusCode::kMalformed,
                         path.string() + " is damaged; end the processes by hand and remove the folder");
  if (!description.is_object() || !description.contains("members") || !description["members"].is_array()) {
    return malformed;
  }
  ClusterFolder folder;
  folder.directory_ = directory;
  for (const Json& one : description["members"]) {
    if (!one.is_object()) return malformed;
    for (const char* key : {"name", "role", "address", "admin_address"}) {
      if (!one.contains(key) || !one[key].is_string()) return malformed;
    }
    const bool is_manager = one["role"] == "commit-manager";
    // The commit manager must be the first member, and there must be only one: manager() relies on it.
    if (is_manager != folder.members_.empty()) return malformed;
    folder.members_.push_back(
        {one["name"], is_manager ? Role::kCommitManager : Role::kStorageNode, one["address"], one["admin_address"]});
  }
  if (folder.members_.empty()) return malformed;
  return folder;
}

Result<Member> ClusterFolder::member(std::string_view name) const {
  std::string names;
  for (const Member& member : members_) {
    if (member.name == name) return member;
    names += (names.empty() ? "" : ", ") + member.name;
  }
  return Status(StatusCode::kNotFound, fmt::format("there is no process '{}' here; there are {}", name, names));
}

fs::path ClusterFolder::file(const Member& member, std::string_view suffix) const {
  return directory_ / fmt::format("{}{}", member.name, suffix);
}

fs::path default_cluster_directory() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return fs::path(state) / "loam";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return fs::path(home) / ".local/state/loam";
  return fs::path("/tmp") / fmt::format("loam-{}", getuid());
}

uint16_t port_of(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return 0;
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  return error == std::errc() && end == address.data() + address.size() ? port : uint16_t{0};
}

bool port_is_free(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Without a descriptor the answer is not known. The server itself reports a port that is in use.
  if (fd < 0) return true;
  const int on = 1;
  // With this option connections in TIME_WAIT, which a server that has just ended leaves, do not count as a use.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return is_free;
}

std::string substitute(std::string_view text, const std::vector<Setting>& places) {
  std::string result;
  while (!text.empty()) {
    const size_t begin = text.find('{');
    const size_t end = text.find('}', begin);
    // find() from npos finds nothing either, so this also ends the loop if there is no opening brace.
    if (end == std::string_view::npos) break;
    const std::string_view name = text.substr(begin + 1, end - begin - 1);
    const auto place =
        std::find_if(places.begin(), places.end(), [&](const Setting& one) { return one.first == name; });
    result += text.substr(0, begin);
    result += place == places.end() ? std::string(text.substr(begin, end - begin + 1)) : inside_quotes(place->second);
    text.remove_prefix(end + 1);
  }
  return result + std::string(text);
}

void set_toml_value(std::string& toml, const Setting& setting) {
  const auto& [key, value] = setting;
  const std::string line =
      fmt::format("{} = {}", key, needs_no_quotes(value) ? value : '"' + inside_quotes(value) + '"');
  std::istringstream in(toml);
  std::string result;
  bool replaced = false;
  for (std::string old; std::getline(in, old);) {
    const bool same = old.starts_with(key + " =") || old.starts_with(key + "=");
    result += (same ? line : old) + "\n";
    replaced |= same;
  }
  if (!replaced) result += line + "\n";
  toml = std::move(result);
}

}  // namespace loam::cli
