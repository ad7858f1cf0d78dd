// Fuzz target: messages between clients and storage nodes.
#include "common/wire/storage.h"
#include "tests/fuzz/message_check.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  using namespace loam::wire;
  ByteReader reader(fuzz::input(data, size));
  Envelope envelope;
  if (!decode_envelope(reader, envelope).ok()) return -1;
  fuzz::check_one_of<Error, Ping, Pong, Attach, AttachReply, Read, ReadReply, Write, WriteReply, Revert, RevertReply,
                     PlainRead, PlainReadReply, PlainWrite, PlainWriteReply, Intents, IntentsReply, Scan, ScanDone,
                     ScanChunk, ScanCredit, ScanCancel, ScanProgress>(envelope, reader);
  return 0;
}
