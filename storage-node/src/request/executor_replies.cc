// Executor: answers the requests of a batch after it was executed.
#include <string>
#include <utility>

#include "storage-node/src/request/executor.h"

namespace loam::storage {

using wire::Opcode;

void Executor::reply_to(Peer& peer, Request& request) {
  switch (request.reply) {
    case Opcode::kReadReply:
      return reply_to_read<wire::ReadReply>(peer, request);
    case Opcode::kPlainReadReply:
      return reply_to_read<wire::PlainReadReply>(peer, request);
    case Opcode::kWriteReply:
      return reply_to_write<wire::WriteReply>(peer, request);
    case Opcode::kPlainWriteReply:
      return reply_to_write<wire::PlainWriteReply>(peer, request);
    default:
      return reply_to_write<wire::RevertReply>(peer, request);
  }
}

template <class Reply>
void Executor::reply_to_read(Peer& peer, const Request& request) {
  Reply reply;
  reply.results.swap(read_results_);
  reply.results.clear();
  parts_.clear();
  size_t row_bytes = 0;
  for (size_t i = request.first_item; i < request.first_item + request.item_count; ++i) {
    const RequestItem& item = items_[i];
    wire::ReadResult& result = reply.results.emplace_back();
    result.code = item.code;
    if (item.operation == kNotRun) continue;
    const PointOperation& operation = operations_[item.operation];
    result.code = operation.code;
    result.version = operation.version;
    result.row = operation.result;
    const bool part = request.projection != nullptr && result.code == StatusCode::kOk;
    const size_t size = part ? request.projection->projected_size(result.row) : result.row.size();
    row_bytes += size;
    // The first row of a reply always fits, so that the client makes progress. Later rows must stay within the limit.
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
  // A reply never needs more than this capacity. So the buffer does not move, and the rows that the reply refers to
  // stay where they are.
  if (parts_.capacity() == 0) parts_.reserve(kMaxReplyRowBytes + kMaxRowBytes);
  const size_t at = parts_.size();
  parts_.resize(at + size);
  projection.project(row, parts_.data() + at);
  return Bytes(parts_).subspan(at);
}

template <class Reply>
void Executor::reply_to_write(Peer& peer, Request& request) {
  Reply reply;
  reply.results.swap(write_results_);
  reply.results.clear();
  for (size_t i = request.first_item; i < request.first_item + request.item_count; ++i) {
    const RequestItem& item = items_[i];
    wire::WriteResult& result = reply.results.emplace_back();
    result.code = item.code;
    if (item.operation == kNotRun) continue;
    const PointOperation& operation = operations_[item.operation];
    result.code = operation.code;
    result.version = operation.version;
    if (result.code == StatusCode::kInvalidArgument && operation.projection != nullptr && result.version == Version()) {
      set_error_detail(request, i - request.first_item, operation.table->id(),
                       "with its unchanged fields the new row would have more than the " +
                           std::to_string(operation.table->max_row_bytes()) + " bytes that are allowed");
    }
  }
  if constexpr (requires { reply.detail; }) reply.detail = request.detail;
  send(peer, request.sequence, reply);
  reply.results.swap(write_results_);
}

void Executor::send_reply(Peer& peer) {
  Status sent = peer.send(reply_);
  // The peer does not read its replies. The client handles lost replies as it does after any lost connection.
  if (!sent.ok()) peer.close(std::move(sent));
}

void Executor::refuse(Peer& peer, uint64_t sequence, Status status, uint64_t retry_after_ns) {
  send(peer, sequence, wire::Error{std::move(status), retry_after_ns});
}

}  // namespace loam::storage
