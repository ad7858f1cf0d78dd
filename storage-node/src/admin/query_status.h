// What operators see of a scan query under way, and the id by which they end it.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::storage {

/// Names a scan query of the cluster for operators, as "17-3fa9c104": its session, and a hash of the message that the
/// client has sent.
///
/// A client sends the same message to every storage node, so a query has one id at all of them, and the storage nodes
/// need no state for it. The id never names a query of another session, because session ids are never used again.
/// Queries with one id are alike: one session runs the same query twice, in the same snapshot. An operator sees them as
/// one, and ends them together.
struct QueryId {
  SessionId session;
  uint32_t hash = 0;

  bool operator==(const QueryId&) const = default;

  std::string to_string() const;
  /// kInvalidArgument: the text has another form.
  static Result<QueryId> parse(const std::string& text);
};

/// A scan query that a storage node executes. Plain data.
struct QueryStatus {
  /// What the query does.
  enum class State : uint8_t {
    kQueued,            ///< it has read nothing yet
    kReading,           ///< it reads pages
    kWaitingForClient,  ///< its client has to read chunks first
    kWaitingForMemory,  ///< the chunks of all queries fill the memory for queries
  };
  QueryId id;
  std::string address;  ///< network address of its client
  std::string table;    ///< name of the table
  Version snapshot;     ///< the id up to which its snapshot sees all versions; 0: it has no snapshot
  uint64_t age_ns = 0;  ///< time since the query arrived
  State state = State::kQueued;
  uint64_t waiting_ns = 0;  ///< time for which it has waited for its client or for memory
  uint64_t pages_total = 0;
  uint64_t pages_left = 0;
  uint64_t records = 0;        ///< entries examined
  uint64_t rows = 0;           ///< rows that matched
  uint64_t chunks = 0;         ///< chunks sent
  uint64_t unread_chunks = 0;  ///< chunks sent that the client has not acknowledged
};

}  // namespace loam::storage
