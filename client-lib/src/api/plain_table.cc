// Non-transactional tables: each call is one read or one exact-version write. point_reads.cc and plain_write.cc have
// the repetitions.
#include <utility>

#include <loam/client/plain_table.h>

#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/api/plain_table_impl.h"
#include "client-lib/src/core/describe.h"
#include "client-lib/src/driver/plain_write.h"
#include "client-lib/src/driver/point_reads.h"

namespace loam::client {
namespace {

Result<Version> write(Engine& engine, const Table& table, Key key, wire::WriteKind kind, Version expected,
                      const Record& record) {
  if (record.table().id() != table.id()) {
    return Status(StatusCode::kInvalidArgument,
                  describe(table, key) + ": the record given belongs to table " + record.table().name());
  }
  if (kind == wire::WriteKind::kInsert) {
    LOAM_RETURN_IF_ERROR(check_whole(record.table(), "an insert"));
  }
  const auto operation = plain_operation(record.table(), key, kind, expected, record.bytes());
  return in_fiber(engine, [&] { return plain_write(engine, nullptr, record.table(), operation); });
}

}  // namespace

PlainTable::PlainTable(Table table, std::shared_ptr<Impl> impl) : table_(std::move(table)), impl_(std::move(impl)) {}

Result<Record> PlainTable::get(Key key) { return std::move(get_many(std::span(&key, 1))[0]); }

Result<Record> PlainTable::get(Key key, std::initializer_list<std::string_view> fields) {
  LOAM_ASSIGN_OR_RETURN(Table projection, table_.project(fields));
  return PlainTable(std::move(projection), impl_).get(key);
}

std::vector<Result<Record>> PlainTable::get_many(std::span<const Key> keys) {
  std::vector<Result<Record>> results;
  results.reserve(keys.size());
  const Status status = in_fiber(impl_->engine, [&] {
    auto reads = std::make_shared<PointReads>(impl_->engine, impl_->engine.current_session(), table_,
                                              PointReads::SessionPolicy::kAnySession);
    reads->start(keys);
    reads->wait();
    for (size_t i = 0; i < keys.size(); ++i) results.push_back(reads->take_result(i));
    return ok_status();
  });
  if (!status.ok()) results.assign(keys.size(), Result<Record>(status));
  return results;
}

Result<Version> PlainTable::insert(Key key, const Record& record) {
  return write(impl_->engine, table_, key, wire::WriteKind::kInsert, Version(), record);
}

Result<Version> PlainTable::insert(Key key, std::initializer_list<Value> values) {
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(table_, values));
  return insert(key, record);
}

Result<Version> PlainTable::update(Key key, Version expected, const Record& record) {
  return write(impl_->engine, table_, key, wire::WriteKind::kUpdate, expected, record);
}

Result<Version> PlainTable::update(Key key, Version expected, std::initializer_list<Value> values) {
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(table_, values));
  return update(key, expected, record);
}

Result<Version> PlainTable::update(Key key, Version expected, std::initializer_list<FieldValue> values) {
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(table_, values));
  return update(key, expected, record);
}

Status PlainTable::remove(Key key, Version expected) {
  return in_fiber(impl_->engine, [&] {
    const auto operation = plain_operation(table_, key, wire::WriteKind::kRemove, expected, {});
    return plain_write(impl_->engine, nullptr, table_, operation).status();
  });
}

}  // namespace loam::client
