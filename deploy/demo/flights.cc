// The five queries as options of `loam scan`, and one function for each that computes its answer by a loop over the
// file.
#include "deploy/demo/flights.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "deploy/cli/src/csv/convert.h"
#include "deploy/cli/src/csv/reader.h"

namespace loam::cli {
namespace {

/// The columns that the queries use.
struct Flight {
  std::string carrier, origin, dest;
  std::optional<double> dep_delay, arr_delay;
  double distance = 0;
};

/// Count, sum and maximum of the numbers that are not NULL.
struct Summary {
  int64_t rows = 0;
  int64_t known = 0;
  double sum = 0;
  double max = 0;

  void add(std::optional<double> x) {
    ++rows;
    if (!x) return;
    // The first value starts the maximum, because all values may be negative.
    max = known == 0 ? *x : std::max(max, *x);
    ++known;
    sum += *x;
  }
  Value average() const { return known == 0 ? Value::null() : Value::float64(sum / static_cast<double>(known)); }
  Value largest() const { return known == 0 ? Value::null() : Value::float64(max); }
};

class FlightFile {
 public:
  static Result<std::vector<Flight>> read(const std::string& path) {
    LOAM_ASSIGN_OR_RETURN(auto source, open_source(path));
    CsvReader reader(*source);
    CsvRow row;
    LOAM_ASSIGN_OR_RETURN(const bool has_header, reader.next(row));
    std::vector<std::string> names;
    if (has_header) {
      for (const CsvField& field : row.fields) names.emplace_back(field.text);
    }
    FlightFile columns;
    for (const auto& [name, index] :
         {std::pair("carrier", &columns.carrier_), std::pair("origin", &columns.origin_),
          std::pair("dest", &columns.dest_), std::pair("dep_delay", &columns.dep_delay_),
          std::pair("arr_delay", &columns.arr_delay_), std::pair("distance", &columns.distance_)}) {
      *index = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      if (*index == names.size()) {
        return Status(StatusCode::kMalformed, fmt::format("{} has no column {}; the demo asks about flights as in "
                                                          "deploy/cli/data",
                                                          path, name));
      }
    }
    std::vector<Flight> flights;
    for (;;) {
      LOAM_ASSIGN_OR_RETURN(const bool more, reader.next(row));
      if (!more) return flights;
      if (row.fields.size() != names.size()) {
        return Status(StatusCode::kMalformed, fmt::format("{}, line {}: {} fields where the header has {}", path,
                                                          row.line, row.fields.size(), names.size()));
      }
      flights.push_back(columns.flight(row));
    }
  }

 private:
  Flight flight(const CsvRow& row) const {
    const auto text = [&](size_t column) { return std::string(row.fields[column].text); };
    return {text(carrier_),          text(origin_),           text(dest_),
            number(row, dep_delay_), number(row, arr_delay_), number(row, distance_).value_or(0)};
  }
  static std::optional<double> number(const CsvRow& row, size_t column) {
    const std::string_view text = row.fields[column].text;
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
    return value;
  }

