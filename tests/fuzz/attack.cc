// The hostile client of attack.h. RawPeer makes the frames, and mutate.h changes the bytes. This file chooses
// messages and sees that the server survives them.
#include "tests/fuzz/attack.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "tests/fuzz/mutate.h"

namespace loam::fuzz {
namespace {

using namespace loam::wire;

constexpr uint64_t kConnectionsOfSession = 50;
constexpr uint64_t kRenewNs = 500'000'000;
constexpr size_t kBatchBytes = 24 * 1024;
constexpr size_t kBatchMessages = 100;
constexpr uint64_t kRestNs = 5'000'000;  // poll interval while the server has no room
constexpr int kAttempts = 50;            // attempts to mutate an example so that it is still a message
constexpr std::byte kNoOpcode{0xff};
constexpr uint64_t kEndNs = 10'000'000'000;

template <class M>
bool decode(Bytes message, M& into) {
  ByteReader reader(message);
  Envelope envelope;
  return decode_envelope(reader, envelope).ok() && envelope.opcode == M::kOpcode && decode_body(reader, into).ok();
}

template <class M>
bool known_kinds(const M& write, WriteKind last) {
  return std::all_of(write.operations.begin(), write.operations.end(), [last](const auto& operation) {
    return operation.kind >= WriteKind::kInsert && operation.kind <= last;
  });
}

template <class M>
Buffer encoded(const M& message, uint64_t sequence) {
  Buffer bytes;
  encode_message(message, sequence, bytes);
  return bytes;
}

}  // namespace

void AttackCounts::add(const AttackCounts& other) {
  messages += other.messages;
  connections += other.connections;
  answers += other.answers;
  early_ends += other.early_ends;
  refused += other.refused;
  for (const auto& [code, count] : other.errors) errors[code] += count;
  if (violation.empty()) violation = other.violation;
}

Attacker::Attacker(const Servers& servers, Victim victim, uint64_t seed)
    : servers_(servers), victim_(victim), random_(seed) {
  ids_.incarnation = servers.incarnation;
  ids_.table = servers.table;
}

bool Attacker::open_session(RawPeer& peer) {
  if (!peer.connect(servers_.manager).ok() || !peer.greet().ok()) return false;
  sequence_ = 1;
  Buffer reply;
  OpenSessionReply opened;
  if (!peer.call(encoded(OpenSession{"attacker", {}, 0}, sequence_++), Opcode::kOpenSessionReply, reply)) return false;
  if (!decode(reply, opened)) return false;
  ids_.session = opened.session;
  ids_.manager_epoch = opened.manager_epoch;
  ids_.cluster = opened.cluster;
  session_heard_ns_ = Env::now_ns();
  connections_of_session_ = 0;
  return true;
}

bool Attacker::open(RawPeer& peer) {
  ++counts_.connections;
  if (victim_ == Victim::kManager) return open_session(peer);
  if (control_.ended() || ++connections_of_session_ > kConnectionsOfSession) {
    // Closes the session after some connections and opens another one, so that the attack covers many sessions.
    if (!control_.ended()) {
      const Buffer close[] = {encoded(CloseSession{}, 2)};
      control_.send_messages(close);
      control_.wait_for_end(kRestNs);
    }
    std::destroy_at(&control_);
    std::construct_at(&control_);
    if (!open_session(control_)) return false;
  }
  // The session of an attack on a node lives at the commit manager. It must be renewed, or the node would refuse its
  // connections as fenced.
  if (Env::now_ns() - session_heard_ns_ > kRenewNs) {
    const Buffer renew[] = {encoded(RenewSession{}, 3)};
    control_.send_messages(renew);
    session_heard_ns_ = Env::now_ns();
  }
  if (!peer.connect(servers_.node).ok() || !peer.greet().ok()) return false;
  Buffer reply;
  AttachReply attached;
  return peer.call(encoded(Attach{ids_.session, ids_.manager_epoch, ids_.incarnation}, sequence_++),
                   Opcode::kAttachReply, reply) &&
         decode(reply, attached);
}

bool Attacker::keeps_connection_open(Bytes message) const {
  Opcode opcode{};
  if (!well_formed(message, opcode)) return false;
  switch (opcode) {
    case Opcode::kWrite: {
      Write write;
      return victim_ == Victim::kNode && decode(message, write) && known_kinds(write, WriteKind::kRemove);
    }
    case Opcode::kPlainWrite: {
      PlainWrite write;
      return victim_ == Victim::kNode && decode(message, write) && known_kinds(write, WriteKind::kReplace);
    }
    case Opcode::kRead:
    case Opcode::kRevert:
    case Opcode::kPlainRead:
    case Opcode::kIntents:
    case Opcode::kScan:
    case Opcode::kScanCredit:
    case Opcode::kScanCancel:
      return victim_ == Victim::kNode;
    case Opcode::kGetOutcomes:
    case Opcode::kBegin:
    case Opcode::kComplete:
    case Opcode::kReleaseSnapshots:
    case Opcode::kGetCatalog:
    case Opcode::kFinishIndex:
    case Opcode::kDropTable:
    case Opcode::kRenameTable:
    case Opcode::kAddField:
      return victim_ == Victim::kManager;
    case Opcode::kRenewSession: {
      RenewSession renew;
      return victim_ == Victim::kManager && decode(message, renew) &&
             std::adjacent_find(renew.held.begin(), renew.held.end(), std::greater_equal<>()) == renew.held.end();
    }
    default:
      return false;  // it would end the session or the connection, or fill the catalog
  }
}

std::vector<Buffer> Attacker::examples() {
  std::vector<Buffer> result;
  const auto take = [&](Opcode, Buffer message) { result.push_back(std::move(message)); };
  if (victim_ == Victim::kManager) to_manager(ids_, take);
  if (victim_ == Victim::kNode) client_to_node(ids_, take);
  return result;
}

/// Gives the message the session's next sequence. With another sequence the server would answer from the reply
/// window, or end the session.
Buffer Attacker::numbered(Bytes message) {
  ByteReader reader(message);
  Envelope envelope;
  if (!decode_envelope(reader, envelope).ok()) return Buffer(message.begin(), message.end());
  Buffer result;
  ByteWriter writer(result);
  writer.put(envelope.opcode);
  writer.put_varint(sequence_++);
  writer.put_raw(reader.get_raw(reader.remaining()));
  return result;
}

/// Chooses all message types equally often: mutates the same example until the result is a message. Otherwise short
/// messages would dominate, because their mutations are almost always messages.
Buffer Attacker::next_non_fatal_message(const std::vector<Buffer>& examples, bool mutated) {
  for (;;) {
    const Buffer& example = examples[random_.below(examples.size())];
    if (!keeps_connection_open(example)) continue;
    for (int attempt = 0; mutated && attempt < kAttempts; ++attempt) {
      Buffer message = example;
      mutate(random_, message, examples[random_.below(examples.size())]);
      if (keeps_connection_open(message)) return message;
    }
    if (!mutated) return example;
  }
}

void Attacker::prepare(size_t messages, bool mutated) {
  const std::vector<Buffer> good = examples();
  prepared_.clear();
  while (prepared_.size() < messages) prepared_.push_back(next_non_fatal_message(good, mutated));
}

Buffer Attacker::next_message(const std::vector<Buffer>& examples, bool mutated) {
  if (prepared_.empty()) return numbered(next_non_fatal_message(examples, mutated));
  return numbered(prepared_[next_prepared_++ % prepared_.size()]);
}

bool Attacker::send_batch(RawPeer& peer, std::vector<Buffer>& batch) {
  if (batch.empty()) return true;
  const bool sent = peer.send_messages(batch);
  counts_.messages += batch.size();
  batch.clear();
  return sent;
}

void Attacker::finish(RawPeer& peer) {
  counts_.answers += peer.answers();
  for (const auto& [code, count] : peer.errors()) counts_.errors[code] += count;
  if (counts_.violation.empty()) counts_.violation = peer.violation();
}

void Attacker::connection(const Load& load, const std::atomic<bool>& stop) {
  RawPeer peer;
  if (!open(peer)) {
    ++counts_.refused;
    finish(peer);
    sleep_ns(kRestNs);
    return;
  }
  const std::vector<Buffer> good = examples();
  const uint64_t begin_ns = Env::now_ns();
  std::vector<Buffer> batch;
  size_t bytes = 0;
  // Relaxed: a late view of the flag only delays the end.
  for (uint64_t i = 0; i < load.messages && !peer.ended() && !stop.load(std::memory_order_relaxed); ++i) {
    batch.push_back(next_message(good, load.mutated));
    bytes += batch.back().size();
    if (bytes < kBatchBytes && batch.size() < kBatchMessages) continue;
    if (!send_batch(peer, batch)) break;
    bytes = 0;
    // Keeps to the rate, and reads replies meanwhile.
    const uint64_t due_ns = load.per_second == 0 ? 0 : begin_ns + i * 1'000'000'000 / load.per_second;
    for (uint64_t now_ns = Env::now_ns(); now_ns < due_ns; now_ns = Env::now_ns()) peer.receive(due_ns - now_ns);
  }
  if (!peer.ended()) send_batch(peer, batch);
  if (peer.ended()) ++counts_.early_ends;
  if (load.mutated && !peer.ended()) {
    std::vector<Buffer> last(1, good[random_.below(good.size())]);
    mutate(random_, last[0], good[random_.below(good.size())]);
    if (random_.one_in(2)) last[0] = numbered(last[0]);
    // The mutated message may be well-formed, or be answered from the reply window. A message that every server
    // refuses makes sure that the connection ends.
    last.push_back({kNoOpcode});
    send_batch(peer, last);
    if (!peer.wait_for_end(kEndNs)) counts_.violation = "a malformed message did not end its connection";
  }
  finish(peer);
}

void Attacker::send_all(std::vector<Buffer> messages) {
  size_t next = 0;
  int refused = 0;
  while (next < messages.size() && counts_.violation.empty()) {
    RawPeer peer;
    if (!open(peer)) {
      ++counts_.refused;
      finish(peer);
      if (++refused > 2'000) counts_.violation = "the server refuses all connections";
      sleep_ns(kRestNs);
      continue;
    }
    refused = 0;
    bool ending = false;
    while (next < messages.size() && !ending && !peer.ended()) {
      std::vector<Buffer> batch;
      for (; next < messages.size() && !ending && batch.size() < kBatchMessages; ++next) {
        // A message after which the server may close the connection must be the last one of its connection.
        ending = !keeps_connection_open(messages[next]);
        batch.push_back(ending ? std::move(messages[next]) : numbered(messages[next]));
      }
      send_batch(peer, batch);
    }
    if (ending) peer.wait_for_end(kRestNs);
    finish(peer);
  }
}

void Attacker::send_bytes(Bytes bytes, bool greet) {
  RawPeer peer;
  ++counts_.connections;
  const bool open = peer.connect(victim_ == Victim::kManager ? servers_.manager : servers_.node).ok() &&
                    (!greet || peer.greet().ok());
  if (!open) {
    ++counts_.refused;
    return;
  }
  ++counts_.messages;
  peer.send_raw(bytes);
  peer.finish_sending();
  if (!peer.wait_for_end(kEndNs)) counts_.violation = "the server does not close a connection whose stream has ended";
  finish(peer);
}

}  // namespace loam::fuzz
