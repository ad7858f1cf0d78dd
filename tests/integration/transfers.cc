// Random transactions on accounts. Every transaction keeps the total: what one account gains, another one loses.
#include "tests/integration/transfers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/env.h"

namespace loam::integration {
namespace {

constexpr uint64_t kPauseAfterErrorNs = 5'000'000;

std::vector<uint64_t> distinct(testing::Random& random, uint64_t count, uint64_t keys) {
  std::vector<uint64_t> drawn;
  count = std::min(count, keys);
  while (drawn.size() < count) {
    const uint64_t key = random.between(1, keys);
    if (std::find(drawn.begin(), drawn.end(), key) == drawn.end()) drawn.push_back(key);
  }
  return drawn;
}

}  // namespace

Transfers::Transfers(client::Client& client, Accounts& accounts, const TransferOptions& options)
    : client_(client), accounts_(accounts), options_(options) {}

bool Transfers::due() {
  if (Env::now_ns() >= end_ns_) return false;
  return options_.count == 0 || attempts_ < options_.count;
}

std::vector<Change> Transfers::draw_on_existing(testing::Random& random) {
  std::vector<Change> changes;
  const uint64_t kind = random.below(100);
  if (kind < 15) {  // reads several accounts
    for (const uint64_t key : distinct(random, random.between(2, 8), options_.keys))
      changes.push_back({Change::Kind::kRead, Key(key)});
    return changes;
  }
  // Moves money from one account to the others. A larger transaction only reads one of them.
  const uint64_t size = kind < 75 ? 2 : random.between(3, 6);
  const std::vector<uint64_t> keys = distinct(random, size, options_.keys);
  int64_t taken = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    if (i == 3) {
      changes.push_back({Change::Kind::kRead, Key(keys[i])});
      continue;
    }
    const auto amount = static_cast<int64_t>(random.between(1, 50));
    changes.push_back({Change::Kind::kAdd, Key(keys[i]), amount});
    taken += amount;
  }
  changes.push_back({Change::Kind::kAdd, Key(keys[0]), -taken});
  return changes;
}

std::vector<Change> Transfers::draw(Fiber& fiber) {
  const bool own = options_.first_insert != 0 && fiber.random.one_in(8);
  if (!own) return draw_on_existing(fiber.random);
  const Key partner(fiber.random.between(1, options_.keys));
  if (fiber.inserted == 0)
    return {{Change::Kind::kInsert, Key(fiber.next_insert), 7}, {Change::Kind::kAdd, partner, -7}};
  if (fiber.random.one_in(3)) return {{Change::Kind::kRemove, Key(fiber.inserted)}, {Change::Kind::kAdd, partner, 0}};
  return {{Change::Kind::kAdd, Key(fiber.inserted), 3}, {Change::Kind::kAdd, partner, -3}};
}

void Transfers::apply_outcome(Fiber& fiber, const std::vector<Change>& changes, const Attempt& attempt) {
  ++codes_[std::string(to_string(attempt.status.code()))];
  longest_ns_ = std::max(longest_ns_, attempt.ended_ns - attempt.requested_ns);
  const bool unknown = attempt.status == StatusCode::kUnknownOutcome;
  if (changes[0].kind == Change::Kind::kInsert) {
    if (attempt.status.ok()) fiber.inserted = fiber.next_insert;
    // A key whose insert has an unknown outcome may exist. It is never tried again, so that each key has one insert
    // in the history.
    if (attempt.status.ok() || unknown) fiber.next_insert += options_.fibers;
  } else if (changes[0].kind == Change::Kind::kRemove && (attempt.status.ok() || unknown)) {
    // After an unknown outcome the account may still exist. The fiber leaves it alone.
    fiber.inserted = 0;
  }
}

void Transfers::loop(Fiber& fiber) {
  while (due()) {
    ++attempts_;
    const std::vector<Change> changes = draw(fiber);
    const Attempt attempt = accounts_.attempt(changes);
    apply_outcome(fiber, changes, attempt);
    const StatusCode code = attempt.status.code();
    if (code != StatusCode::kOk && code != StatusCode::kConflict) client_.sleep_for(kPauseAfterErrorNs);
  }
}

void Transfers::run() {
  end_ns_ = Env::now_ns() + static_cast<uint64_t>(options_.seconds * 1e9);
  testing::Random seeds(options_.seed);
  std::vector<Fiber> fibers;
  fibers.reserve(options_.fibers);
  for (unsigned i = 0; i < options_.fibers; ++i) fibers.push_back({seeds.fork(), options_.first_insert + i, 0});
  std::vector<client::Task> tasks;
  tasks.reserve(options_.fibers);
  for (Fiber& fiber : fibers) tasks.push_back(client_.spawn([this, &fiber] { loop(fiber); }));
  for (client::Task& task : tasks) task.join();
}

std::string Transfers::summary() const {
  const client::ClientStatistics statistics = client_.statistics();
  std::string out = "{\"attempts\":" + std::to_string(attempts_) +
                    ",\"longest_ms\":" + std::to_string(static_cast<double>(longest_ns_) / 1e6) +
                    ",\"resumed\":" + std::to_string(statistics.resumed) +
                    ",\"resent\":" + std::to_string(statistics.resent) + ",\"codes\":{";
  bool first = true;
  for (const auto& [code, count] : codes_) {
    if (!std::exchange(first, false)) out += ',';
    out += json_text(code) + ":" + std::to_string(count);
  }
  return out + "}}";
}

}  // namespace loam::integration
