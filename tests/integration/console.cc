// The commands of console.h. Each command causes exactly one line of output, also if it is wrong.
#include "tests/integration/console.h"

#include <charconv>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <utility>

#include "common/base/env.h"
#include "common/schema/chunk.h"

namespace loam::integration {
namespace {

constexpr uint64_t kTryAgainNs = 1'000'000;

Status wrong(std::string_view word) { return {StatusCode::kInvalidArgument, "'" + std::string(word) + "'"}; }

template <class Number>
Result<Number> number(std::string_view word) {
  Number value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return wrong(word);
  return value;
}

/// Parses a change, for example "add:7=-3".
Result<Change> change(std::string_view word) {
  const size_t colon = word.find(':');
  if (colon == std::string_view::npos) return wrong(word);
  const std::string_view kind = word.substr(0, colon);
  const size_t equals = word.find('=');
  LOAM_ASSIGN_OR_RETURN(const uint64_t key, number<uint64_t>(word.substr(colon + 1, equals - colon - 1)));
  Change change{Change::Kind::kRead, Key(key), 0};
  if (equals != std::string_view::npos) {
    LOAM_ASSIGN_OR_RETURN(change.amount, number<int64_t>(word.substr(equals + 1)));
  }
  if (kind == "add") {
    change.kind = Change::Kind::kAdd;
  } else if (kind == "insert") {
    change.kind = Change::Kind::kInsert;
  } else if (kind == "remove") {
    change.kind = Change::Kind::kRemove;
  } else if (kind != "read") {
    return wrong(word);
  }
  return change;
}

Result<std::vector<Change>> changes_of(const std::vector<std::string>& words) {
  std::vector<Change> changes;
  for (size_t i = 1; i < words.size(); ++i) {
    LOAM_ASSIGN_OR_RETURN(Change one, change(words[i]));
    changes.push_back(one);
  }
  if (changes.empty()) return wrong("no changes");
  return changes;
}

std::string records_json(const std::vector<ObservedRecord>& records) {
  std::string out = "\"records\":[";
  for (const ObservedRecord& record : records) {
    if (&record != records.data()) out += ',';
    out += '[' + std::to_string(record.key.value) + ',' + std::to_string(record.version.value) + ',' +
           std::to_string(record.balance) + ']';
  }
  return out + "],";
}

}  // namespace

std::string Console::begin(uint64_t count) {
  uint64_t first = 0, last = 0;
  Status status;
  const uint64_t requested_ns = Env::now_ns();
  for (uint64_t i = 0; i < count && status.ok(); ++i) {
    // Each transaction aborts at once. The command only needs ids.
    Result<client::Transaction> transaction = client_.begin();
    if (!transaction.ok()) {
      status = transaction.status();
      break;
    }
    last = transaction->id().value;
    if (first == 0) first = last;
    status = transaction->abort();
  }
  return "\"first\":" + std::to_string(first) + ",\"last\":" + std::to_string(last) +
         ",\"requested\":" + std::to_string(requested_ns) + ",\"ended\":" + std::to_string(Env::now_ns()) + "," +
         json_status(status);
}

std::string Console::prepare(const Words& words) {
  const auto changes = changes_of(words);
  if (!changes.ok()) return json_status(changes.status());
  prepared_ = accounts_.run_until_commit(*changes);
  return json_attempt(prepared_->attempt);
}

std::string Console::reread() {
  std::vector<Key> keys;
  for (const ObservedRecord& read : prepared_->attempt.reads) keys.push_back(read.key);
  std::vector<ObservedRecord> seen;
  const auto records = prepared_->transaction->get_many(table_, keys);
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].ok()) {
      seen.push_back({keys[i], records[i]->version(), records[i]->int64(0)});
    } else if (records[i].code() == StatusCode::kNotFound) {
      seen.push_back({keys[i], Version(), 0});
    } else {
      return json_status(records[i].status());
    }
  }
  return records_json(seen) + json_status({});
}

