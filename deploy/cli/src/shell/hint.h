// Commands that `loam` suggests to the user. All are in one list, so that a test can run each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace loam::cli {

/// A suggested command; kHintForms in hint.cc has its words. The comments name its values.
enum class Hint : uint8_t {
  kAcceptLoss,  ///< the id of a storage node
  kClusterDown,
  kClusterStatus,
  kClusterUp,
  kDev,
  kImport,  ///< a table, a file
  kImportHelp,
  kIndexCreate,  ///< a name, a table, fields
  kIndexCreateHelp,
  kIndexCreateUnique,  ///< a name, a table, fields
  kIndexDrop,
  kIndexList,
  kNodeList,
  kQueries,
  kScanByIndex,   ///< a table, an index
  kScanCarriers,  ///< a table with the sample of flights, an aggregate
  kSessionEnd,    ///< the id of a session
  kStatus,
  kTableCreateHelp,
  kTableList,
};

/// The options by which a command locates the cluster: none, --connect, --connect and --admin, or --dir.
enum class HintLocation : uint8_t { kNone, kConnection, kAdministration, kFolder };

/// The form of a suggested command.
struct HintForm {
  Hint hint;
  HintLocation place;
  /// The words after `loam`, separated by spaces: subcommand, positionals, options. {} is the place of a value. No
  /// option of a form takes a list of values, because such an option would swallow a "--" that follows.
  std::string_view words;
};

/// All forms, in the order of the enumerators.
std::span<const HintForm> hint_forms();

/// The location of the cluster that suggested commands must repeat: the options that the user gave on this command
/// line, which the next command does not know. An empty text means that the option was not given.
struct ClusterLocation {
  std::string connect;
  std::string admin;
  std::string directory;
};

/// Sets the location that hint() adds to each command. Call once, after parsing and before any thread starts.
void set_cluster_location(ClusterLocation place);

/// The command as the user can paste it into a shell: "loam index drop 'my index' --connect tcp://h:7400". If the
/// parser would take a value for an option, the value follows a marker: "loam index drop --connect tcp://h:7400 -- -x".
std::string hint(Hint which, std::initializer_list<std::string_view> values = {});
/// Like hint(), for a cluster at another location.
std::string hint_at(const ClusterLocation& place, Hint which, std::initializer_list<std::string_view> values = {});

}  // namespace loam::cli
