// PlainRecords, a model of non-transactional tables for the scripted servers of tests.
#include "common/testing/scripted_server.h"

#include <string>
#include <utility>

#include "common/schema/projection.h"
#include "common/wire/system_tables.h"

namespace loam::rpc {

std::optional<Buffer> PlainRecords::execute(const wire::Envelope& envelope, ByteReader& reader) {
  if (envelope.opcode == wire::Opcode::kPlainRead) {
    wire::PlainReadReply reply;
    for (const wire::RecordId& record : decoded<wire::PlainRead>(reader).records) reply.results.push_back(read(record));
    return encoded(reply, envelope.sequence);
  }
  if (envelope.opcode == wire::Opcode::kPlainWrite) {
    const auto message = decoded<wire::PlainWrite>(reader);
    LOAM_CHECK(message.intents.empty() || message.operations.size() == 1, "intents need exactly one write");
    wire::PlainWriteReply reply;
    for (const auto& operation : message.operations) reply.results.push_back(write(operation));
    // A refused write leaves no intent, because there is nothing to undo.
    for (const wire::IndexIntent& intent : message.intents) {
      if (reply.results[0].code != StatusCode::kOk) break;
      intents_[intent.transaction].push_back(
          {message.operations[0].record.table, intent.record, intent.remove, intent.shared, std::string(intent.key)});
    }
    return encoded(reply, envelope.sequence);
  }
  return std::nullopt;
}

wire::ReadResult PlainRecords::read(wire::RecordId record) const {
  const auto found = rows_.find(record);
  if (found == rows_.end()) return {StatusCode::kNotFound, {}, {}};
  return {StatusCode::kOk, Version(found->second.version), found->second.row};
}

wire::WriteResult PlainRecords::write(const wire::PlainWrite::Operation& operation) {
  const auto found = rows_.find(operation.record);
  const Version present(found == rows_.end() ? 0 : found->second.version);
  const bool removes = operation.kind == wire::WriteKind::kRemove;
  const bool changes_fields = operation.kind == wire::WriteKind::kUpdateFields;
  // A removal or a change of fields needs a present version. Version 0 stands for an absent record, which only an
  // insert expects.
  if ((removes || changes_fields) && operation.expected == Version()) return {StatusCode::kInvalidArgument, {}};
  if (operation.expected != present) return {StatusCode::kConflict, present};
  if (removes) {
    rows_.erase(found);
    return {StatusCode::kOk, operation.expected};
  }
  const Version version(next_version_);
  if (changes_fields) {
    const Projection fields = Projection::make(wire::index_node_schema(), operation.projection).value();
    const Bytes before = found->second.row;
    Buffer row(fields.composed_size(before, operation.row));
    fields.compose(before, operation.row, row.data());
    put(operation.record, std::move(row));
  } else {
    put(operation.record, Buffer(operation.row.begin(), operation.row.end()));
  }
  return {StatusCode::kOk, version};
}

}  // namespace loam::rpc
