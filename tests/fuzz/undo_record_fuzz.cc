// Undo records. Input: a choice (odd: the body alone, put into a valid row), then the row.
#include "common/schema/row.h"
#include "common/wire/undo_record.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;
using Fields = wire::TransactionTableFields;

Buffer row_around(Bytes body) {
  RowBuilder builder(wire::transaction_table_schema());
  fuzz::require_ok(builder.set_int64(Fields::kSession, 7), "session");
  fuzz::require_ok(builder.set_int16(Fields::kState, static_cast<int16_t>(wire::UndoState::kPending)), "state");
  fuzz::require_ok(builder.set_blob(Fields::kBody, body), "body");
  const auto row = builder.finish();
  return row.ok() ? Buffer(row->begin(), row->end()) : Buffer();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  Buffer row;
  if (fuzz::take_choice(rest) % 2 == 1) {
    row = row_around(rest);
    rest = row;
  }
  auto decoded = [&] {
    const fuzz::MemoryMeter meter;
    auto result = wire::UndoRecord::decode(rest);
    meter.require_at_most(64, rest.size());
    return result;
  }();
  if (!decoded.ok()) {
    fuzz::require(decoded.code() == StatusCode::kMalformed || rest.size() > kMaxRowBytes, "bytes that are no record");
    return -1;
  }
  for (size_t i = 1; i < decoded->records.size(); ++i) {
    fuzz::require(decoded->records[i - 1] < decoded->records[i], "a record is named once");
  }
  auto once = decoded->encode();
  fuzz::require_ok(once.status(), "an undo record that was read can be written");
  const auto twice = wire::UndoRecord::decode(*once);
  fuzz::require_ok(twice.status(), "what was encoded can be decoded");
  fuzz::require(*twice == *decoded, "an undo record survives encoding");
  return 0;
}
