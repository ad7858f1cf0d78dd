// The window of answers, which decodes nothing but is led by numbers of the network. Input: requests, each a step of
// the sequence (signed byte) and the size of its answer (a byte; odd: it is answered only with the next one).
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
  std::map<uint64_t, std::optional<Buffer>> first;  // what was seen, and its first answer
  uint64_t sequence = 1'000;
  std::optional<std::pair<uint64_t, size_t>> owed;
  const auto keep = [&](uint64_t of, size_t bytes) {
    first[of] = answer(of, bytes);
    window.keep(of, *first[of]);
  };
  for (size_t i = 0; i + 1 < size; i += 2) {
    sequence += static_cast<uint64_t>(static_cast<int8_t>(data[i]));
    const size_t bytes = data[i + 1];
    Buffer reply;
    const ReplyWindow::Found found = window.look_up(sequence, reply);
    const auto known = first.find(sequence);
    switch (found) {
      case ReplyWindow::Found::kNew:
        fuzz::require(known == first.end(), "a request is executed once");
        first[sequence] = std::nullopt;
        if (owed) keep(owed->first, owed->second);
        owed.reset();
        if (bytes % 2 == 0) keep(sequence, bytes);
        if (bytes % 2 == 1) owed = {sequence, bytes};
        break;
      case ReplyWindow::Found::kRunning:
        fuzz::require(known != first.end() && !known->second, "what runs was seen and has no answer");
        break;
      case ReplyWindow::Found::kAnswered:
        fuzz::require(known != first.end() && known->second && *known->second == reply, "the answer is the first one");
        break;
      case ReplyWindow::Found::kForgotten:
        break;
    }
  }
  return 0;
}
