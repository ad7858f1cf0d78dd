// A program that uses an installed Loam: one large commit with an index, while another thread begins transactions.
//
// The commit changes more entries of the index than the client has fibers. link_test.py compiles the program at every
// optimisation level and runs it.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include <loam/client/client.h>

using namespace loam;
using namespace loam::client;

namespace {

constexpr int64_t kRows = 6'000;  // more than ClientOptions::max_fibers and the library's own fibers
constexpr int64_t kPrime = 6'007;

int64_t value_of(int64_t row) { return row * 1'009 % kPrime; }

/// Begins transactions and drops them unfinished until `stop`; `worst` is the last refusal. A large commit takes no
/// fiber that a begin needs.
void begin_beside(Client& client, const std::atomic<bool>& stop, Status& worst) {
  while (!stop.load(std::memory_order_relaxed)) {
    const auto begun = client.begin();
    if (!begun.ok()) worst = begun.status();
    std::this_thread::yield();
  }
}

Status check(Client& client, const Table& table, const Index& index) {
  Query query;
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 0}};
  LOAM_ASSIGN_OR_RETURN(ScanStream stream, client.scan(table, query));
  LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
  int64_t sum = 0;
  for (int64_t row = 0; row < kRows; ++row) sum += value_of(row);
  const ChunkView& view = chunks[0]->view();
  if (view.get<int64_t>(0, 0) != kRows || view.get<int64_t>(1, 0) != sum) {
    return {StatusCode::kInternal, "a scan finds other rows than were inserted"};
  }
  return client.run_transaction([&](Transaction& tx) -> Status {
    for (int64_t row = 0; row < kRows; row += 97) {
      LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(index, {Value::int64(value_of(row))}));
      if (record.key() != Key(static_cast<uint64_t>(row))) {
        return {StatusCode::kInternal, "the index leads to another record"};
      }
    }
    return ok_status();
  });
}

Status run(const char* address, const char* name) {
  LOAM_ASSIGN_OR_RETURN(auto client, Client::connect(address));
  LOAM_ASSIGN_OR_RETURN(const Schema schema, Schema::make({{"n", FieldType::kInt64}}));
  LOAM_ASSIGN_OR_RETURN(const Table table, client->create_table(name, TableKind::kTransactional, schema));
  LOAM_ASSIGN_OR_RETURN(const Index index,
                        client->create_index(std::string(name) + "_n", table, {{"n", false}}, {.unique = true}));
  std::atomic<bool> stop{false};
  Status beside;
  std::thread other([&] { begin_beside(*client, stop, beside); });
  const Status committed = client->run_transaction([&](Transaction& tx) -> Status {
    for (int64_t row = 0; row < kRows; ++row) {
      LOAM_RETURN_IF_ERROR(tx.insert(table, Key(static_cast<uint64_t>(row)), {Value::int64(value_of(row))}));
    }
    return ok_status();
  });
  stop.store(true, std::memory_order_relaxed);
  other.join();
  LOAM_RETURN_IF_ERROR(committed);
  LOAM_RETURN_IF_ERROR(beside);
  return check(*client, table, index);
}

}  // namespace

int main(int, char** argv) {
  const Status status = run(argv[1], argv[2]);
  if (status.ok()) std::puts("right");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
