// Differential test against SQLite with the same rows and queries. docs/semantics.md lists the differences.

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

/// A statement under construction: text, and the operands that it binds.
struct Statement {
  std::string text;
  std::vector<Value> operands;

  Statement& operator<<(const std::string& more) {
    text += more;
    return *this;
  }
  Statement& bind(const Value& value) {
    operands.push_back(value);
    text += "?" + std::to_string(operands.size());
    return *this;
  }
};

class Sqlite {
 public:
  Sqlite() { LOAM_CHECK(sqlite3_open(":memory:", &db_) == SQLITE_OK, "sqlite opens"); }
  ~Sqlite() { sqlite3_close(db_); }
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;

  /// Rows of values in SQLite's own types: int64, float64, text, blob, NULL.
  std::vector<ResultRow> run(const Statement& statement) {
    sqlite3_stmt* prepared = nullptr;
    const int code = sqlite3_prepare_v2(db_, statement.text.c_str(), -1, &prepared, nullptr);
    EXPECT_EQ(code, SQLITE_OK) << statement.text << ": " << sqlite3_errmsg(db_);
    for (size_t i = 0; i < statement.operands.size(); ++i) {
      bind(prepared, static_cast<int>(i + 1), statement.operands[i]);
    }
    std::vector<ResultRow> rows;
    int step;
    while ((step = sqlite3_step(prepared)) == SQLITE_ROW) {
      ResultRow& row = rows.emplace_back();
      for (int i = 0; i < sqlite3_column_count(prepared); ++i) row.push_back(column(prepared, i));
    }
    EXPECT_EQ(step, SQLITE_DONE) << statement.text << ": " << sqlite3_errmsg(db_);
    sqlite3_finalize(prepared);
    return rows;
  }

 private:
  static void bind(sqlite3_stmt* statement, int at, const Value& value) {
    switch (value.type()) {
      case FieldType::kNull:
        sqlite3_bind_null(statement, at);
        break;
      case FieldType::kFloat32:
      case FieldType::kFloat64:
        sqlite3_bind_double(statement, at, value.as_float64());
        break;
      case FieldType::kText:
        sqlite3_bind_text(statement, at, value.as_text().data(), static_cast<int>(value.as_text().size()),
                          SQLITE_TRANSIENT);
        break;
      case FieldType::kBlob:
        // A null pointer would be NULL, and an empty blob's may be.
        sqlite3_bind_blob(statement, at, value.as_text().empty() ? "" : value.as_text().data(),
                          static_cast<int>(value.as_text().size()), SQLITE_TRANSIENT);
        break;
      default:
        sqlite3_bind_int64(statement, at, value.as_int64());
    }
  }
  static Value column(sqlite3_stmt* statement, int at) {
    const auto bytes = [&] {
      const void* const data = sqlite3_column_blob(statement, at);
      const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, at));
      return std::string_view(static_cast<const char*>(data), size);
    };
    switch (sqlite3_column_type(statement, at)) {
      case SQLITE_INTEGER:
        return Value::int64(sqlite3_column_int64(statement, at));
      case SQLITE_FLOAT:
        return Value::float64(sqlite3_column_double(statement, at));
      case SQLITE_TEXT:
        return Value::text(bytes());
      case SQLITE_BLOB:
        return Value::blob(as_bytes(bytes()));
      default:
        return Value::null();
    }
  }

  sqlite3* db_ = nullptr;
};

/// SQLite has no exact decimals.
bool stored_by_sqlite(FieldType type) { return type != FieldType::kDecimal; }

/// A value in SQLite's types.
Value widened(const Value& value) {
  if (is_integer(value.type()) || has_range(value.type())) return Value::int64(value.as_int64());
  if (value.type() == FieldType::kUint64) return Value::int64(static_cast<int64_t>(value.as_uint64()));
  if (is_float(value.type())) return Value::float64(value.as_float64());
  return value;
}

void add_predicate(Statement& sql, const Predicate& predicate, const Schema& schema) {
  const std::string field = schema.field(predicate.field).name;
  switch (predicate.op) {
    case PredicateOp::kIsNull:
    case PredicateOp::kIsNotNull:
      sql << field << " " << std::string(to_string(predicate.op));
      return;
    case PredicateOp::kIn:
      sql << field << " IN (";
      for (size_t i = 0; i < predicate.operands.size(); ++i) {
        sql << (i == 0 ? "" : ", ");
        sql.bind(predicate.operands[i]);
      }
      sql << ")";
      return;
    case PredicateOp::kPrefix:
    case PredicateOp::kSuffix:
    case PredicateOp::kContains: {
      const Value& part = predicate.operands[0];
      if (part.as_text().empty()) {
        sql << field << " IS NOT NULL";
      } else if (predicate.op == PredicateOp::kContains) {
        sql << "instr(" << field << ", ";
        sql.bind(part) << ") > 0";
      } else {
        sql << "substr(" << field << (predicate.op == PredicateOp::kPrefix ? ", 1, length(" : ", -length(");
        sql.bind(part) << ")) = ";
        sql.bind(part);
      }
      return;
    }
    default:
      sql << field << " " << std::string(to_string(predicate.op)) << " ";
      sql.bind(predicate.operands[0]);
  }
}

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

