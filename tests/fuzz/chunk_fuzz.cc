// Fuzz target: chunks of scan results, and their use by a client. Input: a choice of schema, a choice of query, then
// the chunk as a storage node would send it.
#include "common/result/merge.h"
#include "common/schema/chunk.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;

Buffer encode_again(const ChunkView& view, const ResultSchema& schema) {
  ChunkBuilder builder(schema);
  for (size_t row = 0; row < view.rows(); ++row) {
    for (size_t column = 0; column < view.columns(); ++column) builder.append_value(column, view.value(column, row));
    builder.end_row();
  }
  Buffer bytes;
  fuzz::require_ok(builder.finish(bytes), "a chunk that was accepted can be built again");
  return bytes;
}

/// The values of a chunk may be arbitrary: the merger returns a result or an error.
void check_merge(const Schema& schema, const Query& query, const std::shared_ptr<const Chunk>& chunk) {
  uint64_t rows = 0;
  ResultMerger merger(schema, query, [&](std::shared_ptr<const Chunk> result) {
    fuzz::require(result->schema() == query.result_schema(schema), "results have the query's columns");
    rows += result->rows();
    for (size_t row = 0; row < result->rows(); ++row) {
      for (size_t column = 0; column < result->schema().size(); ++column) (void)result->view().value(column, row);
    }
    return ok_status();
  });
  if (!merger.add(chunk).ok() || !merger.add(chunk).ok() || !merger.finish().ok()) return;
  if (query.limit != 0) fuzz::require(rows <= query.limit, "a limit is kept");
  if (query.top_k) fuzz::require(rows <= query.top_k->k, "the k is kept");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const Schema schema = fuzz::chosen_schema(fuzz::consume_choice(rest));
  const Query query = fuzz::chosen_query(schema, fuzz::consume_choice(rest));
  const auto partial = std::make_shared<const ResultSchema>(query.partial_schema(schema));
  auto decoded = [&] {
    const fuzz::MemoryMeter meter;
    auto result = Chunk::decode(rest, partial);
    meter.require_at_most(16, size);
    return result;
  }();
  if (!decoded.ok()) {
    fuzz::require(decoded.code() == StatusCode::kMalformed, "bytes that are not a chunk are kMalformed");
    return -1;
  }
  const ChunkView& view = (*decoded)->view();
  const auto again = Chunk::decode(encode_again(view, *partial), partial);
  fuzz::require_ok(again.status(), "an encoded chunk can be decoded");
  fuzz::require((*again)->rows() == view.rows(), "rows survive");
  for (size_t column = 0; column < view.columns(); ++column) {
    for (size_t row = 0; row < view.rows(); ++row) {
      fuzz::require(fuzz::same(view.value(column, row), (*again)->view().value(column, row)), "values survive");
    }
  }
  check_merge(schema, query, *decoded);
  return 0;
}
