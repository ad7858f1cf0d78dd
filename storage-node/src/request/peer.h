// The interfaces between request handling and its driver: the peer of a connection, and the handler of scans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/storage.h"
#include "storage-node/src/request/session_table.h"

namespace loam::storage {

/// One connection of a client, as request handling sees it.
///
/// Role: holds the session of the connection and sends replies. The network thread, the simulator and tests implement
/// it. Owner: the driver. Threads: one.
class Peer {
 public:
  explicit Peer(PeerId id) : id_(id) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Sends a message; it copies the bytes. kOverloaded: the client does not read what it is sent.
  virtual Status send(Bytes message) = 0;
  /// Closes the connection after the messages that were sent. `status` says why: the client broke the protocol, its
  /// session is over, or it cannot be answered.
  virtual void close(Status status) = 0;
  /// Returns the network address of the client, for people; empty if the driver knows none.
  virtual std::string address() const { return {}; }

  PeerId id() const { return id_; }
  /// Returns whether the client has named its session (kAttach).
  bool attached() const { return session_ != nullptr; }
  /// Returns the session; null before attach().
  const std::shared_ptr<NodeSession>& session() const { return session_; }
  void attach(std::shared_ptr<NodeSession> session) { session_ = std::move(session); }
  /// Returns whether the last kAttach was refused. A client sends requests right behind kAttach. The node drops them,
  /// and keeps the connection, so that the client learns of the refusal.
  bool attach_refused() const { return attach_refused_; }
  void set_attach_refused(bool refused) { attach_refused_ = refused; }

 private:
  const PeerId id_;
  bool attach_refused_ = false;
  std::shared_ptr<NodeSession> session_;
};

/// Answers kPing with kPong. The reply is lost if the peer does not read what it is sent. kMalformed: the body is no
/// ping.
inline Status reply_to_ping(Peer& peer, uint64_t sequence, ByteReader& body) {
  wire::Ping ping;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, ping));
  Buffer reply;
  wire::encode_message(wire::Pong{ping.payload}, sequence, reply);
  static_cast<void>(peer.send(reply));
  return ok_status();
}

/// The time after which a client may repeat a scan that a limit has refused. Every scan that runs now has ended after a
/// few passes over its pages.
inline constexpr uint64_t kScanRetryNs = 50'000'000;

/// Returns the message that ends a scan. With kOverloaded it advises the client to repeat the scan after kScanRetryNs.
inline wire::ScanDone scan_done(Status status, const wire::ScanStatistics& statistics = {}) {
  const uint64_t retry_after_ns = status == StatusCode::kOverloaded ? kScanRetryNs : 0;
  return {std::move(status), statistics, retry_after_ns, {}};
}

/// Executes the scans that the executor decodes. ScanService and tests implement it. The peer and the sequence of the
/// kScan identify a scan.
class ScanHandler {
 public:
  virtual ~ScanHandler() = default;
  /// Adds a query to the shared scan of its table. The caller holds an epoch guard, so the query works on the page list
  /// of this moment (R23, immutable page list). The executor answers an error at once with kScanDone.
  virtual Status start(Peer& peer, uint64_t sequence, wire::Scan scan) = 0;
  /// Lets the scan send `credits` more chunks.
  virtual void credit(Peer& peer, uint64_t sequence, uint32_t credits) = 0;
  /// Ends the scan; its client wants no further chunk.
  virtual void cancel(Peer& peer, uint64_t sequence) = 0;
};

}  // namespace loam::storage
