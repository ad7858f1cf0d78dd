// Decodes the five requests of point operations, and decides which of their operations are executed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/bytes.h"
#include "common/wire/storage.h"
#include "storage-node/src/request/peer.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/reply_writer.h"
#include "storage-node/src/request/request_batch.h"

namespace loam::storage {

/// Counters of one executor. The thread of the executor writes them; any thread may read them.
using ExecutorCounters = ExecutorNumbers<statistics::Counter>;

/// Decodes reads, writes and reverts of records, and reads and writes of plain tables, into a RequestBatch.
///
/// A request that breaks a rule as a whole is answered with kError at once. An operation that breaks a rule gets an
/// error code in the batch and is not executed. The other operations of its request are executed.
///
/// The decoder appends the intents of an operation to the list of the session before the operation is executed (R5,
/// intents before answers). The caller holds the session's batch lock.
///
/// Owner: the executor of a network thread. Threads: one. The decoder keeps its buffers, so after warm-up it allocates
/// nothing.
class OperationDecoder {
 public:
  OperationDecoder(Registry& registry, RequestBatch& batch, ReplyWriter& replies, ExecutorCounters& counters)
      : registry_(registry), batch_(batch), replies_(replies), counters_(counters) {}

  /// Decodes a request. `view` stays valid until the batch is executed. kMalformed: the body is no message of the kind
  /// that the envelope names, or the storage node does not accept this kind from clients.
  Status decode(Peer& peer, const RegistryView& view, const wire::Envelope& envelope, ByteReader& body);

 private:
  using Request = RequestBatch::Request;

  Status decode_read(Peer& peer, uint64_t sequence, ByteReader& body);
  Status decode_write(Peer& peer, uint64_t sequence, ByteReader& body);
  Status decode_revert(Peer& peer, uint64_t sequence, ByteReader& body);
  Status decode_plain_read(Peer& peer, uint64_t sequence, ByteReader& body);
  Status decode_plain_write(Peer& peer, uint64_t sequence, ByteReader& body);

  // Checks of a whole request. Each returns false if it has refused the request.
  bool check_operation_count(Peer& peer, uint64_t sequence, size_t operations);
  bool check_snapshot(Peer& peer, uint64_t sequence, const Snapshot& snapshot);
  /// Refuses a write whose transaction is complete, because recovery would not undo it any more (R5).
  bool check_transaction_open(Peer& peer, uint64_t sequence, TransactionId id);
  /// Refuses a plain write whose intents are invalid.
  bool check_intents(Peer& peer, uint64_t sequence, const wire::PlainWrite& write);
  /// Sets `projection` to the fields that a read names; the fields belong to one table.
  template <class Read>
  bool resolve_projection(Peer& peer, uint64_t sequence, const Read& read, const Projection*& projection);

  // Checks of one operation. Each adds an item with the reason if the operation cannot be executed.
  /// Returns the table that holds the record, or null if this storage node does not serve the record. `if_dropped` is
  /// the code when no such table exists.
  const ServedTable* resolve_table(Request& request, const wire::RecordId& record, TableKind kind,
                                   StatusCode if_dropped = StatusCode::kNoSuchTable);
  /// Sets the row of an insert or update. Returns false if the row does not fit the schema (kInvalidArgument).
  template <class Write>
  bool set_row(Request& request, const ServedTable& table, const Write& write, PointOperation& operation);
  /// Adds kUnavailable for an operation with a row of more added fields than this storage node knows: it gets them with
  /// its next registration. Returns false.
  bool refuse_unknown_fields(Request& request);
  /// Appends the intents of an operation to the session's list. Returns false if the list has no room (kOverloaded).
  bool append_intents(Peer& peer, Request& request, const PointOperation& operation);
  bool append_intents(Peer& peer, Request& request, TableId index, std::span<const wire::IndexIntent> changes);
  /// Adds `operation` once for each record that is served.
  void add_each(Request& request, std::span<const wire::RecordId> records, TableKind kind, PointOperation& operation,
                StatusCode if_dropped = StatusCode::kNoSuchTable);

  Registry& registry_;
  RequestBatch& batch_;
  ReplyWriter& replies_;
  ExecutorCounters& counters_;
  const RegistryView* view_ = nullptr;  // valid during decode()
  // Buffers that are reused between requests.
  wire::Read read_;
  wire::Write write_;
  wire::Revert revert_;
  wire::PlainRead plain_read_;
  wire::PlainWrite plain_write_;
};

}  // namespace loam::storage