  size_t carrier_ = 0, origin_ = 0, dest_ = 0, dep_delay_ = 0, arr_delay_ = 0, distance_ = 0;
};

ResultRows delays_by_carrier(const std::vector<Flight>& flights) {
  std::map<std::string, Summary> groups;
  for (const Flight& flight : flights) groups[flight.carrier].add(flight.dep_delay);
  ResultRows rows;
  for (const auto& [carrier, s] : groups) {
    rows.push_back({Value::text(carrier), Value::int64(s.rows), s.average(), s.largest()});
  }
  return rows;
}

ResultRows delays_by_origin(const std::vector<Flight>& flights) {
  std::map<std::string, Summary> groups;
  for (const Flight& flight : flights) groups[flight.origin].add(flight.arr_delay);
  ResultRows rows;
  for (const auto& [origin, s] : groups) {
    rows.push_back({Value::text(origin), Value::int64(s.rows), Value::int64(s.known), s.average()});
  }
  return rows;
}

ResultRows busiest_destinations(const std::vector<Flight>& flights) {
  std::map<std::string, Summary> groups;
  for (const Flight& flight : flights) groups[flight.dest].add(flight.distance);
  ResultRows rows;
  for (const auto& [dest, s] : groups) {
    rows.push_back({Value::text(dest), Value::int64(s.rows), Value::float64(s.sum)});
  }
  return rows;
}

ResultRows late_from_kennedy(const std::vector<Flight>& flights) {
  Summary late;
  for (const Flight& flight : flights) {
    if (flight.origin == "JFK" && flight.dep_delay && *flight.dep_delay > 60) late.add(flight.dep_delay);
  }
  return {{Value::int64(late.rows), late.average(), late.largest()}};
}

ResultRows cancelled_by_carrier(const std::vector<Flight>& flights) {
  std::map<std::pair<std::string, std::string>, int64_t> groups;
  for (const Flight& flight : flights) {
    if (!flight.dep_delay) ++groups[{flight.carrier, flight.origin}];
  }
  ResultRows rows;
  for (const auto& [group, count] : groups) {
    rows.push_back({Value::text(group.first), Value::text(group.second), Value::int64(count)});
  }
  return rows;
}

bool is_number(const Value& value) { return !value.is_null() && !is_variable(value.type()); }
double as_number(const Value& value) {
  return is_float(value.type()) ? value.as_float64() : static_cast<double>(value.as_int64());
}

bool same(const Value& a, const Value& b) {
  if (a.is_null() || b.is_null()) return a.is_null() && b.is_null();
  if (is_number(a) != is_number(b)) return false;
  if (!is_number(a)) return a.as_text() == b.as_text();
  const double x = as_number(a);
  const double y = as_number(b);
  return std::abs(x - y) <= 1e-9 * std::max({1.0, std::abs(x), std::abs(y)});
}

std::string row_text(const std::vector<Value>& row) {
  std::string text;
  for (const Value& value : row) text += (text.empty() ? "" : " | ") + value.to_string();
  return text;
}

// The text columns of a row form the name of its group.
std::string group_of(const std::vector<Value>& row) {
  std::string group;
  for (const Value& value : row) {
    if (!value.is_null() && !is_number(value)) group += std::string(value.as_text()) + '\0';
  }
  return group;
}

}  // namespace

std::vector<FlightQuery> flight_queries() {
  std::vector<FlightQuery> questions(5);
  questions[0].title = "Which carriers leave late?";
  questions[0].text.aggregate = "count(*) as flights, avg(dep_delay) as mean_delay, max(dep_delay) as worst";
  questions[0].text.group_by = "carrier";
  questions[0].text.order_by = "mean_delay desc";
  questions[1].title = "How late do flights from each airport arrive?";
  questions[1].text.aggregate = "count(*) as flights, count(arr_delay) as arrived, avg(arr_delay) as mean_delay";
  questions[1].text.group_by = "origin";
  questions[1].text.order_by = "mean_delay desc";
  questions[2].title = "Which destinations are the busiest?";
  questions[2].text.aggregate = "count(*) as flights, sum(distance) as miles";
  questions[2].text.group_by = "dest";
  questions[2].text.order_by = "flights desc";
  questions[3].title = "How many leave Kennedy more than an hour late?";
  questions[3].text.where = "dep_delay > 60 and origin = 'JFK'";
  questions[3].text.aggregate = "count(*) as flights, avg(dep_delay) as mean_delay, max(dep_delay) as worst";
  questions[4].title = "Who cancels, and where?";
  questions[4].text.where = "dep_delay is null";
  questions[4].text.aggregate = "count(*) as cancelled";
  questions[4].text.group_by = "carrier, origin";
  questions[4].text.order_by = "cancelled desc";
  return questions;
}

Result<std::vector<ResultRows>> expected_results(const std::string& path) {
  LOAM_ASSIGN_OR_RETURN(const std::vector<Flight> flights, FlightFile::read(path));
  return std::vector<ResultRows>{delays_by_carrier(flights), delays_by_origin(flights), busiest_destinations(flights),
                                 late_from_kennedy(flights), cancelled_by_carrier(flights)};
}

Status compare_results(const ResultRows& got, const ResultRows& expected) {
  const auto wrong = [](const std::string& what) { return Status(StatusCode::kInternal, what); };
  if (got.size() != expected.size()) {
    return wrong(fmt::format("the scan gave {} rows, the file says {}", got.size(), expected.size()));
  }
  std::map<std::string, const std::vector<Value>*> by_group;
  // Rows are matched by their group, because --order-by leaves the order of equal values open.
  for (const auto& row : expected) by_group[group_of(row)] = &row;
  for (const auto& row : got) {
    const auto found = by_group.find(group_of(row));
    if (found == by_group.end())
      return wrong(fmt::format("the scan gave the row {}, the file has none", row_text(row)));
    const std::vector<Value>& other = *found->second;
    if (!std::equal(row.begin(), row.end(), other.begin(), other.end(), same)) {
      return wrong(fmt::format("the scan gave {}, the file says {}", row_text(row), row_text(other)));
    }
    by_group.erase(found);  // so that a duplicate row counts as a difference
  }
  return ok_status();
}

std::optional<std::string> find_sample() {
  namespace fs = std::filesystem;
  // The installed program has the sample in ../share/loam. A program of the build folder finds it in a folder above.
  std::vector<fs::path> places;
  if (const char* directory = std::getenv("LOAM_DATA"); directory != nullptr) places.emplace_back(directory);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(program.parent_path() / "../share/loam");
    for (fs::path up = program.parent_path(); up != up.parent_path(); up = up.parent_path()) {
      places.push_back(up / "deploy/cli/data");
    }
  }
  for (const fs::path& place : places) {
    if (fs::exists(place / kSampleName, error)) return fs::weakly_canonical(place / kSampleName, error).string();
  }
  return std::nullopt;
}

}  // namespace loam::cli
