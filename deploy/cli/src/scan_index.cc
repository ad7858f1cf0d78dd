// `loam scan --index`: converts the bounds, and prints the pages that IndexReader returns.
#include "deploy/cli/src/scan_index.h"

#include <iostream>
#include <utility>
#include <vector>

#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/index/index_reader.h"
#include "deploy/cli/src/index/index_text.h"

namespace loam::cli {
namespace {

Status in_option(std::string_view option, const Status& status) {
  return {status.code(), std::string(option) + ": " + std::string(status.message())};
}

Result<std::optional<client::IndexBound>> parse_bound(const client::Index& index,
                                                      const std::optional<std::string>& text, std::string_view option) {
  if (!text) return std::optional<client::IndexBound>();
  auto values = parse_index_bound(index, *text);
  if (!values.ok()) return in_option(option, values.status());
  return std::optional(client::IndexBound{*std::move(values)});
}

Result<client::IndexRange> parse_range(const client::Index& index, const QueryPlan& plan, const IndexScanText& text) {
  client::IndexRange range;
  LOAM_ASSIGN_OR_RETURN(range.from, parse_bound(index, text.from, "--from"));
  LOAM_ASSIGN_OR_RETURN(range.to, parse_bound(index, text.to, "--to"));
  if (text.prefix) {
    auto values = parse_index_prefix(index, *text.prefix);
    if (!values.ok()) return in_option("--prefix", values.status());
    range = client::IndexRange::prefix(*std::move(values));
  }
  range.backward = text.reverse;
  if (plan.limit > 0) range.limit = plan.limit;
  return range;
}

std::vector<Value> row_of(const client::Record& record, const Query& query) {
  std::vector<Value> row;
  row.reserve(query.select.size() + 1);
  if (query.with_key) row.push_back(Value::uint64(record.key().value));
  for (const uint16_t field : query.select) row.push_back(record.view().value(field));
  return row;
}

}  // namespace

int scan_index(const Context& context, client::Client& client, const client::Table& table, const QueryPlan& plan,
               const IndexScanText& text) {
  const auto index = open_index(client, table, text.name);
  if (!index.ok()) return fail(context, index.status());
  if (const Status ready = check_ready(*index); !ready.ok()) return fail(context, ready);
  auto range = parse_range(*index, plan, text);
  if (!range.ok()) return fail(context, kExitBadData, range.status());
  // One read-only transaction for all pages, so that they show one snapshot.
  auto transaction = client.begin({.read_only = true, .retry = {}});
  if (!transaction.ok()) return fail(context, transaction.status());
  auto printer =
      make_printer(context.format(), output_columns(plan, plan.query.result_schema(table.schema())), std::cout);
  IndexReader reader(*transaction, *index, *std::move(range));
  for (;;) {
    const auto records = reader.next();
    if (!records.ok()) return fail(context, records.status());
    if (records->empty()) break;
    for (const client::Record& record : *records) printer->row(row_of(record, plan.query));
    if (!std::cout) break;  // main() reports the lost output
  }
  printer->finish();
  std::cout.flush();
  return kExitOk;
}

}  // namespace loam::cli
