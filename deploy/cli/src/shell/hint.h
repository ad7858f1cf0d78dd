// Commands that `loam` tells people to type. Each is in one list, so that a test runs them all.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace loam::cli {

/// The commands; kHintForms in hint.cc has their words.
enum class Hint : uint8_t {
  kAcceptLoss,  ///< of a storage node
  kClusterDown,
  kClusterStatus,
  kClusterUp,
  kDev,
  kImport,  ///< a table, a file
  kImportHelp,
  kIndexCreate,  ///< a name, a table, fields
  kIndexCreateHelp,
  kIndexCreateUnique,  ///< as kIndexCreate
  kIndexDrop,
  kIndexList,
  kNodeList,
  kScanByIndex,   ///< a table, an index
  kScanCarriers,  ///< of the sample of flights: a table
  kStatus,
  kTableCreateHelp,
};

/// Which of the options that say where the cluster is a command takes.
enum class HintPlace : uint8_t { kNone, kConnection, kAdministration, kFolder };

struct HintForm {
  Hint hint;
  HintPlace place;
  /// Behind `loam`, divided by spaces: the subcommand, positionals, options. {} stands for a value. No option takes a
  /// list of values: it would drop a "--" that follows.
  std::string_view words;
};

/// All forms, in the order of their names.
std::span<const HintForm> hint_forms();

/// Where the cluster is, as far as a command has to be told: options that were given on the command line, which the
/// next command does not know. Empty: not given.
struct GivenPlace {
  std::string connect;
  std::string admin;
  std::string directory;
};

/// What hint() adds to each command. Set once, after the command line was read and before any thread starts.
void set_given_place(GivenPlace place);

/// The command as a person can paste it into a shell: "loam index drop 'my index' --connect tcp://h:7400". If the
/// parser would take a name for an option: "loam index drop --connect tcp://h:7400 -- -x".
std::string hint(Hint which, std::initializer_list<std::string_view> values = {});
/// As hint(), for a cluster at another place.
std::string hint_at(const GivenPlace& place, Hint which, std::initializer_list<std::string_view> values = {});

}  // namespace loam::cli
