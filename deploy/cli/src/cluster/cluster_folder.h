// The folder of a cluster on this host: who its processes are, where they listen, their configuration files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// Storage nodes of a cluster on one host: the fixed ports 7401 to 7409 and 7411 to 7419.
inline constexpr unsigned kMostLocalNodes = 9;
/// Administration listens so many ports above the data path: `loam` finds one from the other.
inline constexpr uint16_t kAdminPortOffset = 10;

enum class Role : uint8_t { kCommitManager, kStorageNode };

/// One process of the cluster.
struct Member {
  std::string name;  ///< "commit-manager", "node-1"
  Role role{};
  std::string address;        ///< "tcp://127.0.0.1:7400"
  std::string admin_address;  ///< "127.0.0.1:7410"

  /// "loam-commit-manager"
  std::string_view program() const;
};

/// A long option of a program and its value.
using Setting = std::pair<std::string, std::string>;

struct FolderOptions {
  std::filesystem::path directory;
  unsigned nodes = 2;
  std::string memory = "512MiB";  ///< of each node
  bool free_ports = false;
  std::vector<Setting> manager_settings;  ///< more options of the programs, or other values
  std::vector<Setting> node_settings;
};

/// What stands in the folder: cluster.json, NAME.toml, NAME.pid and NAME.log of each process, and what the commit
/// manager stores. Plain value; the members never change, the commit manager is the first.
class ClusterFolder {
 public:
  /// Chooses ports, and writes cluster.json and the configuration files, over those of an earlier cluster; what the
  /// commit manager of that one had stored is removed, the logs stay. kInvalidArgument; kUnavailable: a port is in use;
  /// kInternal: the folder cannot be written.
  static Result<ClusterFolder> create(const FolderOptions& options);
  /// kNotFound: no cluster was made there; kMalformed.
  static Result<ClusterFolder> open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const std::vector<Member>& members() const { return members_; }
  const Member& manager() const { return members_.front(); }
  /// kNotFound names those that there are.
  Result<Member> member(std::string_view name) const;

  std::filesystem::path config_file(const Member& member) const { return file(member, ".toml"); }
  std::filesystem::path pid_file(const Member& member) const { return file(member, ".pid"); }
  std::filesystem::path log_file(const Member& member) const { return file(member, ".log"); }

 private:
  std::filesystem::path file(const Member& member, std::string_view suffix) const;
  Status write(const FolderOptions& options) const;

  std::filesystem::path directory_;
  std::vector<Member> members_;
};

/// $XDG_STATE_HOME/loam, ~/.local/state/loam, or /tmp/loam-UID where there is no home.
std::filesystem::path default_cluster_directory();

/// "tcp://127.0.0.1:7400" or "127.0.0.1:7410" → the port; 0 if there is none.
uint16_t port_of(std::string_view address);
/// Whether a server could listen there, on the loopback address.
bool port_is_free(uint16_t port);

/// A template with its places, "{name}", filled in; values are escaped for a text in double quotes.
std::string fill_in(std::string_view text, const std::vector<Setting>& places);
/// Sets `key` in lines "key = value", at the end if it is not there. Numbers, true and false stand as they are, all
/// else in quotes.
void set_line(std::string& toml, const Setting& setting);

}  // namespace loam::cli
