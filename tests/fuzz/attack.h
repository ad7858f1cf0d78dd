// A client that means harm: sessions, and connections full of mutated messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/testing/random.h"
#include "tests/fuzz/examples.h"
#include "tests/fuzz/raw_peer.h"

namespace loam::fuzz {

struct Servers {
  std::string manager;
  std::string node;
  Incarnation incarnation;  ///< the node's
  TableId table;            ///< that the examples write to
};

enum class Victim : uint8_t { kManager, kNode };

struct AttackCounts {
  uint64_t messages = 0;  ///< sent, mutated ones alone
  uint64_t connections = 0;
  uint64_t answers = 0;
  uint64_t early_ends = 0;  ///< connections that the server closed before the message that was meant to
  uint64_t refused = 0;     ///< connections or sessions that the server had no room for
  std::map<StatusCode, uint64_t> errors;
  std::string violation;  ///< of the server; empty if there is none

  void add(const AttackCounts& other);
};

/// Role: makes connections to one server and sends what the seed says. The messages of a connection but the last are
/// well-formed, so that the server executes them; the last may be anything, and ends it.
///
/// Owner and threads: one thread. A session at the commit manager comes with it, as its messages need one.
class Attacker {
 public:
  Attacker(const Servers& servers, Victim victim, uint64_t seed);

  struct Load {
    uint64_t messages = 400;  ///< in one connection
    bool mutated = true;      ///< else the examples as they are: what a busy client sends
    uint64_t per_second = 0;  ///< messages; 0: as many as go
  };
  /// Makes so many messages now, which connection() then sends again and again: mutation takes more time than sending,
  /// and would take it from whoever is measured beside. 0: each connection makes its own.
  void prepare(size_t messages, bool mutated);
  /// One connection's life.
  void connection(const Load& load, const std::atomic<bool>& stop);
  /// These messages on as few connections as the server lets live; each that is not well-formed ends one.
  void send_all(std::vector<Buffer> messages);
  /// Bytes behind a good greeting (or, without one, instead of it); then the end of the stream.
  void send_bytes(Bytes bytes, bool greet);

  /// Of the victim, with ids that are good now.
  std::vector<Buffer> examples();
  const AttackCounts& counts() const { return counts_; }

 private:
  bool open(RawPeer& peer);
  bool open_session(RawPeer& peer);
  bool survivable(Bytes message) const;
  Buffer numbered(Bytes message);
  Buffer next_message(const std::vector<Buffer>& examples, bool mutated);
  Buffer next_survivable(const std::vector<Buffer>& examples, bool mutated);
  bool send_batch(RawPeer& peer, std::vector<Buffer>& batch);
  void finish(RawPeer& peer);

  const Servers servers_;
  const Victim victim_;
  testing::Random random_;
  ExampleIds ids_;
  RawPeer control_;  // of the node's attacker: holds its session open
  uint64_t connections_of_session_ = 0;
  uint64_t session_heard_ns_ = 0;
  uint64_t sequence_ = 1;
  std::vector<Buffer> prepared_;
  size_t next_prepared_ = 0;
  AttackCounts counts_;
};

}  // namespace loam::fuzz
