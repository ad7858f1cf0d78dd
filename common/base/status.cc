#include "common/base/status.h"

#include <array>

namespace loam {
namespace {

// The position of a name is the number of its code.
constexpr std::array<std::string_view, 22> kNames = {"kOk",
                                                     "kConflict",
                                                     "kNotFound",
                                                     "kAlreadyExists",
                                                     "kNoSpace",
                                                     "kNoSuchTable",
                                                     "kInvalidArgument",
                                                     "kMalformed",
                                                     "kUnsupportedVersion",
                                                     "kUnavailable",
                                                     "kUnknownOutcome",
                                                     "kOverloaded",
                                                     "kFenced",
                                                     "kSnapshotTooOld",
                                                     "kUnknownSnapshot",
                                                     "kWrongShard",
                                                     "kTimeout",
                                                     "kCancelled",
                                                     "kOverflow",
                                                     "kInternal",
                                                     "kWrongTableKind",
                                                     "kWrongCluster"};

}  // namespace

std::string_view to_string(StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : std::string_view("kUnknownCode");
}

Status::Status(StatusCode code, std::string message) : code_(code) {
  if (!message.empty()) message_ = std::make_unique<const std::string>(std::move(message));
}

Status::Status(const Status& other) : code_(other.code_) {
  if (other.message_) message_ = std::make_unique<const std::string>(*other.message_);
}

Status& Status::operator=(const Status& other) {
  if (this != &other) *this = Status(other);
  return *this;
}

std::string Status::to_string() const {
  std::string text(loam::to_string(code_));
  if (message_) text.append(": ").append(*message_);
  return text;
}

}  // namespace loam
