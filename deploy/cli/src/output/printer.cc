// The three printers of rows: TablePrinter, JsonPrinter and CsvPrinter.
#include "deploy/cli/src/output/printer.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "deploy/cli/src/output/display_width.h"

namespace loam::cli {
namespace {

/// Whether the values are printed as numbers.
bool is_numeric(FieldType type) { return type == FieldType::kUint64 || is_number(type); }

class TablePrinter final : public RowPrinter {
 public:
  TablePrinter(std::vector<OutputColumn> columns, std::ostream& out) : columns_(std::move(columns)), out_(out) {
    std::vector<std::string> header;
    for (const OutputColumn& column : columns_) {
      header.push_back(printable(column.name));
      widths_.push_back(display_width(header.back()));
    }
    waiting_.push_back(std::move(header));
  }

  void row(std::span<const Value> values) override {
    std::vector<std::string> cells;
    cells.reserve(values.size());
    for (const Value& value : values) cells.push_back(printable(value.is_null() ? "NULL" : value.to_string()));
    // The widths are fixed once the first rows are printed, so later rows need no memory.
    if (measured_) {
      print(cells);
      return;
    }
    for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], display_width(cells[i]));
    waiting_.push_back(std::move(cells));
    if (waiting_.size() > kMeasuredRows) print_waiting();
  }

  void finish() override {
    if (!measured_) print_waiting();
  }

 private:
  void print_waiting() {
    measured_ = true;
    print(waiting_.front());
    std::string rule;
    for (size_t i = 0; i < widths_.size(); ++i) rule += (i == 0 ? "" : "  ") + std::string(widths_[i], '-');
    out_ << rule << '\n';
    for (size_t i = 1; i < waiting_.size(); ++i) print(waiting_[i]);
    waiting_.clear();
  }

  void print(const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const size_t width = display_width(cells[i]);
      const std::string space(widths_[i] > width ? widths_[i] - width : 0, ' ');
      const bool last = i + 1 == cells.size();
      if (i > 0) line += "  ";
      // The last column gets no spaces after it, so that lines have no trailing spaces.
      line += is_numeric(columns_[i].type) ? space + cells[i] : cells[i] + (last ? "" : space);
    }
    out_ << line << '\n';
  }

  std::vector<OutputColumn> columns_;
  std::ostream& out_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> waiting_;  // the header and the rows that determine the widths
  bool measured_ = false;
};

// Writes the JSON itself. The names are escaped once, and numbers of 64 bits are printed exactly.
class JsonPrinter final : public RowPrinter {
 public:
  JsonPrinter(const std::vector<OutputColumn>& columns, std::ostream& out) : out_(out) {
    for (const OutputColumn& column : columns) names_.push_back(text(column.name));
  }

  void row(std::span<const Value> values) override {
    std::string line = "{";
    for (size_t i = 0; i < values.size(); ++i) {
      line += (i == 0 ? "" : ",") + names_[i] + ":" + json(values[i]);
    }
    out_ << line << "}\n";
  }
  void finish() override {}

 private:
  static std::string text(std::string_view value) {
    return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  static std::string json(const Value& value) {
    if (value.is_null()) return "null";
    if (is_float(value.type()) && !std::isfinite(value.as_float64())) {
      const double x = value.as_float64();
      return std::isnan(x) ? "\"nan\"" : x > 0 ? "\"inf\"" : "\"-inf\"";
    }
    if (is_numeric(value.type()) || value.type() == FieldType::kBoolean) return value.to_string();
    if (value.type() == FieldType::kBlob) {
      std::string hex = value.to_string();  // x'0a0b'
      return "\"" + hex.substr(2, hex.size() - 3) + "\"";
    }
    return text(value.to_string());
  }

  std::vector<std::string> names_;
  std::ostream& out_;
};

class CsvPrinter final : public RowPrinter {
 public:
  CsvPrinter(const std::vector<OutputColumn>& columns, std::ostream& out) : out_(out) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) line += (i == 0 ? "" : ",") + field(columns[i].name);
    out_ << line << "\n";
  }

  void row(std::span<const Value> values) override {
    std::string line;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) line += ',';
      if (!values[i].is_null()) line += field(values[i].to_string());
    }
    if (values.size() == 1 && values[0].is_null()) line = "NA";  // an empty line would not count as a row
    out_ << line << '\n';
  }
  void finish() override {}

 private:
  // Quotes a text that an import would otherwise misread: a word for NULL, or a text with a possible delimiter.
  static std::string field(std::string_view text) {
    if (!text.empty() && text != "NA" && text.find_first_of(",;\t|\"\r\n") == std::string_view::npos) {
      return std::string(text);
    }
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
  }

  std::ostream& out_;
};

}  // namespace

void RowPrinter::rows(const ChunkView& chunk, size_t count) {
  std::vector<Value> values(chunk.columns());
  for (size_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < values.size(); ++c) values[c] = chunk.value(c, i);
    row(values);
  }
}

std::unique_ptr<RowPrinter> make_printer(OutputFormat format, std::vector<OutputColumn> columns, std::ostream& out) {
  switch (format) {
    case OutputFormat::kJson:
      return std::make_unique<JsonPrinter>(columns, out);
    case OutputFormat::kCsv:
      return std::make_unique<CsvPrinter>(columns, out);
    case OutputFormat::kTable:
      break;
  }
  return std::make_unique<TablePrinter>(std::move(columns), out);
}

}  // namespace loam::cli
