// Client of a storage node for the load generator: Loam's messages over the product's own transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/peers/content.h"
#include "benchmarks/peers/peer.h"
#include "common/net/transport/transport.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::bench {

/// Connections to the only storage node of a cluster. Each has a session of its own, as if it belonged to a client
/// process of its own. Peer describes the contract.
///
/// An operation is a message with one record. The transport puts the messages of a batch into one frame, as it does for
/// the fibers of a client. A record's key is a number, so a row also contains the key as text beside the value; both
/// are checked. A put writes a row of a non-transactional table and names the version that it replaces, which the last
/// reply contained. A get reads the newest version in that table, or the version that the connection's snapshot sees in
/// the transactional table. load() fills the transactional table.
class NodePeer final : public Peer, private net::Handler {
 public:
  struct Options {
    std::string manager;  ///< address of the commit manager, "tcp://127.0.0.1:7400"
    size_t connections = 1;
    size_t records = 0;  ///< keys are 0 to records - 1
  };

  /// Opens the sessions and creates the two tables. Throws if there is no cluster.
  NodePeer(const Options& options, const Content& content);

  /// Selects the table of later operations. The transactional table supports gets only.
  void use_transactional(bool transactional) { transactional_ = transactional; }
  /// Fills the transactional table: writes every record with stamp 0 in one transaction, which the snapshots of all
  /// connections see. Puts fill the other table.
  void load();

  size_t connections() const override { return nodes_.size(); }
  void send(size_t connection, std::span<const Operation> batch) override;
  void poll(uint64_t timeout_ns, const std::function<void(size_t, size_t)>& answered) override;

 private:
  /// A connection to the storage node or to the commit manager; the latter has no batch.
  struct Channel {
    net::Connection* connection = nullptr;
    size_t number = 0;
    uint64_t next_sequence = 1;
    std::vector<Operation> batch;
    size_t next = 0;              // index in `batch` of the operation whose reply comes next
    uint64_t first_sequence = 0;  // sequence of the first operation of the batch
    Buffer answer;                // the reply that call() waits for
    bool call_pending = false;
    wire::OpenSessionReply session;
    wire::Read read;
  };

  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_closed(net::Connection& connection, const Status& status) override;

  Channel& connect(std::deque<Channel>& to, const std::string& address);
  template <wire::Message Reply, wire::Message M>
  Reply call(Channel& channel, const M& message);
  wire::TableInfo make_table(TableKind kind, const Schema& schema);
  Bytes row_of(uint32_t record, uint32_t stamp);
  bool is_row(const Operation& operation, Bytes row) const;
  template <wire::Message M>
  void put_message(Channel& channel, const M& message);
  void send_one(Channel& channel, const Operation& operation);
  void check(Channel& channel, Bytes message);
  std::string wrong(const Operation& operation, const wire::Envelope& envelope, ByteReader& reader);
  void fail(std::string what);
  void throw_failure() const;

  const Content& content_;
  std::unique_ptr<net::Transport> transport_;
  std::deque<Channel> managers_, nodes_;
  wire::TableInfo transactional_table_, plain_table_;
  bool transactional_ = false;
  // A row of the table; its key and value are overwritten for each record.
  Buffer row_;
  size_t key_at_ = 0, value_at_ = 0;
  std::vector<Version> versions_;  // by record, in the non-transactional table
  const std::function<void(size_t, size_t)>* answered_ = nullptr;
  std::string failure_;  // an error that a callback found; poll() throws it
  Buffer message_;
  wire::PlainRead plain_read_;
  wire::PlainWrite plain_write_;
  wire::ReadReply read_reply_;
  wire::PlainReadReply plain_read_reply_;
  wire::PlainWriteReply plain_write_reply_;
};

}  // namespace loam::bench
