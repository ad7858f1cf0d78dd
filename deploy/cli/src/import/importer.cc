#include "deploy/cli/src/import/importer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "deploy/cli/src/index/handles.h"
#include "deploy/cli/src/query/fields.h"

namespace loam::cli {
namespace {

/// Rows between two calls of progress().
constexpr uint64_t kProgressRows = 256;

Status at_file(const Status& status, const std::string& name) {
  return Status(status.code(), fmt::format("{}: {}", name, status.message()));
}

class Importer {
 public:
  Importer(client::Client& client, const ImportOptions& options) : client_(client), options_(options) {}

  Result<ImportReport> run() {
    LOAM_RETURN_IF_ERROR(open());
    LOAM_ASSIGN_OR_RETURN(const client::Table table, find_table());
    auto converter = RowConverter::make(table.schema(), header_, options_.key_column, options_.nulls);
    if (!converter.ok()) return at_file(converter.status(), source_->name());
    std::optional<client::Counter> counter;
    if (!options_.key_column) {
      LOAM_ASSIGN_OR_RETURN(counter, client_.counter("import." + table.name(), options_.batch_rows));
    }
    {
      Loader loader(client_, table, counter ? &*counter : nullptr,
                    {options_.skip_bad_rows, std::max<size_t>(options_.batches_in_flight, 1)});
      load(loader, *converter);
      report_.outcome = loader.finish();
    }
    report_.left = options_.lines;
    if (options_.lines.empty()) report_.left.add({header_end_, LineRange::kOpen});
    if (report_.finished) report_.left.subtract(LineRange{reader_->line(), LineRange::kOpen});
    report_.left.subtract(report_.outcome.imported_lines);
    report_.left.subtract(blank_);
    return std::move(report_);
  }

 private:
  // Opens the file and reads the header.
  Status open() {
    LOAM_ASSIGN_OR_RETURN(source_, open_source(options_.path));
    if (options_.path == "-" || source_->total_bytes() == 0) LOAM_RETURN_IF_ERROR(read_ahead());
    reader_ = std::make_unique<CsvReader>(*source_, options_.delimiter);
    LOAM_ASSIGN_OR_RETURN(header_, read_header(*reader_));
    header_end_ = reader_->line();
    return ok_status();
  }

  // The standard input, file or pipe, is read once: its beginning is kept for the inference.
  Status read_ahead() {
    sample_.resize(kSampleBytes);
    size_t filled = 0;
    while (filled < sample_.size()) {
      LOAM_ASSIGN_OR_RETURN(const size_t got, source_->read(std::span(sample_).subspan(filled)));
      if (got == 0) break;
      filled += got;
    }
    sample_is_all_ = filled < sample_.size();
    sample_.resize(filled);
    source_ = prepend(sample_, std::move(source_));
    return ok_status();
  }

  Result<std::vector<std::string>> read_header(CsvReader& reader) {
    CsvRow row;
    auto more = reader.next(row);
    if (!more.ok()) return at_file(more.status(), source_->name());
    if (!*more || row.blank()) {
      return Status(StatusCode::kMalformed,
                    fmt::format("{}: line 1 is empty; the first line must name the columns", source_->name()));
    }
    auto names = header_names(row);
    if (!names.ok()) return at_file(names.status(), source_->name());
    return names;
  }

  Result<client::Table> find_table() {
    auto table = open_table(client_, options_.table);
    if (!table.ok() && table.code() != StatusCode::kNoSuchTable) return table;
    if (table.ok() && options_.schema.empty()) return table;
    LOAM_ASSIGN_OR_RETURN(const Schema schema, options_.schema.empty() ? infer() : parse_fields(options_.schema));
    report_.created_table = !table.ok();
    return client_.create_table(options_.table, options_.kind, schema);  // refuses another schema or kind
  }

  Result<Schema> infer() {
    const bool from_sample = !sample_.empty();
    std::unique_ptr<ByteSource> again;
    if (from_sample) {
      again = source_of_text(sample_);
    } else {
      LOAM_ASSIGN_OR_RETURN(again, open_source(options_.path));
    }
    CsvReader reader(*again, options_.delimiter);
    LOAM_ASSIGN_OR_RETURN(std::vector<std::string> names, read_header(reader));
    SchemaInference inference(std::move(names), options_.nulls);
    const bool whole = !from_sample || sample_is_all_;
    CsvRow row;
    // Bad rows say nothing about types; they are reported when they are loaded.
    for (;;) {
      auto more = reader.next(row);
      if (!more.ok() && reader.failed()) return more.status();
      if (!more.ok()) continue;
      if (!*more) break;
      const bool cut_off = !whole && again->taken_bytes() == again->total_bytes();  // perhaps in the middle of a row
      if (!cut_off) inference.add(row);
    }
    return inference.schema(whole);
  }

  void load(Loader& loader, RowConverter& converter) {
    CsvRow row;
    uint64_t rows = 0;
    while (!loader.stopped()) {
      if (rows++ % kProgressRows == 0 && !told(loader)) break;
      const uint64_t line = reader_->line();
      auto more = reader_->next(row);
      if (reader_->failed()) {
        loader.fail(more.status());
        break;
      }
      if (!more.ok()) {
        if (wanted(line) && !goes_on_after(loader, line, more.status())) break;
        continue;
      }
      if (!*more) {
        report_.finished = true;
        break;
      }
      if (!wanted(line)) continue;
      const LineRange lines{line, reader_->line() - 1};
      if (row.blank() && header_.size() > 1) {
        blank_.add(lines);
        continue;
      }
      if (!take(loader, converter, row, lines)) break;
    }
    loader.submit(std::move(batch_));
  }

  bool wanted(uint64_t line) const { return options_.lines.empty() || options_.lines.contains(line); }

  bool goes_on_after(Loader& loader, uint64_t line, const Status& bad_row) const {
    loader.add_bad_row(line, std::string(bad_row.message()));
    return options_.skip_bad_rows;
  }

  // False if the import is to stop; the rows before this one are then still written.
  bool take(Loader& loader, RowConverter& converter, const CsvRow& row, LineRange lines) {
    auto record = converter.convert(row);
    if (!record.ok()) return goes_on_after(loader, lines.first, record.status());
    batch_.add(lines, record->key, record->row);
    if (batch_.rows.size() >= options_.batch_rows || batch_.bytes.size() >= kBatchBytes) {
      loader.submit(std::exchange(batch_, Batch()));
    }
    return true;
  }

  // False if the import is to stop.
  bool told(const Loader& loader) {
    if (!options_.progress) return true;
    const uint64_t total = source_->total_bytes();
    const double fraction = total == 0 ? -1 : static_cast<double>(source_->taken_bytes()) / static_cast<double>(total);
    if (options_.progress(fraction, loader.imported())) return true;
    report_.interrupted = true;
    return false;
  }

  client::Client& client_;
  const ImportOptions& options_;
  std::unique_ptr<ByteSource> source_;
  std::string sample_;
  bool sample_is_all_ = false;
  std::unique_ptr<CsvReader> reader_;
  std::vector<std::string> header_;
  uint64_t header_end_ = 2;  // the line after the header
  Batch batch_;
  LineRanges blank_;
  ImportReport report_;
};

}  // namespace

Result<ImportReport> import_file(client::Client& client, const ImportOptions& options) {
  return Importer(client, options).run();
}

}  // namespace loam::cli
