// Common parts of the scripted servers in the tests of the client library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/net/transport/transport.h"
#include "common/wire/index_change.h"
#include "common/wire/message.h"
#include "common/wire/storage.h"

namespace loam::rpc {

/// The message as bytes, with the given sequence number.
template <wire::Message M>
Buffer encoded(const M& message, uint64_t sequence) {
  Buffer out;
  wire::encode_message(message, sequence, out);
  return out;
}

/// Decodes the body of a message that the client library has sent. Aborts the test if it is malformed.
template <wire::Message M>
M decoded(ByteReader& reader) {
  M message;
  LOAM_CHECK(wire::decode_body(reader, message).ok(), "the library sent a message that does not decode");
  return message;
}

/// The handler of one of several listeners of a server. It marks each connection with the listener that accepted it:
/// the context of the connection is `mark` from on_connected() on. All events go to the handler `owner`. Owner: the
/// server, which keeps it as long as its transport.
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

/// A model of a storage node's non-transactional tables.
///
/// A write names the exact version that it replaces (R21, exact-version writes). Versions ascend over all keys. The
/// model also keeps the intents of the writes that succeeded (R5, intents before answers). A write of some fields must
/// be one of a tree node, because the model knows only this schema. Threads: one, or the owner holds a lock.
class PlainRecords {
 public:
  /// The newest version of a record.
  struct Row {
    uint64_t version = 0;
    Buffer row;
  };
  /// The index changes that writes have carried as intents, by transaction.
  using Intents = std::map<TransactionId, std::vector<wire::IndexChange>>;

  /// Executes a kPlainRead or kPlainWrite and returns the encoded reply. Empty: the message has another opcode.
  std::optional<Buffer> execute(const wire::Envelope& envelope, ByteReader& reader);
  /// Stores a row under the next version, without a check of the present version.
  void put(wire::RecordId record, Buffer row) { rows_[record] = {next_version_++, std::move(row)}; }
  /// All records.
  const std::map<wire::RecordId, Row>& rows() const { return rows_; }
  /// Removes the records whose id meets the condition.
  template <class Condition>
  void erase_if(Condition condition) {
    std::erase_if(rows_, [&](const auto& row) { return condition(row.first); });
  }
  /// The intents that are not forgotten yet.
  const Intents& intents() const { return intents_; }
  /// Drops the intents of a transaction, as a storage node does when a publication says that it is complete.
  void forget(TransactionId transaction) { intents_.erase(transaction); }

 private:
  wire::ReadResult read(wire::RecordId record) const;
  wire::WriteResult write(const wire::PlainWrite::Operation& operation);

  std::map<wire::RecordId, Row> rows_;
  Intents intents_;
  uint64_t next_version_ = 1;
};

}  // namespace loam::rpc
