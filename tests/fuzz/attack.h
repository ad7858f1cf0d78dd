// A hostile client: sessions and connections that send mutated messages.
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

/// The servers under attack, with ids that they accept.
struct Servers {
  std::string manager;
  std::string node;
  Incarnation incarnation;  ///< incarnation of the node
  TableId table;            ///< the table that the examples write to
};

/// The server that an Attacker attacks.
enum class Victim : uint8_t { kManager, kNode };

/// Counters of one attacker.
struct AttackCounts {
  uint64_t messages = 0;  ///< messages sent, on connections with mutated messages only
  uint64_t connections = 0;
  uint64_t answers = 0;
  uint64_t early_ends = 0;  ///< connections that the server closed before the malformed message
  uint64_t refused = 0;     ///< connections or sessions that the server refused because it was full
  std::map<StatusCode, uint64_t> errors;
  std::string violation;  ///< a violation of the protocol by the server; empty if there is none

  void add(const AttackCounts& other);
};

/// Role: opens connections to one server and sends messages that the seed decides. All messages of a connection
/// except the last are well-formed, so that the server executes them. The last may be malformed, and then the server
/// closes the connection.
///
/// Owner and threads: one thread. The attacker of a commit manager opens a session there, because its messages need
/// one.
class Attacker {
 public:
  Attacker(const Servers& servers, Victim victim, uint64_t seed);

  /// The messages of a connection.
  struct Load {
    uint64_t messages = 400;  ///< messages of one connection
    bool mutated = true;      ///< false: the examples unchanged, as a busy client sends them
    uint64_t per_second = 0;  ///< messages per second; 0: no limit
  };
  /// Makes this number of messages now; connection() then sends them again and again. Mutation takes more processor
  /// time than sending, and would slow down the client that is measured at the same time. 0: each connection makes
  /// its own messages.
  void prepare(size_t messages, bool mutated);
  /// Opens a connection, sends its messages and closes it.
  void connection(const Load& load, const std::atomic<bool>& stop);
  /// Sends the messages on as few connections as the server permits: each malformed message ends one connection.
  void send_all(std::vector<Buffer> messages);
  /// Sends bytes after a valid greeting, or without a greeting in its place; then ends the stream.
  void send_bytes(Bytes bytes, bool greet);

  /// The examples for the victim, with ids that are valid now.
  std::vector<Buffer> examples();
  const AttackCounts& counts() const { return counts_; }

 private:
  bool open(RawPeer& peer);
  bool open_session(RawPeer& peer);
  bool keeps_connection_open(Bytes message) const;
  Buffer numbered(Bytes message);
  Buffer next_message(const std::vector<Buffer>& examples, bool mutated);
  Buffer next_non_fatal_message(const std::vector<Buffer>& examples, bool mutated);
  bool send_batch(RawPeer& peer, std::vector<Buffer>& batch);
  void finish(RawPeer& peer);

  const Servers servers_;
  const Victim victim_;
  testing::Random random_;
  ExampleIds ids_;
  RawPeer control_;  // attack on a node: keeps the session open at the commit manager
  uint64_t connections_of_session_ = 0;
  uint64_t session_heard_ns_ = 0;
  uint64_t sequence_ = 1;
  std::vector<Buffer> prepared_;
  size_t next_prepared_ = 0;
  AttackCounts counts_;
};

}  // namespace loam::fuzz
