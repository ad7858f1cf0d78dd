// Executor: answers the requests of a batch after it was executed.
#include <string>
#include <utility>

#include "storage-node/src/request/executor.h"

namespace loam::storage {

using wire::Opcode;

void Executor::answer(Peer& peer, Request& request) {
  switch (request.reply) {
    case Opcode::kReadReply:
      return answer_read<wire::ReadReply>(peer, request);
    case Opcode::kPlainReadReply:
      return answer_read<wire::PlainReadReply>(peer, request);
    case Opcode::kWriteReply:
      return answer_write<wire::WriteReply>(peer, request);
    case Opcode::kPlainWriteReply:
      return answer_write<wire::PlainWriteReply>(peer, request);
    default:
      return answer_write<wire::RevertReply>(peer, request);
  }
}

template <class Reply>
void Executor::answer_read(Peer& peer, const Request& request) {
  Reply reply;
  reply.results.swap(read_results_);
  reply.results.clear();
  parts_.clear();
  size_t row_bytes = 0;
  for (size_t i = request.first_slot; i < request.first_slot + request.slots; ++i) {
    const Slot& slot = slots_[i];
    wire::ReadResult& result = reply.results.emplace_back();
    result.code = slot.code;
    if (slot.operation == kNotRun) continue;
    const PointOperation& operation = operations_[slot.operation];
    result.code = operation.code;
    result.version = operation.version;
    result.row = operation.result;
    const bool part = request.projection != nullptr && result.code == StatusCode::kOk;
    const size_t size = part ? request.projection->projected_size(result.row) : result.row.size();
    row_bytes += size;
    // One row always fits; an answer never grows beyond the limit by more than one row.
    if (row_bytes > kMaxReplyRowBytes && size < row_bytes) {
      result = {StatusCode::kOverloaded, {}, {}};
    } else if (part) {
      result.row = project(*request.projection, result.row, size);
    }
  }
  send(peer, request.sequence, reply);
  reply.results.swap(read_results_);
}

Bytes Executor::project(const Projection& projection, Bytes row, size_t size) {
  // Never grows beyond it: parts of one answer stay where they are.
  if (parts_.capacity() == 0) parts_.reserve(kMaxReplyRowBytes + kMaxRowBytes);
  const size_t at = parts_.size();
  parts_.resize(at + size);
  projection.project(row, parts_.data() + at);
  return Bytes(parts_).subspan(at);
}

template <class Reply>
void Executor::answer_write(Peer& peer, Request& request) {
  Reply reply;
  reply.results.swap(write_results_);
  reply.results.clear();
  for (size_t i = request.first_slot; i < request.first_slot + request.slots; ++i) {
    const Slot& slot = slots_[i];
    wire::WriteResult& result = reply.results.emplace_back();
    result.code = slot.code;
    if (slot.operation == kNotRun) continue;
    const PointOperation& operation = operations_[slot.operation];
    result.code = operation.code;
    result.version = operation.version;
    if (result.code == StatusCode::kInvalidArgument && operation.projection != nullptr && result.version == Version()) {
      explain(request, i - request.first_slot, operation.table->id(),
              "with the fields that it keeps the row would have more than the " +
                  std::to_string(operation.table->max_row_bytes()) + " bytes that are allowed");
    }
  }
  if constexpr (requires { reply.detail; }) reply.detail = request.detail;
  send(peer, request.sequence, reply);
  reply.results.swap(write_results_);
}

void Executor::send_reply(Peer& peer) {
  Status sent = peer.send(reply_);
  // A peer that asks and does not read its answers is let go: the answers that are lost are those of a lost connection.
  if (!sent.ok()) peer.close(std::move(sent));
}

void Executor::refuse(Peer& peer, uint64_t sequence, Status status, uint64_t retry_after_ns) {
  send(peer, sequence, wire::Error{std::move(status), retry_after_ns});
}

}  // namespace loam::storage
