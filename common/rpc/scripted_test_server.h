// What the scripted servers of the client library's tests have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/net/transport.h"
#include "common/wire/index_change.h"
#include "common/wire/message.h"
#include "common/wire/storage.h"

namespace loam::rpc {

template <wire::Message M>
Buffer encoded(const M& message, uint64_t sequence) {
  Buffer out;
  wire::encode_message(message, sequence, out);
  return out;
}

template <wire::Message M>
M decoded(ByteReader& reader) {
  M message;
  LOAM_CHECK(wire::decode_body(reader, message).ok(), "the library sent a message that does not decode");
  return message;
}

/// Which of several listeners a connection came to: its context is the mark from on_connected() on. Owner: the server,
/// as long as its transport.
class ListenerMark final : public net::Handler {
 public:
  ListenerMark(net::Handler& owner, void* mark) : owner_(owner), mark_(mark) {}
  void on_connected(net::Connection& connection) override {
    connection.set_context(mark_);
    owner_.on_connected(connection);
  }
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    owner_.on_messages(connection, messages);
  }
  void on_closed(net::Connection& connection, const Status& status) override { owner_.on_closed(connection, status); }

 private:
  net::Handler& owner_;
  void* mark_;
};

/// Records of non-transactional tables, as a storage node keeps them (R21): written by exact version, versions that
/// rise over all keys; and the intents of the writes that succeeded (R5). Writes of some fields are of index nodes. One
/// thread, or its owner's lock.
class PlainRecords {
 public:
  struct Row {
    uint64_t version = 0;
    Buffer row;
  };
  /// The index changes of a transaction that writes have carried.
  using Intents = std::map<TransactionId, std::vector<wire::IndexChange>>;

  /// The answer to a kPlainRead or kPlainWrite; nothing if the message is something else.
  std::optional<Buffer> execute(const wire::Envelope& envelope, ByteReader& reader);
  void put(wire::RecordId record, Buffer row) { rows_[record] = {next_version_++, std::move(row)}; }
  const std::map<wire::RecordId, Row>& rows() const { return rows_; }
  template <class Condition>
  void erase_if(Condition condition) {
    std::erase_if(rows_, [&](const auto& row) { return condition(row.first); });
  }
  const Intents& intents() const { return intents_; }
  /// A publication says that the transaction is complete.
  void forget(TransactionId transaction) { intents_.erase(transaction); }

 private:
  wire::ReadResult read(wire::RecordId record) const;
  wire::WriteResult write(const wire::PlainWrite::Operation& operation);

  std::map<wire::RecordId, Row> rows_;
  Intents intents_;
  uint64_t next_version_ = 1;
};

}  // namespace loam::rpc