std::string Console::writable(const Words& words) {
  if (words.size() < 3) return json_status(wrong("writable"));
  const auto milliseconds = number<uint64_t>(words[1]);
  if (!milliseconds.ok()) return json_status(milliseconds.status());
  std::vector<Change> changes;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto key = number<uint64_t>(words[i]);
    if (!key.ok()) return json_status(key.status());
    // An amount of 0 writes the record and changes no balance, so the total stays as it is.
    changes.push_back({Change::Kind::kAdd, Key(*key), 0});
  }
  const uint64_t end_ns = Env::now_ns() + *milliseconds * 1'000'000;
  uint64_t tries = 0;
  while (true) {
    const Attempt attempt = accounts_.attempt(changes);
    ++tries;
    if (attempt.status.ok() || Env::now_ns() >= end_ns)
      return "\"tries\":" + std::to_string(tries) + "," + json_attempt(attempt);
    client_.sleep_for(kTryAgainNs);
  }
}

std::string Console::scan() {
  const auto rows = accounts_.scan();
  return (rows.ok() ? records_json(*rows) : std::string()) + json_status(rows.status());
}

std::string Console::create(const Words& words) {
  if (words.size() != 3) return json_status(wrong("create"));
  const auto type = field_type_from(words[2]);
  if (!type.ok()) return json_status(type.status());
  const auto schema = Schema::make({{"value", *type, false}});
  if (!schema.ok()) return json_status(schema.status());
  const auto table = client_.create_table(words[1], TableKind::kTransactional, *schema);
  return "\"table\":" + std::to_string(table.ok() ? table->id().value : 0) + "," + json_status(table.status());
}

std::string Console::stream(const Words& words) {
  const auto table = client_.open_table(words[1]);
  if (!table.ok()) return json_status(table.status());
  client::ScanOptions options;
  options.credits = 1;
  Query rows;
  rows.select = {0};
  auto stream = client_.scan(*table, rows, options);
  if (stream.ok()) stream_ = std::move(stream).value();
  return json_status(stream.status());
}

std::string Console::drain() {
  const auto chunks = std::exchange(stream_, std::nullopt)->collect();
  uint64_t rows = 0;
  if (chunks.ok()) {
    for (const auto& chunk : *chunks) rows += chunk->rows();
  }
  return "\"rows\":" + std::to_string(rows) + "," + json_status(chunks.status());
}

std::string Console::answer(const Words& words) {
  const std::string& command = words[0];
  if (command == "transact") {
    const auto changes = changes_of(words);
    return changes.ok() ? json_attempt(accounts_.attempt(*changes)) : json_status(changes.status());
  }
  if (command == "load" && words.size() == 3) {
    const auto count = number<uint64_t>(words[1]);
    const auto balance = number<int64_t>(words[2]);
    if (!count.ok() || !balance.ok()) return json_status(wrong(words[1] + " " + words[2]));
    return json_status(accounts_.load(*count, *balance));
  }
  if (command == "begin" && words.size() == 2) {
    const auto count = number<uint64_t>(words[1]);
    return count.ok() ? begin(*count) : json_status(count.status());
  }
  if (command == "prepare") return prepare(words);
  if (command == "commit" || command == "reread" || command == "release") {
    if (!prepared_ || !prepared_->transaction) return json_status(wrong(command));
    if (command == "reread") return reread();
    BufferedTransaction prepared = *std::exchange(prepared_, std::nullopt);
    if (command == "commit") return json_attempt(accounts_.finish(std::move(prepared)));
    return json_status(prepared.transaction->abort());
  }
  if (command == "writable") return writable(words);
  if (command == "sum") {
    const auto sum = accounts_.sum();
    return "\"sum\":" + std::to_string(sum.ok() ? *sum : 0) + "," + json_status(sum.status());
  }
  if (command == "scan") return scan();
  if (command == "create") return create(words);
  if (command == "stream" && words.size() == 2) return stream(words);
  if (command == "drain" && stream_) return drain();
  if (command == "session") return "\"session\":" + std::to_string(client_.session().value) + "," + json_status({});
  return json_status(wrong(command));
}

void Console::run() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    Words words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) continue;
    std::printf("{%s}\n", answer(words).c_str());
    std::fflush(stdout);
  }
  prepared_.reset();
  stream_.reset();
}

}  // namespace loam::integration
