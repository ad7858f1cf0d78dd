/// @file
/// Status and Result: the outcome of an operation, as a code for callers and a message for people.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/assert.h"

/// What all parts of Loam share: errors, ids, bytes, schemas, rows, queries and results.
namespace loam {

/// The outcome of an operation. A code exists only if some caller reacts to it; the message says everything else. The
/// numbers travel in messages and are never reused.
enum class StatusCode : uint16_t {
  kOk = 0,
  kConflict = 1,            ///< the newest version of the record is invisible in the snapshot, or not the expected one
  kNotFound = 2,            ///< no record with this key is visible in the snapshot
  kAlreadyExists = 3,       ///< an insert found a visible record, or a create found another definition of the name
  kNoSpace = 4,             ///< the node's memory is full; removes and aborts still succeed (R6, room before the claim)
  kNoSuchTable = 5,         ///< the table was never created, or it was dropped
  kInvalidArgument = 6,     ///< the request contradicts the schema or a limit; a repetition fails again
  kMalformed = 7,           ///< the bytes are not a message of this protocol; the receiver closes the connection
  kUnsupportedVersion = 8,  ///< the peer speaks another protocol version
  kUnavailable = 9,         ///< the server is unreachable or stopping, or lost its records (R9, leases; R10, identity)
  kUnknownOutcome = 10,     ///< the request may or may not have taken effect (R4, outcomes)
  kOverloaded = 11,         ///< a limit of the server is reached at the moment; repeat the request later
  kFenced = 12,             ///< the commit manager has ended the session (R7, fence barrier)
  kSnapshotTooOld = 13,     ///< versions that the snapshot sees may be collected (R14, old snapshots)
  kUnknownSnapshot = 14,    ///< the storage node lacks the snapshot (R15, cached snapshots); reserved, not sent
  kWrongShard = 15,         ///< the storage node does not own the shard, or has another shard map (R26, shards)
  kTimeout = 16,            ///< a deadline passed, and the operation has no effect
  kCancelled = 17,          ///< the owner of the operation has cancelled it
  kOverflow = 18,           ///< the result of an aggregate does not fit into its type
  kInternal = 19,           ///< an invariant of Loam itself is broken; please report it
  kWrongTableKind = 20,     ///< a transactional request for a non-transactional table, or the reverse
  kWrongCluster = 21,       ///< the server belongs to another cluster, or has an old state of this one (R10)
};

/// The name of the code as the documentation writes it, "kConflict".
std::string_view to_string(StatusCode code);

/// The outcome of an operation: a code and a message. The message names the problem, its place, and the remedy. Success
/// has no message and never allocates. A value type. Threads: one at a time for changes.
class [[nodiscard]] Status {
 public:
  /// Success.
  Status() = default;
  /// kOk or an error. An empty message allocates nothing.
  Status(StatusCode code, std::string message);
  /// Copies code and message; allocates if there is a message.
  /// @{
  Status(const Status& other);
  Status& operator=(const Status& other);
  /// @}
  /// Moves the message, and allocates nothing. The source keeps its code and loses its message.
  /// @{
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  /// @}

  /// Whether the operation succeeded.
  bool ok() const { return code_ == StatusCode::kOk; }
  /// The code, by which callers decide; kOk for success.
  StatusCode code() const { return code_; }
  /// The message; empty for success. The view is valid while the status lives unchanged.
  std::string_view message() const { return message_ ? std::string_view(*message_) : std::string_view(); }
  /// Code and message: "kConflict: record 7 of table accounts was changed by another transaction"
  std::string to_string() const;

  /// Compares the code, without the message.
  friend bool operator==(const Status& status, StatusCode code) { return status.code_ == code; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::unique_ptr<const std::string> message_;  // null for success and for an empty message
};

/// Success.
inline Status ok_status() { return {}; }

/// Either a value, or the error that says why there is no value. (std::expected does not exist in C++20.)
template <class T>
class [[nodiscard]] Result {
 public:
  /// A result with a value, for `return value;`.
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): returned as a plain value
  /// A result without a value, for `return error;`. Aborts the process if `status` is success.
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    LOAM_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  /// Whether the result has a value.
  bool ok() const { return value_.has_value(); }
  /// The error, or success if the result has a value.
  const Status& status() const { return status_; }
  /// The code of status().
  StatusCode code() const { return status_.code(); }

  /// The value, which the result owns. Aborts the process if there is none.
  /// @{
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
  /// @}

 private:
  Status status_;
  std::optional<T> value_;
};

/// Returns the Status of `expression` from the enclosing function if it is an error.
#define LOAM_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                       \
    if (::loam::Status loam_status_ = (expression); !loam_status_.ok()) return loam_status_; \
  } while (false)

/// @cond
#define LOAM_CONCAT_INNER_(a, b) a##b
#define LOAM_CONCAT_(a, b) LOAM_CONCAT_INNER_(a, b)
/// @endcond
// NOLINTBEGIN(bugprone-macro-parentheses): the target may be a declaration
/// LOAM_ASSIGN_OR_RETURN(auto x, f()): declares or assigns x from the value of a Result, or returns the error of the
/// Result from the enclosing function.
#define LOAM_ASSIGN_OR_RETURN(target, expression)                                                       \
  auto LOAM_CONCAT_(loam_result_, __LINE__) = (expression);                                             \
  if (!LOAM_CONCAT_(loam_result_, __LINE__).ok()) return LOAM_CONCAT_(loam_result_, __LINE__).status(); \
  target = std::move(LOAM_CONCAT_(loam_result_, __LINE__)).value()
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace loam
