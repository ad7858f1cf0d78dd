// The codec of the state and the check of a decoded state. state_file.cc reads and writes the bytes. The core and
// CatalogStore fill the fields and use them.
#include "commit-manager/src/catalog/durable_state.h"

#include <algorithm>
#include <set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/wire/message.h"
#include "common/wire/system_tables.h"

namespace loam::commit {

namespace {

constexpr std::string_view kMagic = "LOAMCMST";
constexpr size_t kHeaderBytes = 8 + 4 + 8 + 8;

Status damaged(const std::string& why) {
  return {StatusCode::kMalformed, "the commit manager's state " + why + "; restore it from a copy"};
}

/// Checks the properties that the rest of the program relies on. The checksum detects damage on the disk. This check
/// detects a state that a faulty program has written, before an id is given out twice or a number is used as an index
/// outside of its array.
Status check(const DurableState& state) {
  if (state.epoch == 0) return damaged("has no epoch");
  if (state.format > kOldestStateFormat &&
      (!state.history.validate().ok() || state.history.epochs.back().number != state.epoch)) {
    return damaged("has a history of epochs that contradicts itself");
  }
  if (state.next_table < wire::kFirstUserTableId)
    return damaged("has a next table id within those of Loam's own tables");
  // Tables: names and ids are unique, and next_table is above all ids, so that no later table gets one of them.
  std::set<std::string_view> names;
  std::set<TableId> ids;
  for (const wire::TableInfo& table : state.tables) {
    const bool known_kind = table.kind == TableKind::kTransactional || table.kind == TableKind::kNonTransactional;
    if (table.name.empty() || table.name.size() > wire::kMaxTableNameBytes || wire::is_system_name(table.name) ||
        !known_kind || table.schema.size() == 0) {
      return damaged("has a table with an impossible definition, '" + table.name.substr(0, 64) + "'");
    }
    if (table.id < wire::kFirstUserTableId || table.id >= state.next_table || !ids.insert(table.id).second ||
        !names.insert(table.name).second) {
      return damaged("has table '" + table.name + "' twice, or under a number that was never given out");
    }
  }
  // Indexes: each has its table and fields, because their numbers are used without a further check.
  for (const wire::TableInfo& table : state.tables) {
    if (!table.index) continue;
    const auto of = std::ranges::find(state.tables, table.index.table, &wire::TableInfo::id);
    if (of == state.tables.end() || of->kind != TableKind::kTransactional) {
      return damaged("has an index without a table, '" + table.name + "'");
    }
    for (const wire::IndexPart& part : table.index.parts) {
      if (part.field >= of->schema.size())
        return damaged("has an index on a field that does not exist, '" + table.name + "'");
    }
  }
  // Storage nodes: node n is nodes[n - 1]. An address or incarnation that two nodes share would let one process
  // register as either of them.
  std::set<std::string_view> addresses;
  std::set<Incarnation> incarnations;
  for (size_t i = 0; i < state.nodes.size(); ++i) {
    const DurableNode& node = state.nodes[i];
    if (node.id.value != i + 1 || node.address.empty() || !addresses.insert(node.address).second ||
        node.incarnation.value == 0 || node.incarnation > state.last_incarnation ||
        !incarnations.insert(node.incarnation).second) {
      return damaged("has storage nodes that contradict each other, at number " + std::to_string(i + 1));
    }
  }
  // Shards: all of them have an owner, or none has, because the map is dealt out as a whole.
  if (state.shards.owners.size() != wire::kVirtualShards) return damaged("has a shard map of another size");
  for (const NodeId owner : state.shards.owners) {
    if (owner.value > state.nodes.size() || (owner.value != 0) != state.shards_assigned) {
      return damaged("has a shard map that names storage nodes which do not exist");
    }
  }
  return ok_status();
}

}  // namespace

void encode_state(const DurableState& state, Buffer& out) {
  // The body comes first, because the head contains its size and its checksum.
  Buffer body;
  ByteWriter body_writer(body);
  wire::Encoder encoder(body_writer);
  encoder(state);
  out.clear();
  out.reserve(kHeaderBytes + body.size());
  ByteWriter writer(out);
  writer.put_raw(as_bytes(kMagic));
  writer.put(state.format);
  writer.put(uint64_t{body.size()});
  writer.put(static_cast<uint64_t>(XXH3_64bits(body.data(), body.size())));
  writer.put_raw(body);
}

Result<DurableState> decode_state(Bytes bytes) {
  ByteReader reader(bytes);
  const Bytes magic = reader.get_raw(kMagic.size());
  const auto format = reader.get<uint32_t>();
  const auto size = reader.get<uint64_t>();
  const auto sum = reader.get<uint64_t>();
  if (reader.failed()) {
    return damaged("is cut short: " + std::to_string(bytes.size()) + " bytes, the head alone has " +
                   std::to_string(kHeaderBytes));
  }
  if (!equal(magic, as_bytes(kMagic))) return damaged("does not begin with " + std::string(kMagic));
  // The format is checked before everything that depends on it, so that the error for a state of another version names
  // the version. It would otherwise report damage.
  if (format < kOldestStateFormat || format > kStateFormat) {
    return Status(StatusCode::kUnsupportedVersion,
                  "the commit manager's state has format " + std::to_string(format) +
                      ", and this program reads format " + std::to_string(kOldestStateFormat) + " to " +
                      std::to_string(kStateFormat) + ": run the version of Loam that wrote it");
  }
  if (size != reader.remaining()) {
    return damaged("is cut short or too long: its body has " + std::to_string(reader.remaining()) + " bytes, not " +
                   std::to_string(size));
  }
  const Bytes body = reader.get_raw(reader.remaining());
  if (XXH3_64bits(body.data(), body.size()) != sum) return damaged("is damaged: its checksum is wrong");
  ByteReader body_reader(body);
  DurableState state;
  state.format = format;
  wire::Decoder decoder(body_reader);
  decoder(state);
  LOAM_RETURN_IF_ERROR(body_reader.finish("the commit manager's state"));
  LOAM_RETURN_IF_ERROR(check(state));
  return state;
}

}  // namespace loam::commit