Statement to_sql(const Query& query, const Schema& schema) {
  std::vector<std::string> columns, groups;
  if (query.with_key) columns.emplace_back("_key");
  if (query.with_version) columns.emplace_back("_version");
  for (const uint16_t field : query.select) columns.push_back(schema.field(field).name);
  for (const uint16_t field : query.group_by) groups.push_back(schema.field(field).name);
  columns.insert(columns.end(), groups.begin(), groups.end());
  for (const Aggregate& a : query.aggregates) {
    const bool all = a.op == AggregateOp::kCountAll;
    columns.push_back(std::string(to_string(a.op)) + "(" + (all ? "*" : schema.field(a.field).name) + ")");
  }
  Statement sql;
  sql << "SELECT " << list(columns) << " FROM t";
  for (size_t c = 0; c < query.where.all.size(); ++c) {
    sql << (c == 0 ? " WHERE (" : " AND (");
    for (size_t p = 0; p < query.where.all[c].any.size(); ++p) {
      sql << (p == 0 ? "" : " OR ");
      add_predicate(sql, query.where.all[c].any[p], schema);
    }
    sql << ")";
  }
  if (!groups.empty()) sql << " GROUP BY " << list(groups);
  if (query.top_k) {
    sql << " ORDER BY " << schema.field(query.top_k->field).name << (query.top_k->descending ? " DESC" : "");
    sql << " LIMIT " << std::to_string(query.top_k->k);
  }
  return sql;
}

/// Compares avg with a tolerance and everything else exactly.
bool alike(const Value& ours, const Value& theirs, bool average) {
  if (!average || ours.is_null() || theirs.is_null()) return ours == theirs;
  const double a = ours.as_float64(), b = theirs.as_float64();
  return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)});
}

std::string show(const ResultRow& row) {
  std::string text;
  for (const Value& value : row) text += value.to_string() + " | ";
  return text;
}

/// Returns the first difference; empty if there is none. Compares rows as sets; with a top-k it also compares the
/// values of the field in order.
std::string compare(const Query& query, std::vector<ResultRow> ours, std::vector<ResultRow> theirs) {
  for (ResultRow& row : ours) {
    for (Value& value : row) value = widened(value);
  }
  if (ours.size() != theirs.size()) {
    return std::to_string(ours.size()) + " rows, SQLite has " + std::to_string(theirs.size());
  }
  if (query.top_k) {  // the field is the last column; among equal rows any may be returned
    for (auto* rows : {&ours, &theirs}) {
      for (ResultRow& row : *rows) row = {row.back()};
    }
  } else {
    std::sort(ours.begin(), ours.end(), LessRow());
    std::sort(theirs.begin(), theirs.end(), LessRow());
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    for (size_t c = 0; c < ours[i].size(); ++c) {
      const size_t aggregate = c - query.group_by.size();
      const bool average =
          query.aggregating() && c >= query.group_by.size() && query.aggregates[aggregate].op == AggregateOp::kAvg;
      if (!alike(ours[i][c], theirs[i][c], average)) return show(ours[i]) + " SQLite has " + show(theirs[i]);
    }
  }
  return "";
}

/// A table in both systems. The table in Loam lies on two nodes and has old, new, dead and removed versions that the
/// snapshot does not see.
struct Twins {
  Twins(testing::Random& random, const testing::ValueRules& rules)
      : schema(testing::random_schema(random, 6, stored_by_sqlite)) {
    for (auto& node : nodes) node = std::make_unique<LogFixture>(schema);
    std::vector<std::string> columns = {"_key", "_version"};
    for (const Field& field : schema.fields()) columns.push_back(field.name);
    sqlite.run({"CREATE TABLE t (" + list(columns) + ")", {}});
    sqlite.run({"BEGIN", {}});
    // Interval indexes have another code path for blocks whose rows are all visible.
    const bool one_version = random.one_in(2);
    for (uint64_t key = 1; key <= 200; ++key) {
      const auto noise = [&] { return testing::random_row(random, schema, rules); };
      LogFixture& log = *nodes[random.below(nodes.size())];
      if (!one_version && random.one_in(3)) log.put(key, 5, 10, noise());
      if (random.one_in(8)) {
        log.put(key, 10, kOpen, {}, EntryKind::kTombstone);
        continue;
      }
      const ResultRow row = noise();
      log.put(key, 10, random.one_in(3) ? 30 : kOpen, row);
      if (!one_version && random.one_in(4)) log.put(key, 30, kOpen, noise());
      if (!one_version && random.one_in(9))
        log.put(key, 10, kOpen, testing::build_row(schema, noise()), EntryKind::kPut, EntryState::kDead);
      Statement insert;
      insert << "INSERT INTO t VALUES (";
      insert.bind(Value::int64(static_cast<int64_t>(key))) << ", ";
      insert.bind(Value::int64(10));
      for (const Value& value : row) (insert << ", ").bind(value);
      insert << ")";
      sqlite.run(insert);
    }
    sqlite.run({"COMMIT", {}});
    for (auto& node : nodes) {
      if (random.one_in(2)) node->to_columns(random, 20);
    }
  }

