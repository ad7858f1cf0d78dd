// The index changes of a commit: the keys of each written record before and after the transaction. index_trees.cc
// makes the changes.
#include "client-lib/src/index/index_changes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "client-lib/src/driver/point_reads.h"

namespace loam::client {
namespace {

using wire::WriteKind;
using Writes = std::vector<std::pair<Key, const WriteBuffer::Write*>>;

bool touches(const WriteBuffer::Write& write, const Table& fields) {
  if (write.kind != WriteKind::kUpdateFields) return true;
  const FieldNumbers written = write.table.projection();
  for (size_t i = 0; i < fields.schema().size(); ++i) {
    for (size_t j = 0; j < write.table.schema().size(); ++j) {
      if (written[j] == fields.projection()[i]) return true;
    }
  }
  return false;
}

/// The writes to a table that may change its index's fields.
Writes writes_of(const WriteBuffer& buffer, const Table& fields) {
  Writes writes;
  const auto& all = buffer.writes();
  for (auto at = all.lower_bound({fields.id(), Key(0)}); at != all.end() && at->first.table == fields.id(); ++at) {
    if (touches(at->second, fields)) writes.emplace_back(at->first.key, &at->second);
  }
  return writes;
}

/// The writes of one index, with the pending reads of the records that they change.
struct PendingReads {
  Writes writes;
  std::shared_ptr<PointReads> reads{};  // null: all writes are inserts
};

PendingReads start_reading(const IndexContext& context, const IndexKeys& keys, const WriteBuffer& buffer) {
  PendingReads reading{writes_of(buffer, keys.fields())};
  std::vector<Key> old;
  for (const auto& [record, write] : reading.writes) {
    // An insert has no old values, so its record is not read.
    if (write->kind != WriteKind::kInsert) old.push_back(record);
  }
  if (old.empty()) return reading;
  reading.reads = std::make_shared<PointReads>(context.engine, context.session, keys.fields(), context.snapshot);
  reading.reads->start(old);
  return reading;
}

Result<std::vector<WrittenRecord>> finish_reading(const IndexKeys& keys, const PendingReads& reading) {
  const auto& [writes, reads] = reading;
  if (reads != nullptr) reads->wait();
  std::vector<WrittenRecord> written;
  size_t next = 0;
  for (const auto& [record, write] : writes) {
    WrittenRecord made{record, {}, {}};
    std::optional<Record> before;
    if (write->kind != WriteKind::kInsert) {
      Result<Record> read = reads->take_result(next++);
      if (read.code() == StatusCode::kNotFound) continue;  // commit() returns the error of this write
      if (!read.ok()) return read.status();
      before.emplace(std::move(read).value());
      LOAM_ASSIGN_OR_RETURN(made.before, keys.key_of(before->view(), record));
    }
    if (write->kind != WriteKind::kRemove) {
      // Fields that the write does not have keep the values of the record that was read.
      const std::optional<RowView> view = before ? std::optional(before->view()) : std::nullopt;
      LOAM_ASSIGN_OR_RETURN(const Buffer row, WriteBuffer::own_row(*write, keys.fields(), view ? &*view : nullptr));
      LOAM_ASSIGN_OR_RETURN(made.after, keys.key_of(RowView(keys.fields().schema(), row), record));
    }
    written.push_back(std::move(made));
  }
  return written;
}

Status too_large(const Index& index, size_t max_bytes) {
  return {StatusCode::kInvalidArgument,
          "index " + index.name() + ": with its entries the transaction writes more than " + std::to_string(max_bytes) +
              " bytes; split it into several, or raise ClientOptions::max_transaction_bytes"};
}

}  // namespace

Result<std::vector<WrittenRecord>> written_records(const IndexContext& context, const IndexKeys& keys,
                                                   const WriteBuffer& writes) {
  return finish_reading(keys, start_reading(context, keys, writes));
}

Result<std::vector<wire::IndexChange>> index_changes(const IndexContext& context, const WriteBuffer& writes) {
  struct IndexReads {
    TableId index;
    std::shared_ptr<const IndexKeys> keys;
    PendingReads reading;
  };
  // Phase 1: start the reads of all indexes, so that they share one round trip.
  std::vector<IndexReads> all;
  for (const auto& [table, indexes] : context.indexes.of_table) {
    if (!writes.writes_to(table)) continue;
    for (const Index& index : indexes) {
      // A damaged index is never read again. Only its uniqueness would be missed, so others need no maintenance.
      if (index.damaged() && !index.unique()) continue;
      LOAM_ASSIGN_OR_RETURN(const auto keys, context.trees.keys(index));
      if (index.damaged() && !writes_of(writes, keys->fields()).empty()) return damaged_index_error(index.name());
      all.push_back({index.id(), keys, start_reading(context, *keys, writes)});
    }
  }
  // Phase 2: wait for the reads, and compare the keys before and after each write.
  std::vector<wire::IndexChange> changes;
  size_t room = writes.max_bytes() - writes.bytes();
  const auto add = [&](const IndexReads& of, Key record, bool take, IndexKeys::TreeKey&& key) -> Status {
    // Index changes count towards the transaction's limit, because storage nodes keep an intent for each.
    const size_t bytes = kTransactionBytesPerRecord + key.bytes.size();
    if (bytes > room) return too_large(of.keys->index(), writes.max_bytes());
    room -= bytes;
    changes.push_back({of.index, record, take, key.shared, std::move(key.bytes)});
    return ok_status();
  };
  for (const IndexReads& of : all) {
    LOAM_ASSIGN_OR_RETURN(std::vector<WrittenRecord> written, finish_reading(*of.keys, of.reading));
    for (WrittenRecord& record : written) {
      if (record.before && record.after && record.before->bytes == record.after->bytes) continue;
      if (record.before) LOAM_RETURN_IF_ERROR(add(of, record.record, true, std::move(*record.before)));
      if (record.after) LOAM_RETURN_IF_ERROR(add(of, record.record, false, std::move(*record.after)));
    }
  }
  return changes;
}

}  // namespace loam::client
