// A program that uses an installed Loam: creates two accounts, moves money, and sums the balances by a shared scan.
#include <cstdio>

#include <loam/client/client.h>

using namespace loam;          // Key, Value, Schema, Status, Query
using namespace loam::client;  // Client, Table, Transaction, Record

Status run(const char* address) {
  LOAM_ASSIGN_OR_RETURN(auto client, Client::connect(address));
  LOAM_ASSIGN_OR_RETURN(const Schema schema,
                        Schema::make({{"owner", FieldType::kText}, {"balance", FieldType::kInt64}}));
  LOAM_ASSIGN_OR_RETURN(const Table accounts, client->create_table("accounts", TableKind::kTransactional, schema));

  LOAM_RETURN_IF_ERROR(client->run_transaction([&](Transaction& tx) -> Status {
    LOAM_RETURN_IF_ERROR(tx.insert(accounts, Key(1), {Value::text("Ada"), Value::int64(100)}));
    return tx.insert(accounts, Key(2), {Value::text("Grace"), Value::int64(50)});
  }));
  // After a conflict with another transaction it runs again, after a random wait.
  LOAM_RETURN_IF_ERROR(client->run_transaction([&](Transaction& tx) -> Status {
    LOAM_ASSIGN_OR_RETURN(Record from, tx.get(accounts, Key(1)));
    LOAM_ASSIGN_OR_RETURN(Record to, tx.get(accounts, Key(2)));
    LOAM_RETURN_IF_ERROR(from.set("balance", Value::int64(from.int64("balance") - 30)));
    LOAM_RETURN_IF_ERROR(to.set("balance", Value::int64(to.int64("balance") + 30)));
    LOAM_RETURN_IF_ERROR(tx.update(accounts, Key(1), from));
    return tx.update(accounts, Key(2), to);
  }));

  Query sum;
  sum.aggregates = {{AggregateOp::kSum, *schema.find("balance")}};
  LOAM_ASSIGN_OR_RETURN(ScanStream stream, client->scan(accounts, sum));
  LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
  std::printf("all accounts together: %ld\n", chunks[0]->view().get<int64_t>(0, 0));
  return ok_status();
}

int main(int, char** argv) {
  const Status status = run(argv[1] != nullptr ? argv[1] : "tcp://127.0.0.1:7400");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
