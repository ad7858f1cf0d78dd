// A client fiber's operations on whole indexes: open, create, drop, and rebuild after the loss of a node.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "tests/sim/tracked_transaction.h"

namespace loam::sim {

/// The fields of an index and its uniqueness, derived from the suffix of its name.
struct IndexForm {
  std::vector<client::IndexField> fields;
  UniqueBy unique = UniqueBy::kNothing;

  static constexpr std::string_view kByValue = ".by_value";
  static constexpr std::string_view kByValueAndTag = ".by_value_and_tag";
  static constexpr std::string_view kByTag = ".by_tag";        ///< unique, as tags are
  static constexpr std::string_view kOneValue = ".one_value";  ///< unique, although values of records need not be
  static constexpr std::array kOfDynamicTables = {kByValue, kByTag, kOneValue};

  static IndexForm of(std::string_view name);
};

/// Creates the index, or continues its creation. Empty: it failed, or another fiber of the process is creating it.
std::optional<client::Index> create_index(ClientProcess& process, const std::string& name, const client::Table& table);
/// Returns a handle of an index that can be read: from the process's cache or the catalog. If the index does not
/// exist, or its creation was not finished, the function creates it.
std::optional<client::Index> ready_index(ClientProcess& process, const std::string& name, const client::Table& table);
Status drop_index(ClientProcess& process, const std::string& name);

/// Keeps the first record of each value, and removes all other records with that value.
void remove_repeated(ClientProcess& process, const client::Table& table);
/// Drops the index and creates it again. Removes records that stopped being unique meanwhile (other clients write
/// them).
bool rebuild_index(ClientProcess& process, const client::Index& index);
/// Acts as an operator after a report of damage: rebuilds the indexes that are known to be damaged.
void repair_indexes(ClientProcess& process);

}  // namespace loam::sim
