// A connection to a server that may send anything: frames are made here, byte by byte, and what comes back is checked.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/net/frame.h"
#include "common/wire/opcode.h"

namespace loam::fuzz {

/// True if the bytes are a well-formed message of any type.
bool well_formed(Bytes message, wire::Opcode& opcode);

/// Role: one TCP connection, from its greeting to its end, with the flow control of common/net/frame.h.
///
/// Owner and life: the sender of mutations; one connection an object. Threads: one. Every function that waits gives up
/// at kDeadlineNs, which is a failure of the server. Invariant: whatever the server sends is checked: frames, messages,
/// and that each message is a well-formed answer or push.
class RawPeer {
 public:
  static constexpr uint64_t kDeadlineNs = 10'000'000'000;

  RawPeer() = default;
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  /// TCP alone. kUnavailable if nobody listens.
  Status connect(const std::string& address);
  /// The greeting of a good client, and the answer to it.
  Status greet();
  /// The server's frame limit after greet().
  size_t max_frame_bytes() const { return max_frame_bytes_; }

  /// Bytes as they are. False if the server has closed the connection.
  bool send_raw(Bytes bytes);
  /// Nothing follows: the server sees the end of the stream.
  void finish_sending();
  /// One frame of messages; waits for a credit.
  bool send_messages(std::span<const Buffer> messages);
  /// One message, and the first answer with this opcode (or the first error). False if the connection ends before.
  bool ask(Buffer request, wire::Opcode opcode, Buffer& answer);
  /// Takes what has come; waits up to `timeout_ns` for the first of it. False at the end of the connection.
  bool take(uint64_t timeout_ns);
  /// Waits for the server to close the connection. False if it has not in `timeout_ns`.
  bool wait_for_end(uint64_t timeout_ns);

  bool ended() const { return fd_ < 0; }
  /// Empty, or what the server did that it may not do.
  const std::string& violation() const { return violation_; }
  uint64_t answers() const { return answers_; }
  const std::map<StatusCode, uint64_t>& errors() const { return errors_; }

 private:
  void end();
  void breach(const std::string& what);
  void parse();
  void take_frame(const net::FrameHeader& header, Bytes payload);
  void take_message(Bytes message);
  void return_credits();
  bool wait(short events, uint64_t timeout_ns) const;

  int fd_ = -1;
  size_t max_frame_bytes_ = 0;
  uint32_t credits_ = 0;
  uint32_t owed_ = 0;
  Buffer in_;
  Buffer fragments_;
  uint64_t answers_ = 0;
  std::map<StatusCode, uint64_t> errors_;
  std::string violation_;
  wire::Opcode wanted_{};
  Buffer* wanted_into_ = nullptr;
};

}  // namespace loam::fuzz