  const Schema schema;
  std::array<std::unique_ptr<LogFixture>, 2> nodes;
  Sqlite sqlite;
};

Query portable_query(testing::Random& random, const Schema& schema, const testing::ValueRules& rules) {
  Query query = testing::random_query(random, schema, rules);
  query.limit = 0;  // with a limit any rows would be right
  if (query.top_k) query.select.push_back(query.top_k->field);
  for (Aggregate& aggregate : query.aggregates) {
    const bool adds = aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
    if (adds && rules.extremes) aggregate.op = AggregateOp::kMax;  // SQLite overflows in between
  }
  return query;
}

/// Makes queries that one interval index answers: sums and counts of one measure over ranges of one field.
class SumsOfOneMeasure {
 public:
  SumsOfOneMeasure(testing::Random& random, const Schema& schema)
      : random_(random),
        schema_(schema),
        at_(random_number(random, schema, false)),
        measure_(random_number(random, schema, true)) {}

  /// The table has a number to sum.
  bool exist() const { return at_ && measure_; }

  Query draw(const testing::ValueRules& rules) {
    Query query;
    const auto op = static_cast<PredicateOp>(random_.between(3, 6));
    query.where.where(*at_, op, {testing::random_value(random_, schema_.field(*at_).type, rules)});
    static constexpr std::array kOps = {AggregateOp::kSum, AggregateOp::kAvg, AggregateOp::kCount,
                                        AggregateOp::kCountAll};
    for (size_t n = random_.between(1, 3); n != 0; --n) {
      query.aggregates.push_back({kOps[random_.below(kOps.size())], *measure_});
    }
    return query;
  }

 private:
  static std::optional<uint16_t> random_number(testing::Random& random, const Schema& schema, bool nullable) {
    std::vector<uint16_t> numbers;
    for (uint16_t field = 0; field < schema.size(); ++field) {
      if (is_number(schema.field(field).type)) numbers.push_back(field);
    }
    // Mostly one that has NULLs, or none, if there is one.
    const auto other = [&](uint16_t field) { return schema.field(field).nullable != nullable; };
    if (!random.one_in(4) && !std::ranges::all_of(numbers, other)) std::erase_if(numbers, other);
    if (numbers.empty()) return std::nullopt;
    return numbers[random.below(numbers.size())];
  }

  testing::Random& random_;
  const Schema& schema_;
  const std::optional<uint16_t> at_, measure_;
};

TEST(ScanSqlite, SameResults) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t rows = 0, queries = 0;
  for (int round = 0; round < 60; ++round) {
    const testing::ValueRules rules{
        .nan = false, .infinity = false, .extremes = random.one_in(2), .whole_floats = true};
    Twins twins(random, rules);
    const Schema& schema = twins.schema;
    SumsOfOneMeasure sums(random, schema);
    const bool sums_only = !rules.extremes && sums.exist() && random.one_in(2);  // SQLite overflows in between
    std::vector<std::unique_ptr<ScanScheduler>> scans;
    scans.reserve(twins.nodes.size());
    for (size_t node = 0; node < twins.nodes.size(); ++node) {
      scans.push_back(std::make_unique<ScanScheduler>(ScanScheduler::Options{}));
    }
    std::vector<Query> batch;
    std::vector<std::unique_ptr<QueryResult>> results;
    uint64_t now = 0;
    for (ScanId id = 0; id < 24; ++id) {
      batch.push_back(sums_only ? sums.draw(rules) : portable_query(random, schema, rules));
      ASSERT_TRUE(batch.back().check(schema).ok());
      results.push_back(std::make_unique<QueryResult>(schema, batch.back()));
      results.back()->parts = twins.nodes.size();
      for (size_t node = 0; node < twins.nodes.size(); ++node) {
        ScanSpec spec = twins.nodes[node]->spec(batch.back(), Snapshot(Version(20)));
        ASSERT_TRUE(scans[node]->join(id, std::move(spec), *results.back(), now).ok());
        if (random.one_in(2)) scans[node]->step(++now, any_publication(), random.between(1, 5'000));
      }
    }
    for (auto& node : scans) {
      while (node->step(++now, any_publication(), 8'192)) {
      }
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      ASSERT_TRUE(results[i]->ended() && results[i]->status.ok()) << results[i]->status.to_string();
      const Statement sql = to_sql(batch[i], schema);
      std::string operands;
      for (const Value& value : sql.operands) operands += value.to_string() + " ";
      ASSERT_EQ(compare(batch[i], results[i]->rows, twins.sqlite.run(sql)), "") << schema.to_string() << "\n"
                                                                                << sql.text << "\n"
                                                                                << operands;
      rows += results[i]->rows.size();
      ++queries;
    }
  }
  EXPECT_EQ(queries, 1'440u);
  EXPECT_GT(rows, 5'000u);
}

}  // namespace
}  // namespace loam::storage
