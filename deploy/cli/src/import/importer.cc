// The phases of an import: Importer::open() and find_table() prepare it, load() reads the rows and submits batches,
// and run() computes the lines that are left. loader.cc writes the batches.
#include "deploy/cli/src/import/importer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/env.h"
#include "deploy/cli/src/csv/sniff.h"
#include "deploy/cli/src/import/advice.h"
#include "deploy/cli/src/import/input.h"
#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/query/fields.h"

namespace loam::cli {
namespace {

/// Number of rows between two calls of progress().
constexpr uint64_t kProgressRows = 256;

// The name of the key column if `loam scan --with-key --csv` wrote the header; that column is the first one.
std::optional<std::string> key_column_of_scan(const std::vector<std::string>& header) {
  if (column_name_beside(kKeyColumn, std::span(header).subspan(1)) != header[0]) return std::nullopt;
  return header[0];
}

// Returns whether a scan would give this name to the key column beside the other columns. Then it is no field.
bool is_key_of_scan(const std::string& name, std::vector<std::string> header) {
  std::erase(header, name);
  return column_name_beside(kKeyColumn, header) == name;
}

class Importer {
 public:
  Importer(client::Client& client, const ImportOptions& options) : client_(client), options_(options) {}

  Result<ImportReport> run() {
    const Status status = import();
    report_.interrupted |= status == StatusCode::kCancelled;
    if (!status.ok() && !report_.interrupted) return status;
    // The remaining lines are the requested lines without those that were imported, lie after the end of the file, or
    // are blank. Lines of bad rows and of batches with an unknown outcome stay in the set, so the user can repeat
    // them.
    report_.remaining = options_.lines;
    if (options_.lines.empty()) report_.remaining.add({header_end_, LineRange::kOpen});
    if (report_.finished) report_.remaining.subtract(LineRange{reader_->last_line() + 1, LineRange::kOpen});
    report_.remaining.subtract(report_.outcome.imported_lines);
    report_.remaining.subtract(blank_);
    return std::move(report_);
  }

 private:
  Status import() {
    // Phase 1: open the input and the table. An error up to the loader means that no row was written.
    LOAM_RETURN_IF_ERROR(open());
    LOAM_ASSIGN_OR_RETURN(const client::Table table, find_table());
    auto converter = RowConverter::make(table.schema(), header_, options_.key_column, options_.nulls);
    if (!converter.ok()) return at_input(converter.status());
    std::optional<client::Counter> counter;
    if (!options_.key_column) {
      LOAM_ASSIGN_OR_RETURN(counter, client_.counter("import." + table.name(), options_.batch_rows));
    }
    // Phase 2: load the rows. The loader ends in this block, before its outcome is used.
    {
      Loader loader(client_, table, counter ? &*counter : nullptr,
                    {options_.skip_bad_rows, std::max<size_t>(options_.batches_in_flight, 1)});
      loader_ = &loader;
      load(*converter);
      report_.outcome = loader.finish();
    }
    // Phase 3: explain rows that did not fit, and drop a table whose fields were inferred wrongly.
    report_.encoding = converter->encoding();
    widen_guess();
    drop_misfit(table);
    return ok_status();
  }

  Status at_input(const Status& status) const {
    return {status.code(), fmt::format("{}: {}", input_->name(), status.message())};
  }

  void note(const std::string& text) const {
    if (options_.note) options_.note(fmt::format("{}: {}", input_->name(), text));
  }

