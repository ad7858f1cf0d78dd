// Sends the expressions to psql as the rows of a COPY, and reads the answers as those of another one.
#include "tests/postgres/postgres.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/assert.h"

namespace loam::testing {
namespace {

constexpr size_t kMaxReported = 5;

/// A field in the text format of COPY.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// The string of a field in the text format of COPY. \N, which is NULL, becomes the outcome of NULL.
std::string unescaped(std::string_view field) {
  if (field == "\\N") return outcome(Value::null());
  std::string out;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\') {
      out += field[i];
      continue;
    }
    const char c = field[++i];
    out += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
  }
  return out;
}

/// A file that ends with the object.
class TemporaryFile {
 public:
  TemporaryFile() {
    std::string path = (std::filesystem::temp_directory_path() / "loam-questions-XXXXXX").string();
    const int fd = mkstemp(path.data());
    LOAM_CHECK(fd >= 0, "a temporary file can be created");
    close(fd);
    path_ = path;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Runs psql on a script. Returns the lines of its output.
std::vector<std::string> run_psql(const std::string& script) {
  const char* const psql = std::getenv("LOAM_PSQL");
  if (psql == nullptr) {
    ADD_FAILURE() << "LOAM_PSQL is not set: run this program by tests/postgres/differential_test.py";
    return {};
  }
  const TemporaryFile file;
  std::ofstream(file.path()) << script;
  FILE* const output = popen((std::string(psql) + " <" + file.path()).c_str(), "r");
  LOAM_CHECK(output != nullptr, "a process can be started");
  std::string text;
  std::array<char, 65'536> part;
  while (const size_t size = fread(part.data(), 1, part.size(), output)) text.append(part.data(), size);
  EXPECT_EQ(pclose(output), 0) << "psql failed";
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string float_bits(double x) {
  if (std::isnan(x)) return "NaN";
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(std::bit_cast<uint64_t>(x + 0.0)));
  return text.data();
}

bool is_error(std::string_view loam) { return loam == kRefused || loam == kOverflow; }

}  // namespace

std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

std::string sql_type(FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return "smallint";
    case FieldType::kInt32:
      return "integer";
    case FieldType::kInt64:
      return "bigint";
    case FieldType::kFloat32:
      return "real";
    case FieldType::kFloat64:
      return "double precision";
    case FieldType::kText:
      return "text";
    case FieldType::kBlob:
      return "bytea";
    case FieldType::kDecimal:
      return "numeric(" + std::to_string(type.digits()) + "," + std::to_string(type.scale()) + ")";
    default:
      return to_string(type);
  }
}

std::string sql(const Value& value, FieldType type) {
  std::string text = value.to_string();
  if (type == FieldType::kBlob && !value.is_null()) text = "\\x" + text.substr(2, text.size() - 3);
  return (value.is_null() ? "NULL" : literal(text)) + "::" + sql_type(type);
}

std::string sql(const Value& value) { return sql(value, value.type()); }

std::string outcome(const Value& value) {
  return is_float(value.type()) ? float_bits(value.as_float64()) : value.to_string();
}

std::string outcome(const Result<Value>& value) {
  if (value.ok()) return outcome(*value);
  return std::string(value.code() == StatusCode::kOverflow ? kOverflow : kRefused);
}

Comparison::~Comparison() {
  if (!done_) run();
}

size_t Comparison::values() const {
  return static_cast<size_t>(std::ranges::count_if(cases_, [](const Case& c) { return !is_error(c.loam); }));
}

/// Describes how the answer differs; empty: it does not.
std::string Comparison::difference(const Case& question, std::string_view state, std::string_view value) const {
  std::string_view theirs = value, ours = question.loam;
  if (!state.empty()) theirs = state == "22003" ? kOverflow : kRefused;
  if (errors_ == Errors::kOfAnyKind) {
    if (!state.empty()) theirs = kRefused;
    if (is_error(ours)) ours = kRefused;
  }
  const bool wrong_question = !state.empty() && !state.starts_with("22");
  const bool same = question.states.empty() ? ours == theirs && state.empty() == !is_error(question.loam)
                                            : !state.empty() && question.states.find(state) != std::string::npos;
  if (same && !wrong_question) return "";
  std::string text = question.expression + "\n  Loam:       " + question.loam;
  if (!question.states.empty()) text += " (SQLSTATE " + question.states + ")";
  text += "\n  PostgreSQL: " + std::string(value);
  if (!state.empty()) text += " (SQLSTATE " + std::string(state) + ")";
  return text;
}

void Comparison::run() {
  done_ = true;
  std::string script =
      "CREATE TEMP TABLE questions (number serial, expression text);\nCOPY questions (expression) FROM STDIN;\n";
  for (const Case& question : cases_) script += escaped(question.expression) + "\n";
  script += "\\.\nCOPY (SELECT a.state, a.value FROM questions, answer(expression) a ORDER BY number) TO STDOUT;\n";
  const std::vector<std::string> answers = run_psql(script);
  ASSERT_EQ(answers.size(), cases_.size()) << "one answer for each question";
  size_t differences = 0;
  std::string report;
  for (size_t i = 0; i < cases_.size(); ++i) {
    const size_t tab = answers[i].find('\t');
    ASSERT_NE(tab, std::string::npos) << answers[i];
    const std::string found =
        difference(cases_[i], unescaped(answers[i].substr(0, tab)), unescaped(answers[i].substr(tab + 1)));
    if (!found.empty() && ++differences <= kMaxReported) report += "\n" + found;
  }
  if (differences != 0) ADD_FAILURE() << differences << " of " << cases_.size() << " cases differ" << report;
}

}  // namespace loam::testing
