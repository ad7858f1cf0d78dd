// Fuzz target: the reply window. It decodes nothing, but numbers from the network control it. Input: requests, each a
// step of the sequence (a signed byte) and the size of its reply (a byte; odd: the reply comes only with the next
// request).
#include <map>
#include <optional>

#include "common/wire/reply_window.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;
using namespace loam::wire;

constexpr ReplyWindowLimits kLimits{8, 256};

Buffer answer(uint64_t sequence, size_t size) { return Buffer(size, static_cast<std::byte>(sequence * 31 + size)); }

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReplyWindow window(kLimits);
  std::map<uint64_t, std::optional<Buffer>> first;  // requests received, and the first reply to each
  uint64_t sequence = 1'000;
  std::optional<std::pair<uint64_t, size_t>> owed;
  const auto keep = [&](uint64_t of, size_t bytes) {
    first[of] = answer(of, bytes);
    window.store(of, *first[of]);
  };
  for (size_t i = 0; i + 1 < size; i += 2) {
    sequence += static_cast<uint64_t>(static_cast<int8_t>(data[i]));
    const size_t bytes = data[i + 1];
    Buffer reply;
    const ReplyWindow::LookupResult found = window.look_up(sequence, reply);
    const auto known = first.find(sequence);
    switch (found) {
      case ReplyWindow::LookupResult::kNew:
        fuzz::require(known == first.end(), "a request is executed once");
        first[sequence] = std::nullopt;
        if (owed) keep(owed->first, owed->second);
        owed.reset();
        if (bytes % 2 == 0) keep(sequence, bytes);
        if (bytes % 2 == 1) owed = {sequence, bytes};
        break;
      case ReplyWindow::LookupResult::kRunning:
        fuzz::require(known != first.end() && !known->second, "a running request is known and has no reply");
        break;
      case ReplyWindow::LookupResult::kAnswered:
        fuzz::require(known != first.end() && known->second && *known->second == reply, "the reply is the first one");
        break;
      case ReplyWindow::LookupResult::kEvicted:
        break;
    }
  }
  return 0;
}