  // Opens the input and recognises its content and delimiter.
  Status open() {
    LOAM_ASSIGN_OR_RETURN(input_, Input::open(options_.path, options_.stop));
    const std::string_view beginning = input_->beginning();
    if (const auto other = recognise_content(beginning)) return conversion_advice(options_, "line 1", *other);
    if (options_.delimiter) {
      report_.delimiter = *options_.delimiter;
      return ok_status();
    }
    const SniffedDelimiter sniffed = sniff_delimiter(beginning, input_->beginning_is_all());
    report_.delimiter = sniffed.delimiter;
    if (sniffed.delimiter != ',') {
      note(fmt::format("the first rows have their fields between {}; if that is wrong, say --delimiter ,",
                       shell_word(delimiter_text(sniffed.delimiter))));
    }
    for (const char other : sniffed.others) {
      const std::string text = shell_word(delimiter_text(other));
      note(fmt::format("fields are taken to be between commas; if they are between {0}, say --delimiter {0}", text));
    }
    return ok_status();
  }

  // Opens or creates the table. Afterwards header_ is read, and the reader stands at the first row.
  Result<client::Table> find_table() {
    // Step 1: determine the schema: that of --schema, of the existing table, or an inferred one.
    auto table = open_table(client_, options_.table);
    if (!table.ok() && table.code() != StatusCode::kNoSuchTable) return table;
    std::optional<Schema> schema;
    if (!options_.schema.empty()) {
      LOAM_ASSIGN_OR_RETURN(schema, parse_fields(options_.schema));
    } else if (!table.ok()) {
      LOAM_ASSIGN_OR_RETURN(schema, guess_schema());
    }
    // Step 2: read the header before the table is created, so that a bad header creates no table.
    LOAM_RETURN_IF_ERROR(begin_rows());
    if (!options_.key_column) LOAM_RETURN_IF_ERROR(check_key_column(schema ? *schema : table->schema()));
    // Step 3: create the table. For an existing one, create_table() also checks that --schema agrees with it.
    if (!schema) return table;
    report_.created_table = !table.ok();
    return client_.create_table(options_.table, options_.kind,
                                *schema);  // fails if the table has another schema or kind
  }

  Status begin_rows() {
    rows_ = input_->rows([this] { return deadline_ns_; }, [this] { return on_deadline(); });
    reader_ = std::make_unique<CsvReader>(*rows_, report_.delimiter);
    LOAM_ASSIGN_OR_RETURN(header_, read_header(*reader_));
    header_end_ = reader_->line();
    return ok_status();
  }

  Result<std::vector<std::string>> read_header(CsvReader& reader) const {
    CsvRow row;
    auto more = reader.next(row);
    if (!more.ok()) return reader.failed() ? more.status() : at_input(more.status());
    if (!*more || row.blank()) {
      return Status(StatusCode::kMalformed,
                    fmt::format("{}: line 1 is empty; the first line must name the columns", input_->name()));
    }
    for (const CsvField& field : row.fields) {
      if (is_utf8(field.text)) continue;
      return conversion_advice(options_, fmt::format("line {}, column {}", field.line, field.column),
                               eight_bit_encoding(field.text));
    }
    auto names = header_names(row);
    if (!names.ok()) return at_input(names.status());
    return names;
  }

  // A column of keys becomes a field only if the table has this field, or --schema names it.
  Status check_key_column(const Schema& schema) const {
    const auto column = key_column_of_scan(header_);
    if (!column || schema.find(*column)) return ok_status();
    const std::vector<OptionValues> instead = {{"--key", {*column}}};
    return {StatusCode::kMalformed,
            fmt::format("{}: line 1: the column {} has the keys of records, as `loam scan --with-key` writes them; "
                        "--schema can make it a field, and this takes the keys from it:\n  {}",
                        input_->name(), *column, import_command(options_, instead))};
  }

