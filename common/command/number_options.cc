#include "common/command/number_options.h"

#include <utility>

#include "common/program/options.h"

namespace loam::command {
namespace {

/// Adds an option whose texts `parse` reads. `assign` receives the parsed values. --help shows `range`.
template <class Number>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, const std::string& help, const std::string& range,
                        const std::function<Result<Number>(std::string_view)>& parse,
                        std::function<void(const std::vector<Number>&)> assign) {
  // The validator rejects a wrong text with the name of the option, and gives --help the range.
  const CLI::Validator in_range(
      [parse](std::string& text) {
        const auto number = parse(text);
        return number.ok() ? std::string() : std::string(number.status().message());
      },
      range);
  const auto take = [name, parse, assign = std::move(assign)](const CLI::results_t& texts) {
    std::vector<Number> numbers;
    numbers.reserve(texts.size());
    for (const std::string& text : texts) {
      const auto number = parse(text);
      // If the value of an option may be missing, CLI11 does not pass an empty text to the validator.
      if (!number.ok()) throw CLI::ValidationError(name, std::string(number.status().message()));
      numbers.push_back(*number);
    }
    assign(numbers);
    return true;
  };
  return app.add_option(name, CLI::callback_t(take), help)->check(in_range);
}

std::string span(const std::string& min, const std::string& max) { return min + " to " + max; }

}  // namespace

CLI::Option* add_unsigned_option(CLI::App& app, const std::string& name, UnsignedRange range, const std::string& help,
                                 const std::string& shown_default,
                                 std::function<void(const std::vector<uint64_t>&)> assign) {
  return add_parsed<uint64_t>(
             app, name, help, span(std::to_string(range.min), std::to_string(range.max)),
             [range](std::string_view text) { return program::parse_unsigned(text, range); }, std::move(assign))
      ->default_str(shown_default)
      ->type_name("N");
}

CLI::Option* add_decimal(CLI::App& app, const std::string& name, double& value, DecimalRange range,
                         const std::string& help) {
  return add_parsed<double>(
             app, name, help, span(CLI::detail::to_string(range.min), CLI::detail::to_string(range.max)),
             [range](std::string_view text) { return program::parse_decimal(text, range); },
             [&value](const std::vector<double>& arguments) { value = arguments.back(); })
      ->default_str(CLI::detail::to_string(value))
      ->type_name("NUMBER");
}

CLI::Option* add_size(CLI::App& app, const std::string& name, uint64_t& bytes, UnsignedRange range,
                      const std::string& help) {
  return add_parsed<uint64_t>(
             app, name, help, span(program::size_text(range.min), program::size_text(range.max)),
             [range](std::string_view text) { return program::parse_size(text, range); },
             [&bytes](const std::vector<uint64_t>& arguments) { bytes = arguments.back(); })
      ->default_str(program::size_text(bytes))
      ->type_name("SIZE");
}

CLI::Option* add_duration(CLI::App& app, const std::string& name, uint64_t& ns, UnsignedRange range,
                          const std::string& help) {
  return add_parsed<uint64_t>(
             app, name, help, span(program::duration_text(range.min), program::duration_text(range.max)),
             [range](std::string_view text) { return program::parse_duration(text, range); },
             [&ns](const std::vector<uint64_t>& arguments) { ns = arguments.back(); })
      ->type_name("DURATION");
}

}  // namespace loam::command
