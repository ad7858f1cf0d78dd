// Outcome of an operation: a code that callers react to, and a message for people.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/assert.h"

namespace loam {

/// Outcomes. A code exists because some caller reacts to it; everything else is told by the message. The numbers travel
/// on the wire and are never reused.
enum class StatusCode : uint16_t {
  kOk = 0,
  kConflict = 1,         ///< the newest version of a record is not visible in the snapshot, or is another than expected
  kNotFound = 2,         ///< no such record, visible in the snapshot
  kAlreadyExists = 3,    ///< an insert met a visible record; a create met another definition
  kNoSpace = 4,          ///< the node's memory limit is reached; removes and aborts still go through (R6)
  kNoSuchTable = 5,      ///< never created, or dropped
  kInvalidArgument = 6,  ///< the request contradicts the schema or a limit; repeating it is useless
  kMalformed = 7,        ///< bytes that are no message of this protocol; the connection is closed
  kUnsupportedVersion = 8,  ///< the peer speaks another protocol version
  kUnavailable = 9,         ///< the server cannot be reached, is stopping, or lost its memory (R9, R10)
  kUnknownOutcome = 10,     ///< the request may or may not have taken effect (R4)
  kOverloaded = 11,         ///< no room for the request at the moment; try again later
  kFenced = 12,             ///< the session was ended by the commit manager (R7)
  kSnapshotTooOld = 13,     ///< versions that the snapshot sees may be gone (R14)
  kUnknownSnapshot = 14,    ///< the node does not hold that cached snapshot (R15)
  kWrongShard = 15,         ///< the node does not own the shard in the map's present version (R26)
  kTimeout = 16,            ///< a deadline passed, and the operation has no effect
  kCancelled = 17,          ///< ended by its owner
  kOverflow = 18,           ///< an aggregate left the range of its type
  kInternal = 19,           ///< an invariant of Loam itself is broken; please report it
  kWrongTableKind = 20,     ///< transactional access to a non-transactional table, or the reverse
  kWrongCluster = 21,       ///< the server is of another cluster, or its state is not the newest of this one (R10)
};

/// The code's name as written in the documentation, "kConflict".
std::string_view to_string(StatusCode code);

/// A code and a message. Success carries no message and never allocates.
/// Messages say what was wrong, where, and what to do. Thread-compatible value type.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  std::string_view message() const { return message_ ? std::string_view(*message_) : std::string_view(); }
  /// "kConflict: record 7 of table accounts was changed by another transaction"
  std::string to_string() const;

  friend bool operator==(const Status& status, StatusCode code) { return status.code_ == code; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::unique_ptr<const std::string> message_;  // null for success and for an empty message
};

inline Status ok_status() { return {}; }

/// A value, or the status that says why there is none. (std::expected does not exist in C++20.)
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): returned as a plain value
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    LOAM_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  StatusCode code() const { return status_.code(); }

  T& value() & {
    LOAM_CHECK(ok(), "value() of a failed Result");
    return *value_;
  }
  const T& value() const& {
    LOAM_CHECK(ok(), "value() of a failed Result");
    return *value_;
  }
  T&& value() && {
    LOAM_CHECK(ok(), "value() of a failed Result");
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

/// Returns from the enclosing function if `expression` is a failed Status.
#define LOAM_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                       \
    if (::loam::Status loam_status_ = (expression); !loam_status_.ok()) return loam_status_; \
  } while (false)

#define LOAM_CONCAT_INNER_(a, b) a##b
#define LOAM_CONCAT_(a, b) LOAM_CONCAT_INNER_(a, b)
// NOLINTBEGIN(bugprone-macro-parentheses): the target may be a declaration
/// LOAM_ASSIGN_OR_RETURN(auto x, f()): declares or assigns x from a Result, or returns its status.
#define LOAM_ASSIGN_OR_RETURN(target, expression)                                                       \
  auto LOAM_CONCAT_(loam_result_, __LINE__) = (expression);                                             \
  if (!LOAM_CONCAT_(loam_result_, __LINE__).ok()) return LOAM_CONCAT_(loam_result_, __LINE__).status(); \
  target = std::move(LOAM_CONCAT_(loam_result_, __LINE__)).value()
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace loam
