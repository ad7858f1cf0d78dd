// Selections compiled for blocks of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/schema/predicate.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block.h"

namespace loam::storage {

/// Order-preserving image of a float in the integers, in the order of docs/semantics.md: NaN highest, -0 equal to +0.
int64_t order_key(double value);

/// One comparison of one field with constants. Numbers of every type are compared as int64 keys, so that =, <, ≤, > and
/// ≥ are all one test: low ≤ key ≤ high.
class CompiledPredicate {
 public:
  /// `predicate` was checked against `schema`.
  CompiledPredicate(const Predicate& predicate, const Schema& schema);

  /// Copies the numbers of those rows among in[0, n) that match to `out`, in order; returns how many. `out` may be
  /// `in`.
  size_t keep(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const;

  /// Takes over what another predicate of the same field demands too, if both are plain ranges.
  bool intersect(const CompiledPredicate& other);
  /// Compares text: evaluated after everything else.
  bool expensive() const { return is_variable(type_); }

 private:
  enum class Test : uint8_t { kRange, kOutside, kIn, kNull, kNotNull, kText };

  size_t keep_present(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const;
  size_t keep_numbers(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const;
  size_t keep_texts(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const;
  void set_range(PredicateOp op, int64_t key);

  Test test_;
  PredicateOp op_;
  FieldType type_;
  uint16_t field_;
  uint16_t null_bit_;
  uint16_t variable_index_;
  uint32_t offset_;
  uint32_t null_offset_;
  uint32_t fixed_size_;
  int64_t low_ = 0, high_ = 0;      // of ranges, inclusive; nothing matches if low > high
  std::vector<int64_t> keys_;       // of IN, ascending
  std::vector<std::string> texts_;  // operands of text and blob fields; ascending for IN
};

/// A whole selection. Immutable; used by one thread.
class CompiledSelection {
 public:
  /// `selection` was checked against `schema`.
  CompiledSelection(const Selection& selection, const Schema& schema);

  /// As CompiledPredicate::keep, for the whole.
  size_t keep(const Block& block, const uint16_t* in, size_t n, uint16_t* out) const;

 private:
  std::vector<std::vector<CompiledPredicate>> clauses_;  // AND of ORs; cheap ones first
};

}  // namespace loam::storage
