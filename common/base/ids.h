// Identifiers as distinct types, so that the compiler rejects a key where a version is expected.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace loam {

/// A 64-bit number of one meaning. `Tag` makes the types distinct; the layout is that of uint64_t.
template <class Tag>
struct StrongId {
  uint64_t value = 0;  ///< the number

  /// The number 0, which most ids reserve for "none".
  constexpr StrongId() = default;
  /// Explicit, so that no number turns into an id by accident.
  constexpr explicit StrongId(uint64_t number) : value(number) {}
  /// Compares the numbers.
  constexpr auto operator<=>(const StrongId&) const = default;
};

/// Number of a table. The commit manager assigns it; it is unique in the cluster and never reused. 0 is no table.
using TableId = StrongId<struct TableIdTag>;
/// Number of a record within its table: any 64-bit number, chosen by the client or drawn from a counter.
using Key = StrongId<struct KeyTag>;
/// Number of one state of a record. In a transactional table it is the id of the transaction that wrote it, in a
/// non-transactional table a number that the storage node never uses again (R21, exact-version writes). 0 is no
/// version.
using Version = StrongId<struct VersionTag>;
/// Number of a transaction that may write. The numbers are dense, ascend, and are never reused (R12, ids at begin). 0
/// is no transaction: read-only transactions have no id.
using TransactionId = StrongId<struct TransactionIdTag>;
/// Number of a session, the registration of one client process at the commit manager. Numbers ascend and are never
/// reused (R3, idempotent requests within a session). 0 is no session.
using SessionId = StrongId<struct SessionIdTag>;
/// Number of a storage node, assigned by the commit manager. It stays the same when the storage node restarts. 0 is
/// no storage node.
using NodeId = StrongId<struct NodeIdTag>;
/// Number of one start of a storage node, assigned by the commit manager. It is unique in the cluster and never
/// reused (R10, cluster identity and incarnations).
using Incarnation = StrongId<struct IncarnationTag>;

/// The number of every version that the transaction writes in transactional tables: its id.
constexpr Version version_of(TransactionId id) { return Version(id.value); }

}  // namespace loam

/// Makes an id the key of an unordered container.
template <class Tag>
struct std::hash<loam::StrongId<Tag>> {
  /// Spreads consecutive numbers over the whole range. The result is the same in every process.
  size_t operator()(loam::StrongId<Tag> id) const noexcept {
    uint64_t x = id.value * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(x ^ (x >> 32));
  }
};
