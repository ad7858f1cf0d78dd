// Names and fields of log lines. The compiler checks their form.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>

namespace loam {

/// The stable name of a kind of log line, for example "disk.full": words of lower-case letters, digits and `_`, joined
/// by dots. It refers to a string literal. Exactly one place of the sources logs an event; docs/log-events.md lists
/// all of them, and `scripts/check events` compares the list with the sources.
class LogEvent {
 public:
  /// Takes the literal. Another form of the name is an error of compilation.
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is passed where an event is wanted
  consteval LogEvent(const char (&name)[N]) : name_(name, N - 1) {
    if (!is_event_name(name_)) throw "an event is named in lower-case words joined by dots, such as \"disk.full\"";
  }
  constexpr std::string_view name() const { return name_; }

  /// Returns whether a text has the form of the name of an event.
  static constexpr bool is_event_name(std::string_view name) {
    bool word = false;  // whether the word before the next dot has begun
    for (const char c : name) {
      if (c == '.' && !word) return false;
      if (c != '.' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9')) return false;
      word = c != '.';
    }
    return word;
  }

 private:
  std::string_view name_;
};

/// The name of a field of a log line, for example "path": lower-case letters, digits and `_`. It refers to a string
/// literal, and differs from the names that every line has.
class LogKey {
 public:
  /// Takes the literal. Another form of the name is an error of compilation.
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is passed where a key is wanted
  consteval LogKey(const char (&name)[N]) : name_(name, N - 1) {
    if (!is_key(name_)) throw "a field has a lower-case name without dots, and not time, level, event or message";
  }
  constexpr std::string_view name() const { return name_; }

  /// Returns whether a text has the form of the name of a field.
  static constexpr bool is_key(std::string_view name) {
    return LogEvent::is_event_name(name) && name.find('.') == std::string_view::npos && name != "time" &&
           name != "level" && name != "event" && name != "message";
  }

 private:
  std::string_view name_;
};

/// A value that the message of a line contains, for programs: {"path", path} or {"bytes", bytes}. It refers to its
/// text, so it lives no longer than the call that logs.
struct LogField {
  using Value = std::variant<std::string_view, uint64_t>;

  LogField(LogKey field_key, std::string_view text) : key(field_key), value(text) {}
  LogField(LogKey field_key, uint64_t number) : key(field_key), value(number) {}

  LogKey key;
  Value value;
};

/// The fields of a line: {{"path", path}, {"bytes", bytes}}.
using LogFields = std::initializer_list<LogField>;

}  // namespace loam
