// Log lines as text, logfmt and JSON. nlohmann/json writes all quoted values.
#include "common/program/log_format.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

namespace loam::program {
namespace {

std::string json_text(std::string_view text) {
  // `replace` writes U+FFFD for bytes that are not UTF-8.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_plain(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f' && c != '"' && c != '=' && c != '\\'; });
}

std::string logfmt_value(std::string_view text) { return is_plain(text) ? std::string(text) : json_text(text); }

std::string without_control_characters(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte != 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

/// Cuts a text at `max` bytes, and not within a character of UTF-8.
std::string cut(std::string_view text, size_t max) {
  if (text.size() <= max) return std::string(text);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  while (max > 0 && continues(text[max])) --max;
  return std::string(text.substr(0, max)) + "…";
}

}  // namespace

std::vector<std::string> log_format_names() { return {"text", "logfmt", "json"}; }

std::string format_line(LogFormat format, const LogLine& line, size_t max_text) {
  const std::string event(line.event.name());
  const std::string message = cut(line.message, max_text);
  if (format == LogFormat::kText) return "[" + event + "] " + without_control_characters(message);
  const bool json = format == LogFormat::kJson;
  std::string text = json ? "\"event\":\"" + event + "\",\"message\":" + json_text(message)
                          : "event=" + event + " message=" + logfmt_value(message);
  for (const LogField& field : line.fields) {
    const std::string key(field.key.name());
    text += json ? ",\"" + key + "\":" : " " + key + "=";
    if (const auto* const number = std::get_if<uint64_t>(&field.value); number != nullptr) {
      text += std::to_string(*number);
    } else {
      const std::string value = cut(std::get<std::string_view>(field.value), max_text);
      text += json ? json_text(value) : logfmt_value(value);
    }
  }
  return json ? text + "}" : text;
}

const char* pattern_of(LogFormat format) {
  constexpr std::array<const char*, 3> kPatterns = {
      "%Y-%m-%dT%H:%M:%S.%eZ %l %v",
      "time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v",
      R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v)",
  };
  return kPatterns[static_cast<size_t>(format)];
}

}  // namespace loam::program
