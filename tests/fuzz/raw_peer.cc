// The connection of raw_peer.h. It uses the frame formats of common/net/link, but none of the code of the transport,
// which would refuse to send malformed bytes.
#include "tests/fuzz/raw_peer.h"

#include <array>
#include <cerrno>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/env.h"
#include "common/net/transport/address.h"
#include "common/net/transport/transport.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::fuzz {
namespace {

using namespace loam::wire;

constexpr uint32_t kWindow = 64;
constexpr size_t kReadBytes = 256 * 1024;

/// Tries one opcode after another. The body must fill the rest of the message exactly.
template <class... Messages>
bool decodes(const Envelope& envelope, const ByteReader& body) {
  const auto fits = [&body]<class M>(M message) {
    ByteReader reader = body;
    return decode_body(reader, message).ok();
  };
  return ((envelope.opcode == Messages::kOpcode && fits(Messages())) || ...);
}

/// A reply has an odd opcode.
bool is_answer(Opcode opcode) { return opcode == Opcode::kError || static_cast<int>(opcode) % 2 == 1; }

Buffer greeting() {
  net::Greeting greeting;
  greeting.protocol_version = net::kFramingVersion;
  greeting.max_frame_bytes = net::kMaxFrameBytes;
  greeting.window_frames = kWindow;
  greeting.max_message_bytes = net::kMaxMessageBytes;
  Buffer bytes(sizeof(greeting));
  net::write_as(bytes.data(), greeting);
  return bytes;
}

}  // namespace

bool well_formed(Bytes message, Opcode& opcode) {
  ByteReader reader(message);
  Envelope envelope;
  if (!decode_envelope(reader, envelope).ok()) return false;
  opcode = envelope.opcode;
  return decodes<Error, Ping, Pong, Attach, AttachReply, Read, ReadReply, Write, WriteReply, Revert, RevertReply,
                 PlainRead, PlainReadReply, PlainWrite, PlainWriteReply, Intents, IntentsReply, Scan, ScanDone,
                 ScanChunk, ScanCredit, ScanCancel, ScanProgress, OpenSession, OpenSessionReply, RenewSession,
                 RenewSessionReply, GetOutcomes, GetOutcomesReply, Begin, BeginReply, Complete, CompleteReply,
                 ReleaseSnapshots, GetCatalog, GetCatalogReply, CreateTable, CreateTableReply, FinishIndex,
                 FinishIndexReply, DropTable, DropTableReply, RenameTable, RenameTableReply, AddField, AddFieldReply,
                 CloseSession, CloseSessionReply, RegisterNode, RegisterNodeReply, RenewNode, RenewNodeReply, Fence,
                 FenceReply, AcceptLoss, AcceptLossReply, Publish, PublishReply, InstallTable, InstallTableReply,
                 RemoveTable, RemoveTableReply>(envelope, reader);
}

RawPeer::~RawPeer() { end(); }

void RawPeer::end() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawPeer::report_violation(const std::string& what) {
  if (violation_.empty()) violation_ = what;
  end();
}

Status RawPeer::connect(const std::string& text) {
  LOAM_ASSIGN_OR_RETURN(const net::Address address, net::Address::parse(text));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  if (::inet_pton(AF_INET, address.host.c_str(), &to.sin_addr) != 1) {
    return {StatusCode::kInvalidArgument, text + " is not an IPv4 address"};
  }
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    end();
    return {StatusCode::kUnavailable, "cannot connect to " + text + ", errno " + std::to_string(errno)};
  }
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Closes with a reset, so that the port is free at once although thousands of connections use it.
  const linger reset{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  return ok_status();
}

Status RawPeer::greet() {
  if (!send_raw(greeting())) return {StatusCode::kUnavailable, "the server closed the connection during the greeting"};
  Buffer reply(sizeof(net::Greeting));
  for (size_t got = 0; got < reply.size();) {
    if (!wait(POLLIN, kDeadlineNs)) return {StatusCode::kTimeout, "the server did not answer a greeting"};
    const ssize_t size = ::recv(fd_, reply.data() + got, reply.size() - got, 0);
    if (size <= 0) {
      end();
      return {StatusCode::kUnavailable, "the server closed the connection during the greeting"};
    }
    got += static_cast<size_t>(size);
  }
  const auto welcome = net::read_as<net::Greeting>(reply.data());
  LOAM_RETURN_IF_ERROR(net::check_greeting(welcome, net::GreetingKind::kWelcome, net::kFramingVersion));
  max_frame_bytes_ = welcome.max_frame_bytes;
  credits_ = welcome.window_frames;
  return ok_status();
}

bool RawPeer::wait(short events, uint64_t timeout_ns) const {
  pollfd entry{fd_, events, 0};
  return ::poll(&entry, 1, static_cast<int>(timeout_ns / 1'000'000)) > 0;
}

bool RawPeer::send_raw(Bytes bytes) {
  const uint64_t deadline_ns = Env::now_ns() + kDeadlineNs;
  while (!bytes.empty() && !ended()) {
    const ssize_t size = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) {
      bytes = bytes.subspan(static_cast<size_t>(size));
      continue;
    }
    if (size < 0 && errno != EAGAIN && errno != EINTR) {
      receive(0);  // reads the reason that the server gave
      end();
      return false;
    }
    if (max_frame_bytes_ != 0) receive(0);  // the server may wait until its replies are read
    if (!ended()) wait(POLLIN | POLLOUT, 10'000'000);
    if (Env::now_ns() > deadline_ns) report_violation("the server reads no bytes");
  }
  return !ended();
}

