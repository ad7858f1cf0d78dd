// One well-formed example of every message and of every other input of a fuzz target: mutations begin with these.
#pragma once

#include <functional>
#include <string>

#include "common/base/bytes.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::fuzz {

/// The ids in the examples. A live cluster refuses most messages with other ids.
struct ExampleIds {
  SessionId session{4};
  uint64_t manager_epoch = 2;
  Incarnation incarnation{6};
  wire::ClusterId cluster{7, 8};
  TableId table{1024};
  TransactionId transaction{1011};
};

/// Receives one example.
using ExampleCallback = std::function<void(wire::Opcode opcode, Buffer message)>;

/// Messages that a storage node receives from clients.
void client_to_node(const ExampleIds& ids, const ExampleCallback& take);
/// Messages that a commit manager receives from clients and from storage nodes.
void to_manager(const ExampleIds& ids, const ExampleCallback& take);
/// Messages that servers send: replies and one-way messages.
void from_servers(const ExampleIds& ids, const ExampleCallback& take);

Snapshot example_snapshot();
Schema example_schema();
Query example_query();
wire::Catalog example_catalog();
Publication example_publication();
/// A row of example_schema().
Buffer example_row();

}  // namespace loam::fuzz
