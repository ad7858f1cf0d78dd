// The rows of a block by the values of group columns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/expression/row_mask.h"

namespace loam::storage {

class BlockValues;

/// Splits the rows of a block into sets with equal values of some columns.
///
/// Role: queries with the same group-by share the split, and each aggregate of a set runs over whole columns. A block
/// is split if it has few groups, and if different values of the columns have different keys. Numbers of 64 bits do,
/// and texts of up to eight bytes. Other blocks are not split, and their rows are grouped one by one. Owner:
/// BlockValues. Threads: one.
class BlockGroups {
 public:
  /// Largest number of sets. Eight masked sums of a column take about as long as one addition for each row.
  static constexpr size_t kMaxSets = 8;
  /// Upper bound on the numbers of groups.
  static constexpr size_t kMaxNumbers = 4'096;

  /// The rows of one group.
  struct Set {
    uint32_t number = 0;  ///< number of the group, the same in all blocks of an epoch
    RowMask rows;
  };

  /// The columns have the numbers of the values.
  explicit BlockGroups(std::vector<uint16_t> columns) : columns_(std::move(columns)) {}

  const std::vector<uint16_t>& columns() const { return columns_; }
  /// Returns the sets of the present block, whose number is `block`; no set if the block is not split.
  std::span<const Set> split(BlockValues& values, uint64_t block);
  /// Changes when the groups get other numbers, which happens after kMaxNumbers groups.
  uint64_t epoch() const { return epoch_; }
  /// The number of the set of each row, among the sets of the present block.
  const std::array<uint8_t, kBlockRows>& set_of() const { return set_of_; }

  /// The value of each column of a group: its key (BlockValues::exact_keys()), or nothing for NULL.
  using Keys = std::vector<std::optional<int64_t>>;
  /// Returns the values of the groups of this epoch by their numbers.
  std::shared_ptr<const std::vector<Keys>> keys() const { return keys_; }

 private:
  /// The set of one hash.
  struct Place {
    uint64_t block = 0;  // the block in which the place is taken
    uint64_t hash = 0;
    uint8_t set = 0;
  };

  bool hash(BlockValues& values);
  bool fill(BlockValues& values, uint64_t block);
  bool equal_in_sets(BlockValues& values) const;
  uint32_t number_of(BlockValues& values, size_t row);

  const std::vector<uint16_t> columns_;
  uint64_t block_ = 0;                         // the block of sets_
  std::array<uint64_t, kBlockRows> hashes_{};  // by row
  std::array<uint8_t, kBlockRows> set_of_{};   // by row
  std::array<Place, 8 * kMaxSets> places_{};   // a hash table with open addressing
  std::vector<Set> sets_;
  uint64_t epoch_ = 1;
  std::map<Keys, uint32_t> numbers_;
  std::shared_ptr<std::vector<Keys>> keys_ = std::make_shared<std::vector<Keys>>();  // by number
};

}  // namespace loam::storage
