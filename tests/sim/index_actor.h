// What a client fiber does with indexes as such: opens, creates and drops them, and mends what a lost node has damaged.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "tests/sim/actor.h"

namespace loam::sim {

/// What the end of an index's name says of it.
struct IndexForm {
  std::vector<client::IndexField> fields;
  UniqueBy unique = UniqueBy::kNothing;

  static constexpr std::string_view kByValue = ".by_value";
  static constexpr std::string_view kByValueAndTag = ".by_value_and_tag";
  static constexpr std::string_view kByTag = ".by_tag";        ///< unique, as tags are
  static constexpr std::string_view kOneValue = ".one_value";  ///< unique, and the values of records need not be
  static constexpr std::array kOfMadeTables = {kByValue, kByTag, kOneValue};

  static IndexForm of(std::string_view name);
};

/// Creates the index, or goes on with its creation. Nothing: not done, or another fiber of the process is at it.
std::optional<client::Index> create_index(Process& process, const std::string& name, const client::Table& table);
/// The handle that the process knows, or the catalog has; of an index that can be read. One that is not there, or whose
/// creation was left off, is created.
std::optional<client::Index> ready_index(Process& process, const std::string& name, const client::Table& table);
Status drop_index(Process& process, const std::string& name);

/// Removes all but the first of the records that have the same value.
void remove_repeated(Process& process, const client::Table& table);
/// Drops the index and creates it again. Records that are not unique without it (others write them meanwhile) go.
bool rebuild_index(Process& process, const client::Index& index);
/// Acts as an operator after a report of damage: rebuilds the indexes that are known to be damaged.
void mend_indexes(Process& process);

}  // namespace loam::sim
