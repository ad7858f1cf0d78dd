// What Core is made of; included by its sources only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/catalog_store.h"
#include "commit-manager/src/catalog/table_changes.h"
#include "commit-manager/src/core/session.h"
#include "commit-manager/src/core/transactions.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// Decodes, dispatches, encodes. Client requests are in client_requests.cc, storage nodes' in node_requests.cc.
///
/// A peer whose connection has to end is only marked (doom()); settle(), at the end of every public call, closes it.
/// So no handler loses its session or peer while it works with them.
class Core::Impl final : public NodeChannel {
 public:
  Impl(const CoreOptions& options, Outbox& outbox)
      : options_(options), outbox_(outbox), catalog_(options_), changes_(catalog_, *this), transactions_(options_) {}

  void on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns);
  void peer_lost(PeerId id);
  void on_time(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  void create_table(const wire::CreateTable& request, TableChanges::CreateDone done);
  void drop_table(const wire::DropTable& request, TableChanges::DropDone done);
  void set_admin_address(std::string address) { admin_address_ = std::move(address); }
  bool ready() const { return options_.initial_nodes == 0 || (catalog_.dealt() && !changes_.spreading_shards()); }
  SessionId open_recoverer() { return SessionId(++last_session_); }
  Statistics statistics() const;
  std::vector<SessionStatus> sessions() const;
  void check_invariants() const;

  const CatalogStore& catalog() const { return catalog_; }
  const Transactions& transactions() const { return transactions_; }

 private:
  struct Peer {
    PeerId id;
    Session* session = nullptr;
    NodeId node;
    uint64_t register_sequence = 0;
    bool doomed = false;
  };

  // core.cc
  Status execute(Peer& peer, Bytes message, uint64_t now_ns);
  Status execute_for_session(Peer& peer, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  template <wire::Message M>
  Status decode(ByteReader& reader, M& message);
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  void send_encoded(Peer& peer, Bytes message);
  void doom(Peer& peer, Status why);
  void forget(Peer& peer, const Status& why);
  void settle();
  void publish(uint64_t now_ns);

  // client_requests.cc
  Status open_session(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status get_catalog(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status begin(Session& session, ByteReader& reader, uint64_t sequence, uint64_t now_ns);
  Status complete(Session& session, ByteReader& reader, uint64_t sequence);
  Status cleared(Session& session, ByteReader& reader);
  Status release_snapshots(Session& session, ByteReader& reader);
  Status create(Session& session, ByteReader& reader, uint64_t sequence);
  Status drop(Session& session, ByteReader& reader, uint64_t sequence);
  Status close_session(Session& session, ByteReader& reader, uint64_t sequence);
  void end_session(Session& session);
  /// Answers a request of the session, and keeps the answer for its repetition.
  template <wire::Message M>
  void answer(Session& session, uint64_t sequence, const M& message);
  void refuse(Session& session, uint64_t sequence, Status status);
  /// The same for a request whose session may have ended meanwhile.
  template <wire::Message M>
  void answer_later(SessionId session, uint64_t sequence, const Result<M>& result);

  // node_requests.cc
  Status register_node(Peer& peer, uint64_t sequence, ByteReader& reader, uint64_t now_ns);
  Status node_answer(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);
  void node_gone(NodeId node, const Status& why);
  Peer* peer_of(NodeId node);
  void install(NodeId node, uint64_t sequence, const wire::InstallTable& message) override;
  void remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) override;

  const CoreOptions options_;
  std::string admin_address_;
  Outbox& outbox_;
  CatalogStore catalog_;
  TableChanges changes_;
  Transactions transactions_;

  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<SessionId, Session> sessions_;
  std::unordered_map<NodeId, PeerId> node_peers_;
  uint64_t last_session_ = options_.first_session.value - 1;
  std::vector<std::pair<PeerId, Status>> doomed_;

  uint64_t published_ns_ = 0;
  uint64_t publish_due_ns_ = 0;  ///< not before; meaningless while nothing has changed
  bool republish_ = false;       ///< a node did not take the newest publication

  // Decoded messages and encoded answers, kept for their memory.
  wire::Begin begin_;
  wire::Begun begun_;
  wire::Complete complete_;
  wire::Cleared cleared_;
  wire::ReleaseSnapshots release_;
  wire::Publish publish_;
  Buffer out_;

  uint64_t sessions_opened_ = 0;
  uint64_t sessions_lost_ = 0;
  uint64_t publication_bytes_ = 0;
  uint64_t publications_skipped_ = 0;
  uint64_t messages_ = 0;
  uint64_t repeated_ = 0;
  uint64_t refused_ = 0;
  uint64_t malformed_ = 0;
};

template <wire::Message M>
Status Core::Impl::decode(ByteReader& reader, M& message) {
  return wire::decode_body(reader, message);
}

template <wire::Message M>
void Core::Impl::send(Peer& peer, uint64_t sequence, const M& message) {
  out_.clear();
  wire::encode_message(message, sequence, out_);
  send_encoded(peer, out_);
}

template <wire::Message M>
void Core::Impl::answer(Session& session, uint64_t sequence, const M& message) {
  out_.clear();
  wire::encode_message(message, sequence, out_);
  session.window.keep(sequence, out_);
  send_encoded(peers_.at(session.peer), out_);
}

template <wire::Message M>
void Core::Impl::answer_later(SessionId id, uint64_t sequence, const Result<M>& result) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  if (result.ok()) {
    answer(at->second, sequence, result.value());
  } else {
    refuse(at->second, sequence, result.status());
  }
}

}  // namespace loam::commit
