// A shared object that contains the client library, like an extension of a database or an interpreter. load_plugin.cc
// loads it.
#include <cstdio>

#include <loam/client/client.h>

using namespace loam;
using namespace loam::client;

namespace {

Status run(const char* address, const char* name) {
  LOAM_ASSIGN_OR_RETURN(auto client, Client::connect(address));
  LOAM_ASSIGN_OR_RETURN(const Schema schema, Schema::make({{"n", FieldType::kInt64}}));
  LOAM_ASSIGN_OR_RETURN(const Table table, client->create_table(name, TableKind::kTransactional, schema));
  LOAM_RETURN_IF_ERROR(
      client->run_transaction([&](Transaction& tx) -> Status { return tx.insert(table, Key(1), {Value::int64(41)}); }));
  return client->run_transaction([&](Transaction& tx) -> Status {
    LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(table, Key(1)));
    return tx.update(table, Key(1), {Value::int64(record.int64("n") + 1)});
  });
}

}  // namespace

extern "C" int loam_plugin_run(const char* address, const char* name) {
  const Status status = run(address, name);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
