// The lines of a history. The checker in Python reads them, so every value is plain JSON.
#include "tests/integration/history.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam::integration {
namespace {

std::string number(std::string_view name, uint64_t value) {
  return json_text(name) + ":" + std::to_string(value) + ",";
}

std::string_view name_of(WrittenRecord::Kind kind) {
  switch (kind) {
    case WrittenRecord::Kind::kInsert:
      return "insert";
    case WrittenRecord::Kind::kUpdate:
      return "update";
    case WrittenRecord::Kind::kRemove:
      return "remove";
  }
  return "";
}

/// The outcome of a transaction with this status, by the contract of Transaction::commit().
std::string_view outcome_of(const Status& status) {
  if (status.ok()) return "committed";
  return status == StatusCode::kUnknownOutcome ? "unknown" : "aborted";
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else {
      out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
    }
  }
  return out + "\"";
}

std::string json_status(const Status& status) {
  return std::string("\"ok\":") + (status.ok() ? "true" : "false") +
         ",\"code\":" + json_text(to_string(status.code())) + ",\"message\":" + json_text(status.message());
}

std::string json_attempt(const Attempt& attempt) {
  std::string out = number("n", attempt.number) + number("id", attempt.id.value) +
                    number("requested", attempt.requested_ns) + number("begun", attempt.begun_ns);
  out += "\"reads\":[";
  for (const ObservedRecord& read : attempt.reads) {
    if (&read != attempt.reads.data()) out += ',';
    out += '[' + std::to_string(read.key.value) + ',' + std::to_string(read.version.value) + ',' +
           std::to_string(read.balance) + ']';
  }
  out += "],\"writes\":[";
  for (const WrittenRecord& write : attempt.writes) {
    if (&write != attempt.writes.data()) out += ',';
    out += '[' + std::to_string(write.key.value) + ',' + json_text(name_of(write.kind)) + ',' +
           std::to_string(write.balance) + ']';
  }
  out += "],\"outcome\":" + json_text(outcome_of(attempt.status)) + ",";
  out += number("ended", attempt.ended_ns);
  return out + json_status(attempt.status);
}

History::History(const std::string& path, std::string client) : client_(std::move(client)) {
  if (path.empty()) return;
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
}

History::~History() {
  if (file_ >= 0) close(file_);
}

void History::append(std::string_view event, const std::string& members) {
  if (file_ < 0) return;
  const std::string line = "{\"event\":" + json_text(event) + ",\"client\":" + json_text(client_) +
                           ",\"at\":" + std::to_string(Env::now_ns()) + "," + members + "}\n";
  // One write(2) for each line: the kernel has the whole line when the call returns, and a killed process loses
  // nothing. O_APPEND keeps the lines of several processes whole.
  if (write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::perror("history");
    std::exit(1);
  }
}

void History::record_attempt(const Attempt& attempt) { append("attempt", json_attempt(attempt)); }

void History::record_outcome(const Attempt& attempt) {
  append("end", number("n", attempt.number) + number("id", attempt.id.value) +
                    "\"outcome\":" + json_text(outcome_of(attempt.status)) + "," + json_status(attempt.status));
}

void History::record_sum(uint64_t requested_ns, int64_t sum) {
  append("sum", number("requested", requested_ns) + "\"sum\":" + std::to_string(sum));
}

}  // namespace loam::integration