  Result<Schema> guess_schema() {
    uint64_t rows = 0;
    LOAM_ASSIGN_OR_RETURN(const auto sample, input_->sample([&rows] { return rows > 0; }));
    CsvReader reader(*sample, report_.delimiter);
    LOAM_ASSIGN_OR_RETURN(std::vector<std::string> names, read_header(reader));
    header_ = names;
    std::optional<std::string> not_a_field;
    if (options_.key_column && is_key_of_scan(*options_.key_column, names)) not_a_field = options_.key_column;
    if (!options_.key_column) not_a_field = key_column_of_scan(names);  // check_key_column() rejects it later
    if (const size_t fields = names.size() - (not_a_field ? 1 : 0); fields > kMaxFields) {
      return at_input({StatusCode::kMalformed,
                       fmt::format("line 1: the header names {} fields, and a table has at most {}; divide the columns "
                                   "among several files and tables",
                                   fields, kMaxFields)});
    }
    inference_.emplace(std::move(names), options_.nulls, not_a_field);
    CsvRow row;
    // Bad rows do not affect the inferred types; the import reports them when it loads them.
    for (;;) {
      auto more = reader.next(row);
      if (!more.ok() && reader.failed()) return more.status();
      if (!more.ok()) continue;
      if (!*more) break;
      if (!reader.row_was_whole() && !input_->sample_is_all()) break;  // the sample ends in the middle of a row
      inference_->add(row);
      ++rows;
    }
    auto schema = inference_->schema(input_->sample_is_all());
    if (!schema.ok()) {
      return at_input(
          {StatusCode::kMalformed, fmt::format("line 1: the header makes no table: {}", schema.status().message())});
    }
    if (input_->sample_is_all()) {
      inference_.reset();  // all rows fit
    } else {
      note(fmt::format("the fields are guessed from the first {} rows: {}; if that is wrong, say --schema", rows,
                       shell_word(format_fields(*schema))));
    }
    return schema;
  }

  void load(RowConverter& converter) {
    CsvRow row;
    uint64_t rows = 0;
    // Each iteration reads one row. A row of a line that is not requested is parsed all the same, because only the
    // parser knows where the next row begins.
    while (!loader_->stopped()) {
      if (rows++ % kProgressRows == 0 && !report_progress()) break;
      const uint64_t line = reader_->line();
      auto more = reader_->next(row);
      if (reader_->failed()) {
        note_end_of_reading(more.status());
        break;
      }
      if (!more.ok()) {
        if (is_selected(line) && !report_bad_row(line, more.status())) break;
        continue;
      }
      if (!*more) {
        report_.finished = true;
        break;
      }
      if (!is_selected(line)) continue;
      const LineRange lines{line, reader_->last_line()};
      // With one column an empty line is a row with an empty field. With several it is no row, and need not be
      // imported later.
      if (row.blank() && header_.size() > 1) {
        blank_.add(lines);
        continue;
      }
      if (!add_row(converter, row, lines)) break;
    }
    // The last batch is also submitted after a bad row: the rows before it are valid.
    loader_->submit(std::move(batch_));
  }

  void note_end_of_reading(const Status& status) {
    if (status == StatusCode::kCancelled) {
      report_.interrupted = true;
    } else if (!loader_->stopped()) {
      loader_->fail(status);
    }
  }

  bool is_selected(uint64_t line) const { return options_.lines.empty() || options_.lines.contains(line); }

  bool report_bad_row(uint64_t line, const Status& bad_row) const {
    loader_->add_bad_row(line, std::string(bad_row.message()));
    return options_.skip_bad_rows;
  }

  // Returns false if the import must stop; the rows before this one are still written.
  bool add_row(RowConverter& converter, const CsvRow& row, LineRange lines) {
    auto record = converter.convert(row);
    // Rows after a misfit are added, too, so that the proposed fields fit all rows that were read.
    if (inference_) add_to_guess(row, record.ok());
    if (!record.ok()) return report_bad_row(lines.first, record.status());
    if (batch_.rows.empty()) deadline_ns_ = Env::now_ns() + kBatchWaitNs;
    batch_.add(lines, record->key, record->row);
    if (batch_.rows.size() >= options_.batch_rows || batch_.bytes.size() >= kBatchBytes) submit();
    return true;
  }

  void submit() {
    loader_->submit(std::exchange(batch_, Batch()));
    deadline_ns_ = Env::now_ns() + kBatchWaitNs;  // on_deadline() then checks the outcome of the batch
  }

