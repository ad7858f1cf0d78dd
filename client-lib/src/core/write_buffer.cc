// Merges of a transaction's writes: rows of whole tables and of projections. write_buffer.h has the table of all
// cases.
#include "client-lib/src/core/write_buffer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace loam::client {
namespace {

/// Maps the field numbers of the whole table to the positions of the fields in the rows of a handle.
class FieldPositions {
 public:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  explicit FieldPositions(const Table& table) : places_(table.whole().schema().size(), kNone) {
    for (size_t i = 0; i < table.schema().size(); ++i) places_[number(table, i)] = i;
  }
  /// kNone: the handle does not have the field.
  size_t operator[](uint16_t number) const { return number < places_.size() ? places_[number] : kNone; }

  /// The whole table's number of a handle's field.
  static uint16_t number(const Table& table, size_t field) {
    return table.projected() ? table.projection()[field] : static_cast<uint16_t>(field);
  }

 private:
  std::vector<size_t> places_;
};

struct Part {
  const Table& table;
  Bytes row;
};

/// Whether the write makes a record of which nothing existed before: the fields that its row does not have are NULL.
bool makes_record(wire::WriteKind kind) {
  return kind == wire::WriteKind::kInsert || kind == wire::WriteKind::kReplace;
}

/// The fields of `older` as a projection of `newer`, a whole handle of the same table that has more added fields. The
/// projection and `older` give their rows the same layout.
Result<Table> as_projection(const Table& older, const Table& newer) {
  std::vector<uint16_t> numbers;
  numbers.reserve(older.schema().size());
  for (size_t i = 0; i < older.schema().size(); ++i) numbers.push_back(FieldPositions::number(older, i));
  return newer.project(numbers);
}

/// Makes a row of `target`. Each field comes from `first` if that has it, otherwise from `second`. A field that neither
/// has was added to the table, and is NULL.
Result<Buffer> combine(const Table& target, const Part& first, const Part& second) {
  const RowView front(first.table.schema(), first.row), back(second.table.schema(), second.row);
  const FieldPositions in_front(first.table), in_back(second.table);
  RowBuilder builder(target.schema());
  for (size_t i = 0; i < target.schema().size(); ++i) {
    const uint16_t number = FieldPositions::number(target, i);
    const size_t at = in_front[number];
    if (at != FieldPositions::kNone) {
      LOAM_RETURN_IF_ERROR(builder.set(i, front.value(at)));
    } else if (in_back[number] != FieldPositions::kNone) {
      LOAM_RETURN_IF_ERROR(builder.set(i, back.value(in_back[number])));
    } else {
      LOAM_RETURN_IF_ERROR(builder.set_null(i));
    }
  }
  LOAM_ASSIGN_OR_RETURN(const Bytes row, builder.finish());
  return Buffer(row.begin(), row.end());
}

}  // namespace

Status WriteBuffer::check_room(const Table& table, Key key, size_t replaced, size_t added) const {
  if (bytes() - replaced + added <= max_bytes_) return ok_status();
  return {StatusCode::kInvalidArgument,
          describe(table, key) + ": the transaction writes more than " + std::to_string(max_bytes_) +
              " bytes (rows, and " + std::to_string(kTransactionBytesPerRecord) +
              " for each record); split it into several, or raise ClientOptions::max_transaction_bytes"};
}

Status WriteBuffer::put(wire::WriteKind kind, const Table& table, Key key, Bytes row) {
  using wire::WriteKind;
  if (kind == WriteKind::kUpdate && table.projected()) kind = WriteKind::kUpdateFields;
  const wire::RecordId id{table.id(), key};
  // Case 1: the first write of the record. It is kept as it is.
  const auto found = writes_.find(id);
  if (found == writes_.end()) {
    LOAM_RETURN_IF_ERROR(check_room(table, key, 0, row.size() + kTransactionBytesPerRecord));
    writes_.emplace(id, Write{kind, Buffer(row.begin(), row.end()), table});
    row_bytes_ += row.size();
    return ok_status();
  }
  // Case 2: the buffered write shows whether the record exists for this transaction, so the buffer refuses a second
  // insert and a change after a remove.
  Write& own = found->second;
  if (kind == WriteKind::kInsert && own.kind != WriteKind::kRemove) {
    return {StatusCode::kAlreadyExists, describe(table, key) + " was written by this transaction already"};
  }
  if (kind != WriteKind::kInsert && own.kind == WriteKind::kRemove) {
    return {StatusCode::kNotFound, describe(table, key) + " was removed by this transaction"};
  }
  // Case 3: one write replaces both. Until the bound is checked, the buffered write stays as it is.
  Write made{kind, Buffer(row.begin(), row.end()), table};
  if (kind == WriteKind::kUpdate && table.schema().size() < own.table.whole().schema().size()) {
    // The handle is older than that of the buffered write, whose other fields stay.
    LOAM_ASSIGN_OR_RETURN(made.table, as_projection(table, own.table.whole()));
    kind = WriteKind::kUpdateFields;
  }
  if (kind == WriteKind::kUpdateFields) {
    auto merged = merge(own, made.table, row);
    if (!merged.ok()) return {merged.code(), describe(table, key) + ", " + std::string(merged.status().message())};
    made = std::move(merged).value();
  }
  LOAM_RETURN_IF_ERROR(check_room(table, key, own.row.size(), made.row.size()));
  row_bytes_ = row_bytes_ - own.row.size() + made.row.size();
  // The record exists only in this buffer, so nothing is sent for it.
  if (kind == WriteKind::kRemove && own.kind == WriteKind::kInsert) {
    writes_.erase(found);
    return ok_status();
  }
  if (kind == WriteKind::kInsert)
    made.kind = WriteKind::kReplace;  // after an own remove: the record exists in the snapshot
  if (kind == WriteKind::kUpdate && makes_record(own.kind)) made.kind = own.kind;
  own = std::move(made);
  return ok_status();
}