bool RawPeer::send_messages(std::span<const Buffer> messages) {
  const uint64_t deadline_ns = Env::now_ns() + kDeadlineNs;
  // Each frame needs a credit. A correct server returns credits as it reads frames.
  while (credits_ == 0) {
    if (!receive(kDeadlineNs)) return false;
    if (Env::now_ns() > deadline_ns) report_violation("the server returns no credits");
  }
  Buffer frame(sizeof(net::FrameHeader));
  for (const Buffer& message : messages) {
    const size_t at = frame.size();
    frame.resize(at + net::message_footprint(message.size()));
    net::write_as(frame.data() + at, net::MessageHeader{static_cast<uint32_t>(message.size()), 0});
    std::memcpy(frame.data() + at + sizeof(net::MessageHeader), message.data(), message.size());
  }
  net::FrameHeader header;
  header.size_bytes = static_cast<uint32_t>(frame.size());
  header.a = static_cast<uint32_t>(messages.size());
  net::write_as(frame.data(), header);
  --credits_;
  return send_raw(frame) && receive(0);
}

void RawPeer::finish_sending() {
  if (!ended()) ::shutdown(fd_, SHUT_WR);
}

bool RawPeer::call(Buffer request, Opcode opcode, Buffer& answer) {
  answer.clear();
  expected_opcode_ = opcode;
  expected_reply_ = &answer;
  const uint64_t deadline_ns = Env::now_ns() + kDeadlineNs;
  const std::array messages = {std::move(request)};
  // process_message() fills `answer` when the expected reply or an error arrives.
  bool open = send_messages(messages);
  while (open && answer.empty() && Env::now_ns() < deadline_ns) open = receive(kDeadlineNs);
  expected_reply_ = nullptr;
  return !answer.empty();
}

bool RawPeer::receive(uint64_t timeout_ns) {
  if (ended()) return false;
  if (timeout_ns != 0 && !wait(POLLIN, timeout_ns)) return true;
  std::array<std::byte, kReadBytes> bytes;
  for (;;) {
    const ssize_t size = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (size <= 0) {
      end();
      break;
    }
    in_.insert(in_.end(), bytes.begin(), bytes.begin() + size);
    if (static_cast<size_t>(size) < bytes.size()) break;
  }
  if (max_frame_bytes_ != 0) parse();
  return !ended();
}

bool RawPeer::wait_for_end(uint64_t timeout_ns) {
  const uint64_t deadline_ns = Env::now_ns() + timeout_ns;
  for (uint64_t now_ns = Env::now_ns(); !ended() && now_ns < deadline_ns; now_ns = Env::now_ns()) {
    receive(deadline_ns - now_ns);
  }
  return ended();
}

void RawPeer::parse() {
  size_t at = 0;
  while (in_.size() - at >= sizeof(net::FrameHeader)) {
    const auto header = net::read_as<net::FrameHeader>(in_.data() + at);
    if (const Status status = net::check_header(header, net::kMaxFrameBytes); !status.ok()) {
      report_violation("the server sent " + std::string(status.message()));
      return;
    }
    if (in_.size() - at < header.size_bytes) break;
    process_frame(header, Bytes(in_).subspan(at + sizeof(header), header.size_bytes - sizeof(header)));
    at += header.size_bytes;
  }
  // An incomplete frame stays until the rest of it arrives.
  in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(at));
  if (!ended() && credits_to_return_ >= kWindow / 2) return_credits();
}

void RawPeer::return_credits() {
  Buffer frame(sizeof(net::FrameHeader));
  net::FrameHeader header;
  header.size_bytes = sizeof(header);
  header.type = net::FrameType::kCredits;
  header.credits = static_cast<uint16_t>(std::exchange(credits_to_return_, 0));
  net::write_as(frame.data(), header);
  if (::send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL) < 0) end();
}

void RawPeer::process_frame(const net::FrameHeader& header, Bytes payload) {
  credits_ += header.credits;
  if (net::takes_credit(header.type)) ++credits_to_return_;
  if (header.type == net::FrameType::kGoodbye) {
    ++errors_[net::parse_goodbye(header, payload).code()];
    end();
    return;
  }
  // The fragments of one message arrive in order and fill it.
  if (header.type == net::FrameType::kFragment) {
    net::Part part;
    if (!net::parse_part(header, payload, part).ok()) return report_violation("the server sent a malformed fragment");
    fragments_.insert(fragments_.end(), part.bytes.begin(), part.bytes.end());
    if (fragments_.size() >= part.head.whole) process_message(std::exchange(fragments_, Buffer()));
    return;
  }
  if (header.type != net::FrameType::kMessages) return;
  while (payload.size() >= sizeof(net::MessageHeader)) {
    const auto message = net::read_as<net::MessageHeader>(payload.data());
    payload = payload.subspan(sizeof(message));
    const size_t padded = round_up(size_t{message.size_bytes}, net::kFrameAlignment);
    if (padded > payload.size()) return report_violation("the server sent a message that exceeds its frame");
    process_message(payload.first(message.size_bytes));
    payload = payload.subspan(padded);
  }
}

void RawPeer::process_message(Bytes message) {
  ++answers_;
  Opcode opcode{};
  if (!well_formed(message, opcode)) return report_violation("the server sent a malformed message");
  if (!is_answer(opcode) && !wire::more_follow(opcode) && opcode != Opcode::kPublish) {
    return report_violation("the server sent " + std::string(to_string(opcode)) + " to a client");
  }
  if (expected_reply_ != nullptr && (opcode == expected_opcode_ || opcode == Opcode::kError)) {
    expected_reply_->assign(message.begin(), message.end());
  }
  if (opcode != Opcode::kError) return;
  ByteReader reader(message);
  Envelope envelope;
  Error error;
  if (decode_envelope(reader, envelope).ok() && decode_body(reader, error).ok()) ++errors_[error.status.code()];
}

}  // namespace loam::fuzz
