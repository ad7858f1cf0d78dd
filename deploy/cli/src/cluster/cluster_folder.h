// The folder of a cluster on this host: the names and addresses of its processes, their configuration, pid and log
// files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// Upper bound on the storage nodes of a cluster on one host. They use the fixed ports 7401 to 7409 for data and 7411
/// to 7419 for administration.
inline constexpr unsigned kMaxLocalNodes = 9;
/// The port of a server's administration is its data port plus this offset, so `loam` derives one from the other.
inline constexpr uint16_t kAdminPortOffset = 10;

/// The kind of a server process.
enum class Role : uint8_t { kCommitManager, kStorageNode };

/// One server process of the cluster, as cluster.json describes it.
struct Member {
  std::string name;  ///< "commit-manager", "node-1"
  Role role{};
  std::string address;        ///< "tcp://127.0.0.1:7400"
  std::string admin_address;  ///< "127.0.0.1:7410"

  /// File name of the server program: "loam-commit-manager" or "loam-storage-node".
  std::string_view program() const;
};

/// A long option of a server program, without the dashes, and its value.
using Setting = std::pair<std::string, std::string>;

/// What ClusterFolder::create() needs to describe a new cluster.
struct FolderOptions {
  std::filesystem::path directory;
  unsigned nodes = 2;
  std::string memory = "512MiB";          ///< memory limit of each storage node
  bool free_ports = false;                ///< choose free ports instead of the fixed ones from 7400 on
  std::vector<Setting> manager_settings;  ///< written over the commit manager's template
  std::vector<Setting> node_settings;     ///< written over the storage nodes' template
};

/// The description of a cluster on this host, as a folder. The folder holds cluster.json, NAME.toml, NAME.pid and
/// NAME.log of each process, and the files of the commit manager. Plain value; the members never change, and the commit
/// manager is the first of them.
class ClusterFolder {
 public:
  /// Describes a new cluster: chooses ports and writes cluster.json and the configuration files. Overwrites the
  /// description of an earlier cluster and removes the files of its commit manager, but keeps the logs. Starts no
  /// process. kInvalidArgument: too many or no storage nodes; kUnavailable: a port is in use; kInternal: the folder
  /// cannot be written.
  static Result<ClusterFolder> create(const FolderOptions& options);
  /// Reads the description of an existing cluster. kNotFound: the folder has none; kMalformed: cluster.json is damaged.
  static Result<ClusterFolder> open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const std::vector<Member>& members() const { return members_; }
  const Member& manager() const { return members_.front(); }
  /// The member with this name. kNotFound: there is none; the message lists the names of all members.
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

/// The folder of the cluster if the user names none: $XDG_STATE_HOME/loam, ~/.local/state/loam, or /tmp/loam-UID for a
/// user without a home.
std::filesystem::path default_cluster_directory();

/// The port at the end of an address such as "tcp://127.0.0.1:7400" or "127.0.0.1:7410"; 0 if there is none.
uint16_t port_of(std::string_view address);
/// Returns whether a server could bind this port of the loopback address now.
bool port_is_free(uint16_t port);

/// Replaces each placeholder "{name}" of a template by its value. Values are escaped for a string in double quotes;
/// unknown placeholders stay.
std::string substitute(std::string_view text, const std::vector<Setting>& places);
/// Sets a key of a TOML text: replaces its line "key = value", or appends one. Numbers, true and false are written as
/// they are, all other values in quotes.
void set_toml_value(std::string& toml, const Setting& setting);

}  // namespace loam::cli
