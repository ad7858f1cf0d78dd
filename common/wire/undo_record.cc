#include "common/wire/undo_record.h"

#include "common/schema/row.h"

namespace loam::wire {
namespace {

constexpr uint8_t kFormat = 1;
constexpr uint8_t kTake = 1;
constexpr uint8_t kShared = 2;
using Fields = TransactionTableFields;

Buffer encode_body(const UndoRecord& record) {
  Buffer body;
  ByteWriter out(body);
  out.put(kFormat);
  size_t tables = 0;
  for (size_t i = 0; i < record.records.size(); ++i) {
    tables += i == 0 || record.records[i].table != record.records[i - 1].table ? 1 : 0;
  }
  out.put_varint(tables);
  for (size_t begin = 0, end = 0; begin < record.records.size(); begin = end) {
    const TableId table = record.records[begin].table;
    while (end < record.records.size() && record.records[end].table == table) ++end;
    out.put_varint(table.value);
    out.put_varint(end - begin);
    for (size_t i = begin; i < end; ++i) out.put(record.records[i].key.value);
  }
  out.put_varint(record.index_changes.size());
  for (const IndexChange& change : record.index_changes) {
    out.put_varint(change.index.value);
    out.put(change.record.value);
    out.put(static_cast<uint8_t>((change.take ? kTake : 0) | (change.shared ? kShared : 0)));
    out.put_bytes(as_bytes(change.key));
  }
  return body;
}

Status decode_body(Bytes body, UndoRecord& record) {
  ByteReader in(body);
  if (in.get<uint8_t>() != kFormat) in.fail();
  const size_t tables = in.get_count(3);
  for (size_t t = 0; t < tables && !in.failed(); ++t) {
    const TableId table(in.get_varint());
    const size_t keys = in.get_count(sizeof(uint64_t));
    for (size_t i = 0; i < keys; ++i) {
      const RecordId id{table, Key(in.get<uint64_t>())};
      if (!record.records.empty() && !(record.records.back() < id)) in.fail();
      record.records.push_back(id);
    }
  }
  const size_t changes = in.get_count(1 + sizeof(uint64_t) + 2);
  for (size_t i = 0; i < changes && !in.failed(); ++i) {
    IndexChange& change = record.index_changes.emplace_back();
    change.index = TableId(in.get_varint());
    change.record = Key(in.get<uint64_t>());
    const auto flags = in.get<uint8_t>();
    if (flags > (kTake | kShared)) in.fail();
    change.take = (flags & kTake) != 0;
    change.shared = (flags & kShared) != 0;
    change.key = as_text(in.get_bytes());
  }
  return in.finish("body of an undo record");
}

}  // namespace

Result<Buffer> UndoRecord::encode() const {
  RowBuilder builder(transaction_table_schema());
  LOAM_RETURN_IF_ERROR(builder.set_int64(Fields::kSession, static_cast<int64_t>(session.value)));
  LOAM_RETURN_IF_ERROR(builder.set_int16(Fields::kState, static_cast<int16_t>(state)));
  LOAM_RETURN_IF_ERROR(builder.set_blob(Fields::kBody, encode_body(*this)));
  auto row = builder.finish();
  if (!row.ok()) {
    return Status(StatusCode::kInvalidArgument, "a transaction that writes " + std::to_string(records.size()) +
                                                    " records and " + std::to_string(index_changes.size()) +
                                                    " index entries is too large; split it (" +
                                                    std::string(row.status().message()) + ")");
  }
  return Buffer(row->begin(), row->end());
}

Result<UndoRecord> UndoRecord::decode(Bytes row) {
  const Schema& schema = transaction_table_schema();
  LOAM_RETURN_IF_ERROR(validate_row(schema, row));
  const RowView view(schema, row);
  UndoRecord record;
  record.session = SessionId(static_cast<uint64_t>(view.int64(Fields::kSession)));
  record.state = static_cast<UndoState>(view.int16(Fields::kState));
  if (record.state < UndoState::kPending || record.state > UndoState::kAborted) {
    return Status(StatusCode::kMalformed, "undo record in state " + std::to_string(view.int16(Fields::kState)));
  }
  LOAM_RETURN_IF_ERROR(decode_body(view.blob(Fields::kBody), record));
  return record;
}

}  // namespace loam::wire