// The merged write has the fields of both, because the buffer has one write for each record. An insert or
// update of the whole row stays one: the fields replace values in it.
Result<WriteBuffer::Write> WriteBuffer::merge(const Write& own, const Table& table, Bytes row) {
  // Handles of different ages: both writes become writes through the newer one.
  const size_t own_fields = own.table.whole().schema().size(), fields = table.whole().schema().size();
  if (own_fields > fields) {
    LOAM_ASSIGN_OR_RETURN(const Table newer, as_projection(table, own.table.whole()));
    return merge(own, newer, row);
  }
  if (own_fields < fields && !makes_record(own.kind)) {
    LOAM_ASSIGN_OR_RETURN(Table newer, as_projection(own.table, table.whole()));
    return merge({wire::WriteKind::kUpdateFields, own.row, std::move(newer)}, table, row);
  }
  Write merged{own.kind, {}, makes_record(own.kind) ? table.whole() : own.table};
  if (own.table.projected()) {
    const FieldPositions owned(own.table);
    std::vector<uint16_t> numbers;
    numbers.reserve(own.table.schema().size() + table.schema().size());
    for (size_t i = 0; i < own.table.schema().size(); ++i) numbers.push_back(own.table.projection()[i]);
    for (size_t i = 0; i < table.schema().size(); ++i) {
      const uint16_t number = table.projection()[i];
      if (owned[number] == FieldPositions::kNone) numbers.push_back(number);
    }
    LOAM_ASSIGN_OR_RETURN(merged.table, table.whole().project(numbers));
  }
  LOAM_ASSIGN_OR_RETURN(merged.row, combine(merged.table, {table, row}, {own.table, own.row}));
  return merged;
}

Status WriteBuffer::touch(const Table& table, Key key, Bytes row) {
  if (writes_.contains({table.id(), key})) return ok_status();
  return update(table, key, row);
}

const WriteBuffer::Write* WriteBuffer::find(TableId table, Key key) const {
  const auto found = writes_.find({table, key});
  return found == writes_.end() ? nullptr : &found->second;
}

bool WriteBuffer::covers(const Write& own, const Table& table) {
  const bool whole = !own.table.projected() && own.table.schema().size() >= table.whole().schema().size();
  if (whole || makes_record(own.kind)) return true;
  const FieldPositions owned(own.table);
  for (size_t i = 0; i < table.schema().size(); ++i) {
    if (owned[FieldPositions::number(table, i)] == FieldPositions::kNone) return false;
  }
  return true;
}

Result<Buffer> WriteBuffer::own_row(const Write& own, const Table& table, const RowView* read) {
  if (!own.table.projected() && !table.projected() && own.table.added() == table.added()) return own.row;
  if (makes_record(own.kind)) read = nullptr;
  const Part mine{own.table, own.row};
  return combine(table, mine, read == nullptr ? mine : Part{table, read->bytes()});
}

std::vector<Key> WriteBuffer::keys_of(TableId table) const {
  std::vector<Key> keys;
  for (auto at = writes_.lower_bound({table, Key(0)}); at != writes_.end() && at->first.table == table; ++at) {
    keys.push_back(at->first.key);
  }
  return keys;
}

bool WriteBuffer::writes_to(TableId table) const {
  const auto first = writes_.lower_bound({table, Key(0)});
  return first != writes_.end() && first->first.table == table;
}

}  // namespace loam::client
