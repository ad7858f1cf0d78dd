#include "client-lib/src/core/write_buffer.h"

#include <loam/client/options.h>

namespace loam::client {

Status WriteBuffer::check_room(const Table& table, Key key, size_t replaced, size_t added, bool fresh) const {
  if (fresh && writes_.size() >= kMaxTransactionWrites) {
    return {StatusCode::kInvalidArgument, describe(table, key) + ": a transaction may write " +
                                              std::to_string(kMaxTransactionWrites) +
                                              " records at most; split it into several"};
  }
  if (bytes_ - replaced + added > kMaxTransactionBytes) {
    return {StatusCode::kInvalidArgument, describe(table, key) + ": a transaction may write " +
                                              std::to_string(kMaxTransactionBytes) +
                                              " bytes of rows at most; split it into several"};
  }
  return ok_status();
}

Status WriteBuffer::put(wire::WriteKind kind, const Table& table, Key key, Bytes row) {
  using wire::WriteKind;
  const wire::RecordId id{table.id(), key};
  const auto found = writes_.find(id);
  if (found == writes_.end()) {
    LOAM_RETURN_IF_ERROR(check_room(table, key, 0, row.size(), true));
    writes_.emplace(id, Write{kind, Buffer(row.begin(), row.end())});
    tables_.emplace(table.id(), table);
    bytes_ += row.size();
    return ok_status();
  }
  Write& own = found->second;
  if (kind == WriteKind::kInsert && own.kind != WriteKind::kRemove) {
    return {StatusCode::kAlreadyExists, describe(table, key) + " was written by this transaction already"};
  }
  if (kind != WriteKind::kInsert && own.kind == WriteKind::kRemove) {
    return {StatusCode::kNotFound, describe(table, key) + " was removed by this transaction"};
  }
  LOAM_RETURN_IF_ERROR(check_room(table, key, own.row.size(), row.size(), false));
  bytes_ = bytes_ - own.row.size() + row.size();
  if (kind == WriteKind::kRemove && own.kind == WriteKind::kInsert) {
    writes_.erase(found);
    return ok_status();
  }
  if (kind == WriteKind::kInsert) own.kind = WriteKind::kUpdate;  // over an own remove: the record was there
  if (kind == WriteKind::kRemove) own.kind = WriteKind::kRemove;
  own.row.assign(row.begin(), row.end());
  return ok_status();
}

Status WriteBuffer::touch(const Table& table, Key key, Bytes row) {
  if (writes_.contains({table.id(), key})) return ok_status();
  return update(table, key, row);
}

WriteBuffer::Own WriteBuffer::find(TableId table, Key key, Bytes& row) const {
  const auto found = writes_.find({table, key});
  if (found == writes_.end()) return Own::kUnwritten;
  if (found->second.kind == wire::WriteKind::kRemove) return Own::kRemoved;
  row = found->second.row;
  return Own::kPresent;
}

bool WriteBuffer::writes_to(TableId table) const {
  const auto first = writes_.lower_bound({table, Key(0)});
  return first != writes_.end() && first->first.table == table;
}

}  // namespace loam::client
