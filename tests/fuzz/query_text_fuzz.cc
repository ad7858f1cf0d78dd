// Fuzz target: the texts of `loam scan`. Input: a choice of schema, a choice (bit 0: with the key; the rest: the
// limit), then the five texts, separated by line ends.
#include <algorithm>
#include <set>

#include "deploy/cli/src/query/query_plan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  Bytes rest = fuzz::input(data, size);
  const Schema schema = fuzz::chosen_schema(fuzz::consume_choice(rest));
  const uint8_t choice = fuzz::consume_choice(rest);
  std::string_view text = as_text(rest);
  const auto line = [&text] {
    const std::string_view taken = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), taken.size() + 1));
    return std::string(taken);
  };
  cli::QueryText question;
  for (std::string* part : {&question.select, &question.aggregate, &question.group_by, &question.order_by})
    *part = line();
  question.where = std::string(text);
  question.with_key = choice % 2 == 1;
  question.limit = choice / 2;
  const auto parsed = cli::parse_query(question, schema);
  if (!parsed.ok()) {
    fuzz::require(parsed.code() == StatusCode::kInvalidArgument, "texts that are not a query are kInvalidArgument");
    return -1;
  }
  fuzz::require_ok(parsed->query.check(schema), "a parsed query fits the schema");
  const size_t columns = parsed->query.result_schema(schema).size();
  fuzz::require(parsed->names.size() == columns, "each column has a name");
  fuzz::require(std::set(parsed->names.begin(), parsed->names.end()).size() == columns, "names are unique");
  for (const cli::SortColumn& sort : parsed->sort) fuzz::require(sort.column < columns, "sort columns exist");
  // A parsed query must survive the encoding in which it reaches the storage nodes. What happens to groups stays here.
  Query sent = parsed->query;
  sent.groups = {};
  if (sent.aggregating()) sent.limit = 0;
  Buffer bytes;
  ByteWriter writer(bytes);
  parsed->query.encode(writer);
  ByteReader reader(bytes);
  const auto again = Query::decode(reader);
  fuzz::require(again.ok() && *again == sent, "a query survives encoding");
  return 0;
}