  // Runs while the input is silent: submits a batch that is not full, and ends an import that has failed.
  Status on_deadline() {
    if (loader_->stopped()) return {StatusCode::kTimeout, "the import has stopped"};
    if (!batch_.rows.empty()) {
      submit();
    } else {
      deadline_ns_ = loader_->idle() ? 0 : Env::now_ns() + kBatchWaitNs;
    }
    return ok_status();
  }

  // Adds a row that does not fit the inferred fields to the inference.
  void add_to_guess(const CsvRow& row, bool fits) {
    if (fits || report_.misfit_line != 0) {
      inference_->add(row);
      return;
    }
    // Only a row that changes the inferred fields is a misfit. A row may also fail for another reason, such as its
    // size or its key.
    const auto before = inference_->schema(false);
    inference_->add(row);
    const auto after = inference_->schema(false);
    if (before.ok() && after.ok() && *before != *after) report_.misfit_line = row.line;
  }

  // If rows did not fit the inferred fields, determines fields that fit all rows that were read.
  void widen_guess() {
    if (report_.misfit_line == 0) return;
    const auto schema = inference_->schema(false);
    if (schema.ok()) report_.wider_schema = format_fields(*schema);
  }

  // Drops a table whose fields were inferred wrongly, because it is in the way of a better one. Keeps it if the drop
  // fails.
  void drop_misfit(const client::Table& table) {
    const bool stopped_by_misfit = !report_.wider_schema.empty() && !options_.skip_bad_rows;
    if (!stopped_by_misfit || !report_.created_table || !report_.outcome.fatal.ok()) return;
    // Checks that the table is still the one that this import created, and holds its records only. Another client may
    // write between the check and the drop; its records are then lost with the table.
    const auto now = client_.open_table(table.name());
    const auto records = count_records(table);
    const bool is_ours = now.ok() && now->id() == table.id() && records.ok() && *records == report_.outcome.imported;
    if (!is_ours || !client_.drop_table(table.name()).ok()) return;
    report_.dropped_table = true;
    report_.created_table = false;
    report_.outcome.imported = 0;
    report_.outcome.imported_lines = LineRanges();
  }

  Result<uint64_t> count_records(const client::Table& table) {
    Query query;
    query.aggregates = {{AggregateOp::kCountAll, 0}};
    LOAM_ASSIGN_OR_RETURN(client::ScanStream stream, client_.scan(table, query));
    LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
    if (chunks.size() != 1 || chunks[0]->rows() != 1) {
      return Status(StatusCode::kInternal, "a scan that counts records did not give one row");
    }
    return static_cast<uint64_t>(chunks[0]->view().get<int64_t>(0, 0));
  }

  // Returns false if the import must stop.
  bool report_progress() {
    if (!options_.progress) return true;
    // A pipe has no size, so its fraction is unknown.
    const uint64_t total = rows_->total_bytes();
    const double fraction = total == 0 ? -1 : static_cast<double>(rows_->consumed_bytes()) / static_cast<double>(total);
    if (options_.progress(fraction, loader_->imported())) return true;
    report_.interrupted = true;
    return false;
  }

  client::Client& client_;
  const ImportOptions& options_;
  std::unique_ptr<Input> input_;
  std::unique_ptr<ByteSource> rows_;  // refers to input_
  std::unique_ptr<CsvReader> reader_;
  std::vector<std::string> header_;
  uint64_t header_end_ = 2;                   // the line after the header
  std::optional<SchemaInference> inference_;  // set if the fields of the table were inferred from a sample
  Loader* loader_ = nullptr;                  // set while rows are loaded
  Batch batch_;
  uint64_t deadline_ns_ = 0;  // when read() calls on_deadline(); 0: never
  LineRanges blank_;
  ImportReport report_;
};

}  // namespace

Result<ImportReport> import_file(client::Client& client, const ImportOptions& options) {
  return Importer(client, options).run();
}

}  // namespace loam::cli
