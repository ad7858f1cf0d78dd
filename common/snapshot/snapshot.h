// What a transaction sees: the snapshot descriptor, its visibility test and its codec.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam {

/// Open transactions that one snapshot can name: 64 clients with 1,024 fibers each. A commit manager with more of them
/// refuses begins (kOverloaded).
inline constexpr size_t kMaxOpenIds = 65'536;

/// The set of versions that a transaction or scan sees: every version up to `base`, and every version up to `high` that
/// is not among the ids that were open when the snapshot was taken.
///
/// Its size follows the number of open transactions, never the number of finished ones: a transaction that stays open
/// for ten million others costs each snapshot four bytes (the thesis's bitmap costs a bit for each [Thesis 5.2.4]).
///
/// Value type; copy freely (a copy allocates only if ids are open). Thread-compatible.
///
/// Invariants (canonical form; make() and decode() bring it about, so that two snapshots that see the same are equal):
/// 1. base ≤ high, and base is the highest number with nothing invisible at or below it.
/// 2. The open ids are ascending and unique, base < id < high, and the first of them is base + 1.
/// 3. high is the highest visible version; high == base if and only if no id is open.
class Snapshot {
 public:
  /// Sees nothing.
  Snapshot() = default;
  /// Sees every version up to `base`, and nothing else.
  explicit Snapshot(Version base) : base_(base.value), high_(base.value) {}

  /// `open` must be ascending and unique with base < id ≤ high, at most kMaxOpenIds: else kInvalidArgument. Brings the
  /// snapshot into canonical form: base() and high() may differ from what was given, what is visible does not.
  static Result<Snapshot> make(Version base, Version high, std::span<const Version> open);
  /// The same into this snapshot, whose memory is used again; it stays as it was if the result is an error.
  Status assign(Version base, Version high, std::span<const Version> open);

  Version base() const { return Version(base_); }
  Version high() const { return Version(high_); }
  std::span<const Version> open() const { return open_; }

  /// One predicted comparison for everything up to base, which is nearly every version a scan or get meets.
  bool visible(Version version) const {
    if (version.value <= base_) [[likely]]
      return true;
    return version.value <= high_ && !std::binary_search(open_.begin(), open_.end(), version);
  }

  /// Everything that is visible in `other` is visible here.
  bool sees_all_of(const Snapshot& other) const;

  bool operator==(const Snapshot&) const = default;

  /// varint base, high - base, number of open ids, then each id as its distance from the one before (from base), less
  /// one.
  void encode(ByteWriter& out) const;
  /// Into `reuse`, whose memory is used again. kMalformed if the bytes end early, an id is out of range or too many are
  /// named; `reuse` is then a snapshot that sees nothing.
  static Status decode(ByteReader& in, Snapshot& reuse);
  static Result<Snapshot> decode(ByteReader& in);

  /// "{base 7, high 12, open 8 10}", at most sixteen ids.
  std::string to_string() const;

 private:
  void make_canonical();

  uint64_t base_ = 0;
  uint64_t high_ = 0;
  std::vector<Version> open_;
};

}  // namespace loam
