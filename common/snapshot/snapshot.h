// The snapshot of a transaction: its visibility test and its codec.
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

/// Largest number of open transactions that a snapshot can name: 64 clients with 1,024 fibers each. A commit manager
/// with this number of open transactions refuses to begin others (kOverloaded).
inline constexpr size_t kMaxOpenIds = 65'536;

/// The set of versions that a transaction or scan sees.
///
/// A snapshot sees every version up to `base`. Above that it sees every version up to `high` whose id was not open
/// when the snapshot was taken.
///
/// The size of a snapshot depends on the number of open transactions, never on the number of finished ones. While a
/// transaction stays open for ten million others, it adds four bytes to each snapshot. The bitmap of the thesis adds
/// a bit for each of the others [Thesis 5.2.4].
///
/// A value type: a copy allocates only if ids are open. Threads: one at a time for changes, any number for reads.
///
/// Invariants (the canonical form; make(), assign() and decode() establish it, so that two snapshots that see the
/// same versions are equal):
/// 1. base ≤ high, and base is the highest number such that all versions up to it are visible.
/// 2. The open ids ascend and are unique, base < id < high, and the first of them is base + 1.
/// 3. high is the highest visible version; high == base if and only if no id is open.
class Snapshot {
 public:
  /// A snapshot that sees no version.
  Snapshot() = default;
  /// A snapshot that sees every version up to `base` and no other version.
  explicit Snapshot(Version base) : base_(base.value), high_(base.value) {}

  /// Makes the snapshot that sees all versions up to `high` except `open`. It is in canonical form, so base() and
  /// high() may differ from the arguments. kInvalidArgument unless `open` ascends, is unique, has at most kMaxOpenIds
  /// ids, and base < id ≤ high holds for each.
  static Result<Snapshot> make(Version base, Version high, std::span<const Version> open);
  /// Gives this snapshot the value that make() returns, and reuses its memory. On an error it keeps its value.
  Status assign(Version base, Version high, std::span<const Version> open);

  /// The highest version up to which every version is visible.
  Version base() const { return Version(base_); }
  /// The highest visible version.
  Version high() const { return Version(high_); }
  /// The invisible ids between base and high, ascending.
  std::span<const Version> open() const { return open_; }

  /// Whether the snapshot sees this version. Nearly all versions that a scan or a get finds are at or below base; for
  /// these the test is one comparison, which the processor predicts well.
  bool visible(Version version) const {
    if (version.value <= base_) [[likely]]
      return true;
    return version.value <= high_ && !std::binary_search(open_.begin(), open_.end(), version);
  }

  /// Whether every version that `other` sees is visible in this snapshot.
  bool sees_all_of(const Snapshot& other) const;

  bool operator==(const Snapshot&) const = default;

  /// Appends varints: base, high - base, the number of open ids, then for each id its distance from the id before it,
  /// minus one. The distance of the first id counts from base.
  void encode(ByteWriter& out) const;
  /// Reads a snapshot into `reuse`, whose memory it reuses. kMalformed: the bytes end early, an id is out of range,
  /// or there are more than kMaxOpenIds ids; `reuse` then sees no version, and `in` has failed.
  static Status decode(ByteReader& in, Snapshot& reuse);
  /// Reads a snapshot. Errors as above.
  static Result<Snapshot> decode(ByteReader& in);

  /// A text for people with at most sixteen of the open ids: "{base 7, high 12, open 8 10}".
  std::string to_string() const;

 private:
  void make_canonical();

  uint64_t base_ = 0;
  uint64_t high_ = 0;
  std::vector<Version> open_;
};

}  // namespace loam
