// Fuzz target: messages of the commit manager with clients and storage nodes; the catalog, publications and fences in
// them.
#include "common/wire/manager.h"
#include "tests/fuzz/message_check.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  using namespace loam::wire;
  ByteReader reader(fuzz::input(data, size));
  Envelope envelope;
  if (!decode_envelope(reader, envelope).ok()) return -1;
  fuzz::check_one_of<OpenSession, OpenSessionReply, RenewSession, RenewSessionReply, GetOutcomes, GetOutcomesReply,
                     Begin, BeginReply, Complete, CompleteReply, ReleaseSnapshots, GetCatalog, GetCatalogReply,
                     CreateTable, CreateTableReply, FinishIndex, FinishIndexReply, DropTable, DropTableReply,
                     RenameTable, RenameTableReply, AddField, AddFieldReply, CloseSession, CloseSessionReply,
                     RegisterNode, RegisterNodeReply, RenewNode, RenewNodeReply, Fence, FenceReply, AcceptLoss,
                     AcceptLossReply, Publish, PublishReply, InstallTable, InstallTableReply, RemoveTable,
                     RemoveTableReply>(envelope, reader);
  if (envelope.opcode == Opcode::kFence) {
    Fence fence;
    if (decode_body(reader, fence).ok() && fence.fences.check().ok()) {
      for (const SessionId session : fence.fences.alive) {
        fuzz::require(!fence.fences.fenced(session), "a session that is alive is not fenced");
      }
    }
  }
  return 0;
}
