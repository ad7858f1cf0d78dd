#include "common/rpc/scripted_test_server.h"

#include "common/wire/undo_record.h"

namespace loam::rpc {

std::optional<Buffer> PlainRecords::execute(const wire::Envelope& envelope, ByteReader& reader) {
  if (envelope.opcode == wire::Opcode::kPlainRead) {
    wire::PlainReadReply reply;
    for (const wire::RecordId& record : decoded<wire::PlainRead>(reader).records) reply.results.push_back(read(record));
    return encoded(reply, envelope.sequence);
  }
  if (envelope.opcode == wire::Opcode::kPlainWrite) {
    wire::PlainWriteReply reply;
    for (const auto& operation : decoded<wire::PlainWrite>(reader).operations) {
      reply.results.push_back(write(operation));
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
  const bool marks = operation.kind == wire::WriteKind::kMark;
  if ((removes || marks) && operation.expected == Version()) return {StatusCode::kInvalidArgument, {}};
  if (operation.expected != present) return {StatusCode::kConflict, present};
  if (removes) {
    rows_.erase(found);
    return {StatusCode::kOk, operation.expected};
  }
  const Version version(next_version_);
  if (operation.kind == wire::WriteKind::kMark) {
    wire::UndoRecord record = wire::UndoRecord::decode(found->second.row).value();
    record.state = static_cast<wire::UndoState>(operation.mark);
    put(operation.record, record.encode().value());
  } else {
    put(operation.record, Buffer(operation.row.begin(), operation.row.end()));
  }
  return {StatusCode::kOk, version};
}

}  // namespace loam::rpc
