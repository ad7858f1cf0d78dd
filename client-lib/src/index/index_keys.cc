// Keys of an index's tree: the values by KeyCodec (bdtree), and the record's key behind them unless the key is shared.
#include "client-lib/src/index/index_keys.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/core/describe.h"

namespace loam::client {
namespace {

constexpr size_t kRecordBytes = sizeof(uint64_t);

// Big-endian, so that records with equal values are ordered by key.
void append_record(Key record, std::string& out) {
  for (size_t i = kRecordBytes; i-- > 0;) out.push_back(static_cast<char>(record.value >> (8 * i)));
}

Key record_at_end(std::string_view key) {
  uint64_t value = 0;
  for (const char byte : key.substr(key.size() - kRecordBytes)) value = value << 8 | static_cast<uint8_t>(byte);
  return Key(value);
}

}  // namespace

Result<IndexKeys> IndexKeys::make(const Index& index) {
  std::vector<bdtree::KeyPart> parts;
  std::vector<uint16_t> numbers;
  bool nullable = false;
  for (const Index::Part& part : index.parts()) {
    const Field& field = index.table().schema().field(part.field);
    parts.push_back({field.type, field.nullable, part.descending});
    numbers.push_back(part.field);
    nullable = nullable || field.nullable;
  }
  LOAM_ASSIGN_OR_RETURN(bdtree::KeyCodec codec, bdtree::KeyCodec::make(std::move(parts)));
  LOAM_ASSIGN_OR_RETURN(Table fields, index.table().project(numbers));
  return IndexKeys(index, std::move(fields), std::move(codec), nullable);
}

Status IndexKeys::named(const Status& status) const {
  return {status.code(), "index " + index_.name() + ": " + std::string(status.message())};
}

Result<IndexKeys::TreeKey> IndexKeys::key_of(const RowView& row, Key record) const {
  std::vector<Value> values;
  values.reserve(codec_.parts().size());
  bool null = false;
  for (size_t i = 0; i < codec_.parts().size(); ++i) {
    values.push_back(row.value(i));
    null = null || row.is_null(i);
  }
  // Values with a NULL are no duplicates of each other, so their keys contain the record also in a unique index (R28,
  // unique indexes).
  TreeKey key{{}, index_.unique() && !null};
  Status encoded = codec_.encode(values, key.bytes);
  if (encoded.ok() && !key.shared) append_record(record, key.bytes);
  if (encoded.ok() && key.bytes.size() > bdtree::kMaxKeyBytes) {
    encoded = {StatusCode::kInvalidArgument, "a key of " + std::to_string(key.bytes.size()) +
                                                 " bytes, including the record's own; keys of indexes have at most " +
                                                 std::to_string(bdtree::kMaxKeyBytes)};
  }
  if (!encoded.ok()) {
    return Status(encoded.code(), describe(index_.table(), record) + ", " + std::string(named(encoded).message()));
  }
  return key;
}

Result<std::optional<std::string>> IndexKeys::unique_key(std::span<const Value> values) const {
  if (!shares(values)) return std::optional<std::string>();
  std::string key;
  const Status encoded = codec_.encode(values, key);
  if (!encoded.ok()) return named(encoded);
  return std::optional(std::move(key));
}

bool IndexKeys::shares(std::span<const Value> values) const {
  return index_.unique() && values.size() == codec_.parts().size() &&
         std::ranges::none_of(values, [](const Value& value) { return value.is_null(); });
}

Status IndexKeys::encode(const IndexBound& bound, std::string& out) const {
  const Status encoded =
      bound.prefix ? codec_.encode_text_prefix(bound.values, out) : codec_.encode_prefix(bound.values, out);
  if (!encoded.ok()) return named(encoded);
  if (!bound.record) return ok_status();
  if (bound.prefix) {
    return named({StatusCode::kInvalidArgument, "a bound with a record cannot be a prefix"});
  }
  if (bound.values.size() != codec_.parts().size()) {
    return named({StatusCode::kInvalidArgument, "a bound with a record needs values of all fields of the index"});
  }
  if (!shares(bound.values)) append_record(*bound.record, out);
  return ok_status();
}

Result<IndexKeys::Bounds> IndexKeys::bounds(const IndexRange& range) const {
  Bounds bounds;
  if (range.from) {
    LOAM_RETURN_IF_ERROR(encode(*range.from, bounds.from));
    // A bound with a record at a shared key divides the entries under the key. So the range of keys includes it, and
    // the record bound decides about its entries.
    if (range.from->record && shares(range.from->values)) {
      bounds.first = Bounds::RecordBound{bounds.from, *range.from->record, range.from->inclusive};
    } else if (!range.from->inclusive) {
      bounds.from = bdtree::after_prefix(bounds.from);
      bounds.empty = bounds.from.empty();
    }
  }
  if (range.to) {
    LOAM_RETURN_IF_ERROR(encode(*range.to, bounds.to));
    const bool divides = range.to->record && shares(range.to->values);
    if (divides) bounds.last = Bounds::RecordBound{bounds.to, *range.to->record, range.to->inclusive};
    if (divides || range.to->inclusive) {
      bounds.to = bdtree::after_prefix(bounds.to);
    } else {
      bounds.empty = bounds.empty || bounds.to.empty();
    }
  }
  bounds.empty = bounds.empty || (!bounds.to.empty() && bounds.to <= bounds.from);
  return bounds;
}

Result<std::optional<Key>> IndexKeys::record_of(std::string_view key) const {
  // Every key of a unique index without nullable fields is shared. Otherwise a key is shared if the codec accepts it
  // as a whole: a key with a record has eight bytes more.
  if (index_.unique() && !nullable_) return std::optional<Key>();
  if (index_.unique() && codec_.decode(as_bytes(key)).ok()) return std::optional<Key>();
  if (key.size() < kRecordBytes) return Status(StatusCode::kMalformed, "index " + index_.name() + " has a short key");
  return std::optional(record_at_end(key));
}

}  // namespace loam::client
