// Checks, schemas and codec of queries.
#include "common/schema/query.h"

#include <algorithm>
#include <utility>

#include "common/schema/decimal.h"

namespace loam {
namespace {

Status invalid_query(std::string message) { return {StatusCode::kInvalidArgument, "query: " + std::move(message)}; }

Status check_column(const QueryColumns& columns, uint16_t column, const char* what) {
  if (columns.has(column)) return ok_status();
  return invalid_query(std::string(what) + " names column " + std::to_string(column) + ", the table has " +
                       std::to_string(columns.fields().size()) + " fields");
}

Status check_limit(size_t count, size_t limit, const char* what) {
  if (count <= limit) return ok_status();
  return invalid_query(std::to_string(count) + " " + what + ", at most " + std::to_string(limit) + " are allowed");
}

Status check_aggregate(const Aggregate& aggregate, const QueryColumns& columns) {
  if (aggregate.op == AggregateOp::kCountAll) return ok_status();
  LOAM_RETURN_IF_ERROR(check_column(columns, aggregate.field, "an aggregate"));
  const FieldType type = columns.type(aggregate.field);
  if (is_arithmetic(aggregate.op) && !is_number(type)) {
    return invalid_query(std::string(to_string(aggregate.op)) + " of '" + columns.name(aggregate.field) +
                         "', which is " + to_string(type));
  }
  return ok_status();
}

std::string name_of(const Aggregate& aggregate, const QueryColumns& columns) {
  if (aggregate.op == AggregateOp::kCountAll) return "count(*)";
  if (aggregate.op == AggregateOp::kCountDistinct) return "count(DISTINCT " + columns.name(aggregate.field) + ")";
  return std::string(to_string(aggregate.op)) + "(" + columns.name(aggregate.field) + ")";
}

/// The column of an aggregate in the result schema.
Field result_column(const Aggregate& aggregate, const QueryColumns& columns) {
  const std::string name = name_of(aggregate, columns);
  switch (aggregate.op) {
    case AggregateOp::kCountAll:
    case AggregateOp::kCount:
    case AggregateOp::kCountDistinct:
    case AggregateOp::kApproxCountDistinct:
      return {name, FieldType::kInt64, false};
    case AggregateOp::kVarSample:
    case AggregateOp::kVarPopulation:
    case AggregateOp::kStddevSample:
    case AggregateOp::kStddevPopulation:
      return {name, FieldType::kFloat64, true};
    case AggregateOp::kSum: {
      const FieldType type = columns.type(aggregate.field);
      if (type == FieldType::kDecimal) return {name, sum_type(type), true};
      return {name, is_float(type) ? FieldType::kFloat64 : FieldType::kInt64, true};
    }
    case AggregateOp::kAvg: {
      const FieldType type = columns.type(aggregate.field);
      return {name, type == FieldType::kDecimal ? average_type(type) : FieldType(FieldType::kFloat64), true};
    }
    case AggregateOp::kMin:
    case AggregateOp::kMax:
      break;
  }
  return {name, columns.type(aggregate.field), true};
}

/// Appends the columns of an aggregate in the partial schema. An average has a sum and a count, because averages cannot
/// be merged; an exact sum of integers has two halves.
void add_partial_columns(const Aggregate& aggregate, const QueryColumns& columns, std::vector<Field>& out) {
  const std::string name = name_of(aggregate, columns);
  if (aggregate.op == AggregateOp::kCountDistinct || aggregate.op == AggregateOp::kApproxCountDistinct) {
    out.push_back({name + ".values", FieldType::kBlob, false});
    return;
  }
  if (is_variance(aggregate.op)) {
    out.push_back({name + ".mean", FieldType::kFloat64, false});
    out.push_back({name + ".squares", FieldType::kFloat64, false});
    out.push_back({name + ".count", FieldType::kInt64, false});
    return;
  }
  if (aggregate.op != AggregateOp::kSum && aggregate.op != AggregateOp::kAvg) {
    out.push_back(result_column(aggregate, columns));
    return;
  }
  if (is_float(columns.type(aggregate.field))) {
    out.push_back({name + ".sum", FieldType::kFloat64, false});
  } else {
    out.push_back({name + ".high", FieldType::kInt64, false});
    out.push_back({name + ".low", FieldType::kUint64, false});
    // The sum of decimals in 128 bits may need more of them.
    if (is_long(columns.type(aggregate.field))) out.push_back({name + ".carry", FieldType::kInt64, false});
  }
  out.push_back({name + ".count", FieldType::kInt64, false});
}

/// Removes the computed columns that are not used. `for_each_use` calls a function with the number of each column that
/// is used from outside, once for each use.
template <class ForEachUse>
void drop(std::vector<Computed>& computed, ForEachUse for_each_use) {
  // Arguments come before the columns that use them, so one walk from the last column on finds all that are needed.
  std::vector<bool> needed(computed.size(), false);
  const auto need = [&](uint16_t column) {
    if (column >= kFirstComputed) needed[column - kFirstComputed] = true;
  };
  for_each_use(need);
  for (size_t i = computed.size(); i-- != 0;) {
    if (needed[i]) std::ranges::for_each(computed[i].arguments, need);
  }
  std::vector<uint16_t> numbers(computed.size());
  std::vector<Computed> kept;
  const auto renumber = [&](uint16_t& column) {
    if (column >= kFirstComputed) column = numbers[column - kFirstComputed];
  };
  for (size_t i = 0; i < computed.size(); ++i) {
    if (!needed[i]) continue;
    numbers[i] = static_cast<uint16_t>(kFirstComputed + kept.size());
    std::ranges::for_each(computed[i].arguments, renumber);
    kept.push_back(std::move(computed[i]));
  }
  for_each_use(renumber);
  computed = std::move(kept);
}

Status check_groups(const Query& query, const Schema& schema) {
  const GroupSelection& groups = query.groups;
  if (groups.empty()) return ok_status();
  const ResultSchema result = query.result_schema(schema);
  const QueryColumns columns(result.columns, groups.computed);
  LOAM_RETURN_IF_ERROR(columns.check());
  LOAM_RETURN_IF_ERROR(groups.where.check(columns));
  LOAM_RETURN_IF_ERROR(check_limit(groups.order_by.size(), kMaxOrderColumns, "columns of an order"));
  for (const OrderColumn& by : groups.order_by) LOAM_RETURN_IF_ERROR(check_column(columns, by.column, "the order"));
  return ok_status();
}

/// Appends the columns of a projection.
void add_projection(const Query& query, const QueryColumns& columns, std::vector<Field>& out) {
  if (query.with_key) out.push_back({"_key", FieldType::kUint64, false});
  if (query.with_version) out.push_back({"_version", FieldType::kUint64, false});
  for (const uint16_t field : query.select) out.push_back(columns.field(field));
}

}  // namespace

std::string_view to_string(AggregateOp op) {
  switch (op) {
    case AggregateOp::kCountAll:
    case AggregateOp::kCount:
      return "count";
    case AggregateOp::kSum:
      return "sum";
    case AggregateOp::kMin:
      return "min";
    case AggregateOp::kMax:
      return "max";
    case AggregateOp::kAvg:
      return "avg";
    case AggregateOp::kVarSample:
      return "var_samp";
    case AggregateOp::kVarPopulation:
      return "var_pop";
    case AggregateOp::kStddevSample:
      return "stddev_samp";
    case AggregateOp::kStddevPopulation:
      return "stddev_pop";
    case AggregateOp::kCountDistinct:
      return "count";
    case AggregateOp::kApproxCountDistinct:
      return "approx_count_distinct";
  }
  return "unknown aggregate";
}

size_t partial_columns(const Aggregate& aggregate, const QueryColumns& columns) {
  if (is_variance(aggregate.op)) return 3;
  if (aggregate.op != AggregateOp::kSum && aggregate.op != AggregateOp::kAvg) return 1;
  const FieldType type = columns.type(aggregate.field);
  return is_float(type) ? 2 : is_long(type) ? 4 : 3;
}

Status Query::check(const Schema& schema) const {
  const QueryColumns columns(schema, computed);
  LOAM_RETURN_IF_ERROR(columns.check());
  LOAM_RETURN_IF_ERROR(where.check(columns));
  LOAM_RETURN_IF_ERROR(check_limit(select.size(), kMaxSelectFields, "selected fields"));
  LOAM_RETURN_IF_ERROR(check_limit(aggregates.size(), kMaxAggregates, "aggregates"));
  LOAM_RETURN_IF_ERROR(check_limit(group_by.size(), kMaxGroupBy, "fields to group by"));
  for (const uint16_t field : select) LOAM_RETURN_IF_ERROR(check_column(columns, field, "the projection"));
  for (const uint16_t field : group_by) LOAM_RETURN_IF_ERROR(check_column(columns, field, "group-by"));
  for (const Aggregate& aggregate : aggregates) LOAM_RETURN_IF_ERROR(check_aggregate(aggregate, columns));
  // A query is a projection or an aggregation, never both: their results have different columns.
  const bool projecting = !select.empty() || with_key || with_version;
  if (aggregating()) {
    if (projecting) return invalid_query("a projection and aggregates exclude each other; name the fields in group-by");
    // Groups come from several storage nodes, so no node knows which groups are the first of all.
    if (top_k) return invalid_query("a top-k is for projections; give groups an order and a limit");
    return check_groups(*this, schema);
  }
  if (!groups.empty()) return invalid_query("conditions on groups and their order are for aggregates");
  if (!projecting) return invalid_query("asks for nothing: no field, no key, no version, no aggregate");
  if (top_k) {
    LOAM_RETURN_IF_ERROR(check_column(columns, top_k->field, "top-k"));
    if (top_k->k == 0 || top_k->k > kMaxTopK) {
      return invalid_query("top-k of " + std::to_string(top_k->k) + " rows, 1 to " + std::to_string(kMaxTopK) +
                           " are allowed");
    }
    if (limit != 0) return invalid_query("the k of a top-k is its limit; leave the other limit out");
  }
  return ok_status();
}

ResultSchema Query::result_schema(const Schema& schema) const {
  const QueryColumns columns(schema, computed);
  ResultSchema result;
  for (const uint16_t field : group_by) result.columns.push_back(columns.field(field));
  for (const Aggregate& aggregate : aggregates) result.columns.push_back(result_column(aggregate, columns));
  if (!aggregating()) add_projection(*this, columns, result.columns);
  return result;
}

ResultSchema Query::partial_schema(const Schema& schema) const {
  const QueryColumns columns(schema, computed);
  ResultSchema partial;
  for (const uint16_t field : group_by) partial.columns.push_back(columns.field(field));
  for (const Aggregate& aggregate : aggregates) add_partial_columns(aggregate, columns, partial.columns);
  if (!aggregating()) add_projection(*this, columns, partial.columns);
  // The client needs the field of the top-k to merge the rows, even if the query does not select it.
  if (top_k) partial.columns.push_back(columns.field(top_k->field));
  return partial;
}

void Query::drop_unused() {
  drop(computed, [this](const auto& use) { for_each_use(use); });
}

void GroupSelection::drop_unused() {
  drop(computed, [this](const auto& use) {
    for (Clause& clause : where.all) {
      for (Predicate& predicate : clause.any) use(predicate.field);
    }
    for (OrderColumn& by : order_by) use(by.column);
  });
}

void Query::encode(ByteWriter& out) const {
  loam::encode(computed, out);
  where.encode(out);
  const auto put_fields = [&out](const std::vector<uint16_t>& fields) {
    out.put_varint(fields.size());
    for (const uint16_t field : fields) out.put_varint(field);
  };
  put_fields(select);
  // Flags: 1 with_key, 2 with_version, 4 top_k, 8 descending.
  out.put(static_cast<uint8_t>((with_key ? 1 : 0) | (with_version ? 2 : 0) | (top_k ? 4 : 0) |
                               (top_k && top_k->descending ? 8 : 0)));
  out.put_varint(aggregates.size());
  for (const Aggregate& aggregate : aggregates) {
    out.put(aggregate.op);
    out.put_varint(aggregate.field);
  }
  put_fields(group_by);
  if (top_k) {
    out.put_varint(top_k->field);
    out.put_varint(top_k->k);
  }
  out.put_varint(aggregating() ? 0 : limit);
}

Result<Query> Query::decode(ByteReader& in) {
  Query query;
  LOAM_ASSIGN_OR_RETURN(query.computed, decode_computed(in));
  LOAM_ASSIGN_OR_RETURN(query.where, Selection::decode(in));
  const auto get_field = [&in] {
    const uint64_t field = in.get_varint();
    if (field >= kFirstComputed + kMaxComputed) in.fail();
    return static_cast<uint16_t>(field);
  };
  const auto get_fields = [&](std::vector<uint16_t>& fields, size_t limit) {
    const size_t count = in.get_count(1);
    if (count > limit) in.fail();
    for (size_t i = 0; i < count && !in.failed(); ++i) fields.push_back(get_field());
  };
  get_fields(query.select, kMaxSelectFields);
  const auto flags = in.get<uint8_t>();
  if (flags > 15 || (flags & 12) == 8) in.fail();  // an unknown flag, or descending without top_k
  query.with_key = (flags & 1) != 0;
  query.with_version = (flags & 2) != 0;
  const size_t aggregates = in.get_count(2);
  if (aggregates > kMaxAggregates) in.fail();
  for (size_t i = 0; i < aggregates && !in.failed(); ++i) {
    const auto op = in.get<AggregateOp>();
    if (op < AggregateOp::kCountAll || op > AggregateOp::kApproxCountDistinct) in.fail();
    query.aggregates.push_back({op, get_field()});
  }
  get_fields(query.group_by, kMaxGroupBy);
  if ((flags & 4) != 0) {
    const uint16_t field = get_field();
    query.top_k = TopK{field, in.get_varint(), (flags & 8) != 0};
  }
  query.limit = in.get_varint();
  if (query.aggregating() && query.limit != 0) in.fail();  // the client applies the limit of groups
  LOAM_RETURN_IF_ERROR(in.status("query"));
  return query;
}

}  // namespace loam
