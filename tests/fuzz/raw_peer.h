// A connection to a server that can send any bytes. It makes its frames itself and checks everything that it
// receives.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/net/link/frame.h"
#include "common/wire/opcode.h"

namespace loam::fuzz {

/// True if the bytes are a well-formed message of any type; `opcode` is then its opcode.
bool well_formed(Bytes message, wire::Opcode& opcode);

/// Role: one TCP connection, from its greeting to its end, with the flow control of common/net/link/frame.h.
///
/// Owner and life: the sender of mutated messages; one object for each connection. Threads: one. A function that
/// waits returns an error after kDeadlineNs, which counts as a failure of the server. Invariant: the peer checks all
/// frames and messages of the server, and that each message is a well-formed reply or one-way message.
class RawPeer {
 public:
  /// Longest wait of a function for the server.
  static constexpr uint64_t kDeadlineNs = 10'000'000'000;

  RawPeer() = default;
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  /// Opens the TCP connection only. kUnavailable if no server listens there.
  Status connect(const std::string& address);
  /// Sends the greeting of a correct client and reads the server's greeting.
  Status greet();
  /// The server's frame limit after greet().
  size_t max_frame_bytes() const { return max_frame_bytes_; }

  /// Sends the bytes unchanged. False if the server has closed the connection.
  bool send_raw(Bytes bytes);
  /// Ends the stream towards the server.
  void finish_sending();
  /// Sends the messages in one frame; waits for a credit first.
  bool send_messages(std::span<const Buffer> messages);
  /// Sends one message and waits for the first reply with this opcode, or the first error. False if the connection
  /// ends before.
  bool call(Buffer request, wire::Opcode opcode, Buffer& answer);
  /// Processes the bytes that have arrived; waits up to `timeout_ns` for the first. False at the end of the
  /// connection.
  bool receive(uint64_t timeout_ns);
  /// Waits until the server closes the connection. False if it does not within `timeout_ns`.
  bool wait_for_end(uint64_t timeout_ns);

  bool ended() const { return fd_ < 0; }
  /// A violation of the protocol by the server; empty if there is none.
  const std::string& violation() const { return violation_; }
  uint64_t answers() const { return answers_; }
  const std::map<StatusCode, uint64_t>& errors() const { return errors_; }

 private:
  void end();
  void report_violation(const std::string& what);
  void parse();
  void process_frame(const net::FrameHeader& header, Bytes payload);
  void process_message(Bytes message);
  void return_credits();
  bool wait(short events, uint64_t timeout_ns) const;

  int fd_ = -1;
  size_t max_frame_bytes_ = 0;
  uint32_t credits_ = 0;
  uint32_t credits_to_return_ = 0;
  Buffer in_;
  Buffer fragments_;
  uint64_t answers_ = 0;
  std::map<StatusCode, uint64_t> errors_;
  std::string violation_;
  wire::Opcode expected_opcode_{};
  Buffer* expected_reply_ = nullptr;
};

}  // namespace loam::fuzz
