// The units of sizes and durations, the kinds of options, and the three forms in which all options are printed.
#include "common/program/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <span>
#include <utility>

#include "common/base/quoted.h"

namespace loam::program {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// The units, the largest first. Several names may have one factor; the first of them is printed.
constexpr std::array<Unit, 13> kSizeUnits = {{{"TiB", uint64_t{1} << 40},
                                              {"GiB", uint64_t{1} << 30},
                                              {"MiB", uint64_t{1} << 20},
                                              {"KiB", uint64_t{1} << 10},
                                              {"TB", uint64_t{1} << 40},
                                              {"GB", uint64_t{1} << 30},
                                              {"MB", uint64_t{1} << 20},
                                              {"KB", uint64_t{1} << 10},
                                              {"T", uint64_t{1} << 40},
                                              {"G", uint64_t{1} << 30},
                                              {"M", uint64_t{1} << 20},
                                              {"K", uint64_t{1} << 10},
                                              {"B", 1}}};
constexpr std::array<Unit, 6> kDurationUnits = {{{"h", 3'600'000'000'000},
                                                 {"min", 60'000'000'000},
                                                 {"s", 1'000'000'000},
                                                 {"ms", 1'000'000},
                                                 {"us", 1'000},
                                                 {"ns", 1}}};

constexpr std::string_view kSizeExpected = "a size such as 64MiB, or a number of bytes";
constexpr std::string_view kDurationExpected = "a duration such as 500us, 10ms, 2s or 5min";

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

/// Reads a number and one of the units. `bare`: the unit may be missing. A 0 needs no unit in any case.
Result<uint64_t> parse_with_unit(std::string_view text, std::span<const Unit> units, bool bare, std::string_view what) {
  // The unit may follow the digits after spaces, and its letters may have either case.
  const std::string_view digits = leading_digits(text);
  const auto parsed = parse_unsigned(digits);
  if (!parsed.ok()) return not_expected(what, text);
  const uint64_t number = *parsed;
  std::string_view unit = text.substr(digits.size());
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) {
    if (bare || number == 0) return number;
    return not_expected(what, text);
  }
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return same_letters(u.name, unit); });
  // The division detects a product above 64 bits before it is computed.
  if (found == units.end() || number > UINT64_MAX / found->factor) return not_expected(what, text);
  return number * found->factor;
}

std::string with_range(std::string_view what, const std::string& min, const std::string& max) {
  std::string text(what);
  text.append(", from ").append(min).append(" to ").append(max);
  return text;
}

/// Reads a number by `parse` and checks the range. `what` describes form and range for the message.
Result<uint64_t> parse_in_range(std::string_view text, UnsignedRange range, Result<uint64_t> (*parse)(std::string_view),
                                const std::string& what) {
  const auto parsed = parse(text);
  if (!parsed.ok() || *parsed < range.min || *parsed > range.max) return not_expected(what, text);
  return *parsed;
}

/// Writes `value` in the largest unit that divides it. `smallest` is the unit of a number that none divides.
std::string with_unit(uint64_t value, std::span<const Unit> units, std::string_view smallest) {
  for (const Unit& unit : units) {
    // 0 is divisible by every unit, so it is printed in the smallest one.
    if (unit.factor > 1 && value != 0 && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(value) + std::string(smallest);
}

std::string number_text(double value) {
  std::array<char, 32> out;
  const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), value);
  std::string text(out.data(), error == std::errc() ? end : out.data());
  // TOML distinguishes floats from integers, so a float without a fraction gets one.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// The value as a literal, which is valid in TOML and in JSON.
std::string literal(const OptionValue& value) {
  struct Printer {
    std::string operator()(bool shown) const { return shown ? "true" : "false"; }
    std::string operator()(uint64_t shown) const { return std::to_string(shown); }
    std::string operator()(double shown) const { return number_text(shown); }
    std::string operator()(const std::string& shown) const { return quoted(shown); }
  };
  return std::visit(Printer(), value);
}

/// The value of an option for people other than its owner.
OptionValue shown(const Option& option, Secrets secrets) {
  OptionValue value = option.show();
  const auto* const text = std::get_if<std::string>(&value);
  if (secrets == Secrets::kHidden && is_secret(option.name) && text != nullptr && !text->empty()) return "(hidden)";
  return value;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) { return parse_with_unit(text, kSizeUnits, true, kSizeExpected); }
Result<uint64_t> parse_duration(std::string_view text) {
  return parse_with_unit(text, kDurationUnits, false, kDurationExpected);
}
std::string size_text(uint64_t bytes) { return with_unit(bytes, kSizeUnits, ""); }
std::string duration_text(uint64_t ns) { return with_unit(ns, kDurationUnits, "ns"); }

std::string describe_sizes(UnsignedRange bytes) {
  return with_range(kSizeExpected, size_text(bytes.min), size_text(bytes.max));
}
std::string describe_durations(UnsignedRange ns) {
  return with_range(kDurationExpected, duration_text(ns.min), duration_text(ns.max));
}
Result<uint64_t> parse_size(std::string_view text, UnsignedRange bytes) {
  return parse_in_range(text, bytes, parse_size, describe_sizes(bytes));
}
Result<uint64_t> parse_duration(std::string_view text, UnsignedRange ns) {
  return parse_in_range(text, ns, parse_duration, describe_durations(ns));
}

void OptionSet::text(std::string name, std::string& value, std::string help) {
  Option option{std::move(name), std::move(help), "text"};
  option.takes_text = true;
  option.set = [&value](std::string_view argument) {
    value = argument;
    return ok_status();
  };
  option.show = [&value]() -> OptionValue { return value; };
  options_.push_back(std::move(option));
}

// Each of the next functions makes `set` such that it changes the variable only after the whole text was accepted.
void OptionSet::flag(std::string name, bool& value, std::string help) {
  Option option{std::move(name), std::move(help), "true or false"};
  option.is_flag = true;
  option.set = [&value](std::string_view argument) -> Status {
    if (argument != "true" && argument != "false") return not_expected("true or false", argument);
    value = argument == "true";
    return ok_status();
  };
  option.show = [&value]() -> OptionValue { return value; };
  options_.push_back(std::move(option));
}

void OptionSet::fraction(std::string name, double& value, std::string help) {
  constexpr DecimalRange kShares{0, 1};
  Option option{std::move(name), std::move(help), describe(kShares)};
  option.takes_number = true;
  option.set = [&value, kShares](std::string_view argument) -> Status {
    LOAM_ASSIGN_OR_RETURN(value, parse_decimal(argument, kShares));
    return ok_status();
  };
  option.show = [&value]() -> OptionValue { return value; };
  options_.push_back(std::move(option));
}

void OptionSet::size(std::string name, uint64_t& bytes, std::string help, UnsignedRange range) {
  Option option{std::move(name), std::move(help), describe_sizes(range)};
  option.takes_number = option.takes_text = true;
  option.set = [&bytes, range](std::string_view argument) -> Status {
    LOAM_ASSIGN_OR_RETURN(bytes, parse_size(argument, range));
    return ok_status();
  };
  option.show = [&bytes]() -> OptionValue { return size_text(bytes); };
  options_.push_back(std::move(option));
}

void OptionSet::duration(std::string name, uint64_t& ns, std::string help, UnsignedRange range) {
  Option option{std::move(name), std::move(help), describe_durations(range)};
  option.takes_text = true;
  option.set = [&ns, range](std::string_view argument) -> Status {
    LOAM_ASSIGN_OR_RETURN(ns, parse_duration(argument, range));
    return ok_status();
  };
  option.show = [&ns]() -> OptionValue { return duration_text(ns); };
  options_.push_back(std::move(option));
}

void OptionSet::add_number(std::string name, std::string help, UnsignedRange range,
                           std::function<void(uint64_t)> assign, std::function<uint64_t()> read) {
  Option option{std::move(name), std::move(help), describe(range)};
  option.takes_number = true;
  option.set = [range, assign = std::move(assign)](std::string_view argument) -> Status {
    LOAM_ASSIGN_OR_RETURN(const uint64_t number, parse_unsigned(argument, range));
    assign(number);
    return ok_status();
  };
  option.show = [read = std::move(read)]() -> OptionValue { return read(); };
  options_.push_back(std::move(option));
}

void OptionSet::choice(std::string name, size_t& value, std::vector<std::string> choices, std::string help) {
  std::string what = "one of";
  for (size_t i = 0; i < choices.size(); ++i) what += (i == 0 ? " " : ", ") + choices[i];
  Option option{std::move(name), std::move(help), what};
  option.takes_text = true;
  // The function owns a copy of the choices, because it lives as long as the option.
  option.set = [&value, choices, what](std::string_view argument) -> Status {
    const auto found = std::find(choices.begin(), choices.end(), argument);
    if (found == choices.end()) return not_expected(what, argument);
    value = static_cast<size_t>(found - choices.begin());
    return ok_status();
  };
  option.show = [&value, choices]() -> OptionValue { return choices[value]; };
  options_.push_back(std::move(option));
}

const Option* OptionSet::find(std::string_view name) const {
  const auto found = std::find_if(options_.begin(), options_.end(), [&](const Option& o) { return o.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

bool is_secret(std::string_view name) {
  const std::string_view word = name.substr(name.rfind('-') + 1);
  return word == "password" || word == "secret" || word == "token";
}

std::string OptionSet::to_line() const {
  std::string line;
  for (const Option& option : options_) {
    if (!line.empty()) line += ", ";
    const OptionValue value = shown(option, Secrets::kHidden);
    const std::string* text = std::get_if<std::string>(&value);
    // Texts are not quoted, for readability. An empty one is shown as "".
    line += option.name + "=" + (text != nullptr && !text->empty() ? *text : literal(value));
  }
  return line;
}

std::string OptionSet::to_toml() const {
  std::string file;
  for (const Option& option : options_) {
    file += "# " + option.help + "\n" + option.name + " = " + literal(option.show()) + "\n";
  }
  return file;
}

std::string OptionSet::to_json(Secrets secrets) const {
  std::string file = "{";
  for (const Option& option : options_) {
    file += (file.size() == 1 ? "\n  " : ",\n  ") + quoted(option.name) + ": " + literal(shown(option, secrets));
  }
  return file + "\n}\n";
}

}  // namespace loam::program
