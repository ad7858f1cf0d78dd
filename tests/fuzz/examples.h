// One well-formed example of every message, and of everything else that has a fuzz target: where mutation begins.
#pragma once

#include <functional>
#include <string>

#include "common/base/bytes.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::fuzz {

/// The ids that examples carry. A live cluster refuses most messages that name others.
struct ExampleIds {
  SessionId session{4};
  uint64_t manager_epoch = 2;
  Incarnation incarnation{6};
  wire::ClusterId cluster{7, 8};
  TableId table{1024};
  TransactionId transaction{1011};
};

using TakeExample = std::function<void(wire::Opcode opcode, Buffer message)>;

/// Messages that a storage node receives from clients.
void client_to_node(const ExampleIds& ids, const TakeExample& take);
/// Messages that a commit manager receives from clients and from storage nodes.
void to_manager(const ExampleIds& ids, const TakeExample& take);
/// What servers answer and push.
void from_servers(const ExampleIds& ids, const TakeExample& take);

Snapshot example_snapshot();
Schema example_schema();
Query example_query();
wire::Catalog example_catalog();
Publication example_publication();
/// Of example_schema().
Buffer example_row();

}  // namespace loam::fuzz
