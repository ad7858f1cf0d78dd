// Who a request comes from, and where its answer goes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/storage.h"
#include "storage-node/src/request/session_table.h"

namespace loam::storage {

/// One connection, as request handling sees it. Role: keeps what belongs to the connection and takes its answers; the
/// network thread, the simulator and tests implement it. Owner: the driver. Threads: one.
class Peer {
 public:
  explicit Peer(PeerId id) : id_(id) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Takes a copy. kOverloaded when the peer does not read what it is sent.
  virtual Status send(Bytes message) = 0;
  /// The peer broke the protocol, or cannot be answered: end the connection.
  virtual void close(Status status) = 0;

  PeerId id() const { return id_; }
  bool attached() const { return session_ != nullptr; }
  const std::shared_ptr<NodeSession>& session() const { return session_; }
  void attach(std::shared_ptr<NodeSession> session) { session_ = std::move(session); }

 private:
  const PeerId id_;
  std::shared_ptr<NodeSession> session_;
};

/// Tells that somebody is there. Lost if the peer does not read what it is sent.
inline Status answer_ping(Peer& peer, uint64_t sequence, ByteReader& body) {
  wire::Ping ping;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, ping));
  Buffer reply;
  wire::encode_message(wire::Pong{ping.payload}, sequence, reply);
  static_cast<void>(peer.send(reply));
  return ok_status();
}

/// When a scan that a limit has turned away may try again: every scan that runs now has ended in a few passes over its
/// pages.
inline constexpr uint64_t kScanRetryNs = 50'000'000;

/// The end of a scan, with the advice that belongs to it.
inline wire::ScanDone scan_done(Status status, const wire::ScanStatistics& statistics = {}) {
  const uint64_t retry_after_ns = status == StatusCode::kOverloaded ? kScanRetryNs : 0;
  return {std::move(status), statistics, retry_after_ns, {}};
}

/// Where scans go. Implemented by the node's scan threads and by tests.
class ScanPort {
 public:
  virtual ~ScanPort() = default;
  /// Joins the scan of a served table. Called inside an epoch guard: the page list of this moment is the one that the
  /// query works on (R23). An error is answered at once with kScanDone.
  virtual Status start(Peer& peer, uint64_t sequence, wire::Scan scan) = 0;
  virtual void credit(Peer& peer, uint64_t sequence, uint32_t credits) = 0;
  virtual void cancel(Peer& peer, uint64_t sequence) = 0;
};

}  // namespace loam::storage
