// Identifiers as types of their own, so that a key is never taken for a version.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace loam {

/// A 64-bit number with a meaning. `Tag` makes the types distinct; the layout is the number's.
template <class Tag>
struct StrongId {
  uint64_t value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(uint64_t number) : value(number) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

/// Table number, given by the commit manager, unique in the cluster and never reused. 0 is no table.
using TableId = StrongId<struct TableIdTag>;
/// Record key within a table: any 64-bit number, given by the client or drawn from a counter.
using Key = StrongId<struct KeyTag>;
/// Version of a record: in transactional tables the id of the transaction that wrote it, in non-transactional tables a
/// number of the node that never comes back (R21). 0 is no version.
using Version = StrongId<struct VersionTag>;
/// Transaction: dense, increasing, never reused (R12). 0 is no transaction (read-only).
using TransactionId = StrongId<struct TransactionIdTag>;
/// One client process's registration at the commit manager; rises and is never reused (R3). 0 is no session.
using SessionId = StrongId<struct SessionIdTag>;
/// Storage node.
using NodeId = StrongId<struct NodeIdTag>;
/// One start of a storage node; unique in the cluster and never reused (R10).
using Incarnation = StrongId<struct IncarnationTag>;

/// The version that a transaction writes is its id.
constexpr Version version_of(TransactionId id) { return Version(id.value); }

}  // namespace loam

template <class Tag>
struct std::hash<loam::StrongId<Tag>> {
  size_t operator()(loam::StrongId<Tag> id) const noexcept {
    uint64_t x = id.value * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(x ^ (x >> 32));
  }
};
