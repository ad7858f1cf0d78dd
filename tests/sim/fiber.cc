#include "tests/sim/fiber.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tests/sim/index_actor.h"

namespace loam::sim {

using client::Table;
using client::Transaction;

namespace {

/// Writes of one hot transaction.
constexpr uint64_t kMaxHotWrites = 4;
constexpr uint64_t kMaxWideWrites = 10;
/// Numbers of the counter that one block has: blocks run out often.
constexpr uint64_t kCounterBlock = 4;
/// Of insert_late(), if the shape has it: beside the weights of choices(). Its keys are behind those of write_wide().
constexpr uint32_t kLateInsertWeight = 6;
constexpr uint64_t kLateKeys = 6;
/// The same of what works on indexes.
constexpr uint32_t kIndexWeight = 16;
constexpr uint32_t kChangeByIndexWeight = 8;
constexpr uint32_t kMadeIndexWeight = 8;
constexpr uint32_t kDropIndexWeight = 2;
constexpr uint32_t kClaimWeight = 16;
constexpr uint32_t kToggleWeight = 8;
constexpr uint32_t kRebuildWeight = 4;
/// How often, and how many times, a fiber looks whether its errand is done.
constexpr uint64_t kErrandLookNs = 500'000;
constexpr int kErrandLooks = 30;

}  // namespace

const std::vector<WorkFiber::Choice>& WorkFiber::choices() {
  static const std::vector<Choice> kChoices = {
      {20, &WorkFiber::transfer},      {10, &WorkFiber::transfer_by_hand},
      {4, &WorkFiber::rebalance},      {16, &WorkFiber::change_hot},
      {8, &WorkFiber::count_up},       {6, &WorkFiber::blind_writes},
      {8, &WorkFiber::several_tables}, {5, &WorkFiber::change_mind},
      {6, &WorkFiber::write_guarded},  {10, &WorkFiber::write_wide},
      {3, &WorkFiber::scan_wide},      {14, &WorkFiber::look},
      {6, &WorkFiber::scan_all},       {4, &WorkFiber::scan_in_transaction},
      {3, &WorkFiber::live_long},      {14, &WorkFiber::write_plain},
      {8, &WorkFiber::read_plain},     {6, &WorkFiber::draw_numbers},
      {3, &WorkFiber::make_table},     {6, &WorkFiber::use_table},
      {1, &WorkFiber::drop_table},
  };
  return kChoices;
}

void WorkFiber::run() {
  std::vector<Choice> choices = WorkFiber::choices();
  if (shape_.indexes != 0) {
    choices.push_back({kIndexWeight, &WorkFiber::look_by_index});
    choices.push_back({kChangeByIndexWeight, &WorkFiber::change_by_index});
  }
  if (has(IndexSet::kClaims)) choices.push_back({kClaimWeight, &WorkFiber::claim});
  if (has(IndexSet::kMade)) {
    choices.push_back({kMadeIndexWeight, &WorkFiber::use_index});
    choices.push_back({kDropIndexWeight, &WorkFiber::drop_index});
  }
  if (shape_.toggles && has(IndexSet::kClaims)) choices.push_back({kToggleWeight, &WorkFiber::toggle});
  if (shape_.toggles && has(IndexSet::kHotByValue)) choices.push_back({kRebuildWeight, &WorkFiber::rebuild});
  if (shape_.late_inserts) choices.push_back({kLateInsertWeight, &WorkFiber::insert_late});
  uint32_t all = 0;
  for (const Choice& choice : choices) all += choice.weight;
  for (uint32_t done = 0; !stop_() && (shape_.operations == 0 || done < shape_.operations); ++done) {
    if (do_errand()) continue;
    uint64_t drawn = random_.below(all);
    auto choice = choices.begin();
    for (; drawn >= choice->weight; ++choice) drawn -= choice->weight;
    (this->*choice->activity)();
    mend_indexes(process_);
    pause(shape_.think_ns);
  }
  counter_.reset();
}

// ---- money ---------------------------------------------------------------------------------------------------------

bool WorkFiber::move_money(Tracked& tracked, Key from, Key to, bool for_update) {
  const auto read = [&](Key key) {
    return for_update ? tracked.get_for_update(tables_.accounts, key) : tracked.get(tables_.accounts, key);
  };
  const auto source = read(from);
  const auto target = read(to);
  if (!source || !target) return false;
  const auto amount = static_cast<int64_t>(random_.between(1, 20));
  const auto put = [&](Key key, const Seen& seen, int64_t change) {
    return seen.present() ? tracked.update(tables_.accounts, key, seen.value + change, random_)
                          : tracked.insert(tables_.accounts, key, kFirstBalance, random_);
  };
  return put(from, *source, -amount) && put(to, *target, amount);
}

void WorkFiber::transfer() {
  const Key from = account();
  Key to = account();
  if (to == from) to = Key((from.value + 1) % shape_.accounts);
  static_cast<void>(run_tracked(process_, [&](Tracked& tracked) { return move_money(tracked, from, to, false); }));
}

void WorkFiber::transfer_by_hand() {
  const Key from = account();
  Key to = account();
  if (to == from) to = Key((from.value + 1) % shape_.accounts);
  const bool for_update = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    if (!move_money(tracked, from, to, for_update)) return false;
    if (random_.one_in(3)) pause(shape_.think_ns);
    // Its own writes, and the records that it has not written, once more.
    return tracked.get(tables_.accounts, from) && tracked.get(tables_.accounts, account());
  }));
}

/// Several accounts get the same balance, as far as that goes: a larger write set.
void WorkFiber::rebalance() {
  std::set<uint64_t> chosen;
  while (chosen.size() < std::min<uint64_t>(6, shape_.accounts)) chosen.insert(account().value);
  std::vector<Key> keys;
  keys.reserve(chosen.size());
  for (const uint64_t key : chosen) keys.emplace_back(key);
  static_cast<void>(run_tracked(process_, [&](Tracked& tracked) {
    const auto seen = tracked.get_many(tables_.accounts, keys);
    int64_t sum = 0;
    int64_t count = 0;
    for (const auto& one : seen) {
      if (!one) return false;
      sum += one->value;
      count += one->present() ? 1 : 0;
    }
    int64_t rest = count == 0 ? 0 : sum % count;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!seen[i]->present()) continue;
      if (!tracked.update(tables_.accounts, keys[i], sum / count + std::exchange(rest, 0), random_)) return false;
    }
    return true;
  }));
}

// ---- hot records ---------------------------------------------------------------------------------------------------

bool WorkFiber::change_one(Tracked& tracked, Key key, bool blind) {
  if (blind) {
    const uint64_t kind = random_.below(4);
    if (kind == 0) return tracked.insert(tables_.hot, key, value(), random_);
    return kind == 1 ? tracked.remove(tables_.hot, key) : tracked.update(tables_.hot, key, value(), random_);
  }
  const auto seen = tracked.get(tables_.hot, key);
  if (!seen) return false;
  if (!seen->present()) return tracked.insert(tables_.hot, key, value(), random_);
  return random_.one_in(3) ? tracked.remove(tables_.hot, key)
                           : tracked.update(tables_.hot, key, value(), random_, &*seen);
}

void WorkFiber::change_hot() {
  std::set<uint64_t> keys;
  for (uint64_t left = random_.between(1, kMaxHotWrites); left != 0; --left) keys.insert(hot_key().value);
  const bool retry = random_.one_in(2);
  const auto body = [&](Tracked& tracked) {
    for (const uint64_t key : keys) {
      if (!change_one(tracked, Key(key), false)) return false;
    }
    return !random_.one_in(4) || tracked.get(tables_.hot, Key(*keys.begin())).has_value();
  };
  static_cast<void>(retry ? run_tracked(process_, body) : begin_tracked(process_, false, body));
}

/// Everybody's favourite record: conflicts are the rule.
void WorkFiber::count_up() {
  const Key key(random_.below(2));
  static_cast<void>(run_tracked(process_, [&](Tracked& tracked) {
    const auto seen = tracked.get(tables_.hot, key);
    if (!seen) return false;
    return seen->present() ? tracked.update(tables_.hot, key, seen->value + 1, random_)
                           : tracked.insert(tables_.hot, key, 1, random_);
  }));
}

void WorkFiber::blind_writes() {
  std::set<uint64_t> keys;
  for (uint64_t left = random_.between(1, kMaxHotWrites); left != 0; --left) keys.insert(hot_key().value);
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    return std::all_of(keys.begin(), keys.end(), [&](uint64_t key) { return change_one(tracked, Key(key), true); });
  }));
}

void WorkFiber::several_tables() {
  const Key from = account();
  const Key to((from.value + 1 + random_.below(shape_.accounts - 1)) % shape_.accounts);
  const Key hot = hot_key();
  const auto made = made_table();
  static_cast<void>(run_tracked(process_, [&](Tracked& tracked) {
    if (!change_one(tracked, hot, false) || !move_money(tracked, from, to, false)) return false;
    if (!made || random_.one_in(2)) return true;
    const auto seen = tracked.get(*made, hot);
    if (!seen) return false;
    return seen->present() ? tracked.update(*made, hot, value(), random_)
                           : tracked.insert(*made, hot, value(), random_);
  }));
}

/// What it writes rests on what it has read, and that must not be changed meanwhile: the tool against write skew.
void WorkFiber::write_guarded() {
  const Key key = hot_key();
  const Key guard((key.value + 1) % shape_.hot_keys);
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    const auto rests_on = tracked.get_for_update(tables_.hot, guard);
    if (!rests_on || !change_one(tracked, key, false)) return false;
    return !random_.one_in(3) || tracked.get(tables_.hot, guard).has_value();
  }));
}

/// Many long records at once: pages fill, and most of what is in them is soon garbage.
void WorkFiber::write_wide() {
  std::set<uint64_t> keys;
  for (uint64_t left = random_.between(2, kMaxWideWrites); left != 0; --left)
    keys.insert(random_.below(shape_.wide_keys));
  static_cast<void>(run_tracked(process_, [&](Tracked& tracked) {
    for (const uint64_t key : keys) {
      const auto seen = tracked.get(tables_.wide, Key(key));
      if (!seen) return false;
      const bool written = !seen->present()    ? tracked.insert(tables_.wide, Key(key), value(), random_)
                           : random_.one_in(4) ? tracked.remove(tables_.wide, Key(key))
                                               : tracked.update(tables_.wide, Key(key), value(), random_, &*seen);
      if (!written) return false;
    }
    return true;
  }));
}

/// Writes, reads them, writes them again, and then perhaps gives up.
void WorkFiber::change_mind() {
  const Key key = hot_key();
  const bool leave = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    const auto seen = tracked.get(tables_.hot, key);
    if (!seen) return false;
    const bool written = seen->present() ? tracked.update(tables_.hot, key, value(), random_)
                                         : tracked.insert(tables_.hot, key, value(), random_);
    if (!written || !tracked.get(tables_.hot, key)) return false;
    if (random_.one_in(3)) pause(shape_.think_ns);
    if (!tracked.update(tables_.hot, key, value(), random_) || !tracked.get(tables_.hot, key)) return false;
    if (seen->present() && random_.one_in(3)) {
      if (!tracked.remove(tables_.hot, key) || !tracked.get(tables_.hot, key)) return false;
    }
    return !leave;
  }));
}

bool WorkFiber::come_and_go(Key key) {
  const auto alone = [&](const std::function<bool(Tracked&)>& change) { return run_tracked(process_, change).ok(); };
  return alone([&](Tracked& tracked) { return tracked.insert(tables_.wide, key, value(), random_); }) &&
         alone([&](Tracked& tracked) { return tracked.remove(tables_.wide, key); });
}

bool WorkFiber::do_errand() {
  if (process_.errands == nullptr) return false;
  const auto others = [&](const std::shared_ptr<Errand>& errand) { return errand->process != process_.number; };
  const auto at = std::ranges::find_if(*process_.errands, others);
  if (at == process_.errands->end()) return false;
  const std::shared_ptr<Errand> errand = std::move(*at);
  process_.errands->erase(at);
  errand->done = come_and_go(errand->key);
  return true;
}

bool WorkFiber::let_come_and_go(Key key) {
  if (process_.errands == nullptr) return come_and_go(key);
  const auto errand = std::make_shared<Errand>(Errand{key, process_.number});
  process_.errands->push_back(errand);
  for (int look = 0; look < kErrandLooks && !errand->done && !stop_(); ++look) process_.client.sleep_for(kErrandLookNs);
  if (!errand->done) std::erase(*process_.errands, errand);
  return errand->done;
}

/// Inserts what was not there when it began, and has come and gone since. No snapshot sees anything of it, but nobody
/// may forget that it was removed (R20).
void WorkFiber::insert_late() {
  const Key key(shape_.wide_keys + random_.below(kLateKeys));
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& late) {
    const auto seen = late.get(tables_.wide, key);
    if (!seen) return false;
    if (seen->present()) return late.remove(tables_.wide, key);
    if (!let_come_and_go(key)) return false;
    // Until the page of the removal is full, and worth being rewritten.
    for (uint64_t left = random_.between(2, 8); left != 0 && !stop_(); --left) {
      write_wide();
      pause(shape_.long_ns / 16);
    }
    return late.insert(tables_.wide, key, value(), random_);
  }));
}

// ---- reading -------------------------------------------------------------------------------------------------------

void WorkFiber::look() {
  const bool read_only = !random_.one_in(4);
  static_cast<void>(begin_tracked(process_, read_only, [&](Tracked& tracked) {
    std::vector<Key> keys;
    for (uint64_t left = random_.between(1, 6); left != 0; --left) keys.push_back(hot_key());
    for (const auto& seen :
         random_.one_in(2) ? tracked.get_many(tables_.hot, keys) : tracked.get_at_once(tables_.hot, keys)) {
      if (!seen) return false;
    }
    for (uint64_t left = random_.between(1, 4); left != 0; --left) {
      if (!tracked.get(tables_.accounts, account())) return false;
    }
    return tracked.get(tables_.hot, keys.front()).has_value();
  }));
}

void WorkFiber::scan_all() {
  std::vector<Table> tables = {tables_.accounts, tables_.hot};
  if (const auto made = random_.one_in(2) ? made_table() : std::nullopt; made) tables.push_back(*made);
  scan_snapshot(process_, tables, value() % 200);
}

void WorkFiber::scan_in_transaction() {
  const bool read_only = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, read_only, [&](Tracked& tracked) {
    const Key key = hot_key();
    if (!tracked.get(tables_.hot, key) || !tracked.scan(tables_.accounts) || !tracked.sum(tables_.accounts)) {
      return false;
    }
    if (random_.one_in(2)) pause(shape_.think_ns);
    if (!tracked.scan(tables_.hot) || !tracked.select(tables_.hot, value()) || !tracked.sum(tables_.hot)) return false;
    return read_only || change_one(tracked, key, false);
  }));
}

/// In an old snapshot, while others write: twice the same.
void WorkFiber::scan_wide() {
  static_cast<void>(begin_tracked(process_, true, [&](Tracked& tracked) {
    if (!tracked.scan(tables_.wide)) return false;
    if (random_.one_in(2)) pause(shape_.long_ns);
    return tracked.scan(tables_.wide) && tracked.select(tables_.wide, value()) && tracked.sum(tables_.wide);
  }));
}

/// Holds its snapshot while much happens, and may then want to write.
void WorkFiber::live_long() {
  const bool read_only = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, read_only, [&](Tracked& tracked) {
    const uint64_t rounds = random_.between(2, 4);
    for (uint64_t round = 0; round < rounds && !stop_(); ++round) {
      for (uint64_t left = 4; left != 0; --left) {
        if (!tracked.get(tables_.hot, hot_key()) || !tracked.get(tables_.accounts, account())) {
          // One that was told kFenced must not get through: try.
          return !read_only && tracked.failure() == StatusCode::kFenced && change_one(tracked, hot_key(), true);
        }
      }
      pause(shape_.long_ns / rounds);
      if (random_.one_in(3) && !tracked.scan(tables_.hot)) return false;
    }
    return read_only || change_one(tracked, hot_key(), false);
  }));
}

// ---- non-transactional tables --------------------------------------------------------------------------------------

void WorkFiber::write_plain() {
  auto table = process_.client.plain(tables_.plain);
  if (!table.ok()) return;
  const Key key(random_.below(shape_.plain_keys));
  auto seen = plain_get(process_, *table, key);
  if (!seen) return;
  if (random_.one_in(4)) pause(shape_.think_ns);
  auto kind = !seen->present()    ? PlainModel::Kind::kInsert
              : random_.one_in(5) ? PlainModel::Kind::kRemove
                                  : PlainModel::Kind::kUpdate;
  const Status status = plain_write(process_, *table, key, kind, seen->version);
  // What became of it can be seen; and the version that was expected is gone for ever.
  if (status == StatusCode::kUnknownOutcome || random_.one_in(3)) plain_get(process_, *table, key);
  if (kind == PlainModel::Kind::kUpdate && random_.one_in(4)) {
    static_cast<void>(plain_write(process_, *table, key, kind, seen->version));
  }
}

void WorkFiber::read_plain() {
  if (random_.one_in(4)) {
    plain_scan(process_, tables_.plain);
    return;
  }
  auto table = process_.client.plain(tables_.plain);
  if (!table.ok()) return;
  for (uint64_t left = random_.between(1, 4); left != 0; --left) {
    if (!plain_get(process_, *table, Key(random_.below(shape_.plain_keys)))) return;
  }
}

void WorkFiber::draw_numbers() {
  if (!counter_ || random_.one_in(8)) {
    counter_.reset();
    auto counter = process_.client.counter(WorkloadTables::kCounter, kCounterBlock);
    process_.expected("a counter", counter.status());
    if (!counter.ok()) return;
    counter_.emplace(std::move(counter).value());
    counter_object_ = uint64_t{process_.number} << 32 | ++process_.objects;
  }
  for (uint64_t left = random_.between(1, 3); left != 0; --left) {
    const auto number = counter_->next();
    process_.expected("a counter's number", number.status());
    if (!number.ok()) return;
    process_.oracle.counters().drew(counter_object_, WorkloadTables::kCounter, *number);
  }
}

// ---- tables that come and go ---------------------------------------------------------------------------------------

void WorkFiber::make_table() {
  const std::string name = made_name();
  const Schema& wanted = random_.one_in(5) ? other_schema() : row_schema();
  TableModel& model = process_.oracle.tables();
  const Moment asked = process_.oracle.now();
  const auto table = process_.client.create_table(name, TableKind::kTransactional, wanted);
  process_.expected("create_table", table.status());
  if (table.ok()) {
    model.created(name, table->id(), table->schema().to_string(), wanted.to_string(), asked);
    made_.insert_or_assign(name, *table);
    if (has(IndexSet::kMade) && random_.one_in(2)) {
      static_cast<void>(create_index(process_, made_index(*table), *table));
    }
  } else if (table.code() == StatusCode::kAlreadyExists) {
    model.create_refused(name, wanted.to_string(), asked);
  }
}

std::optional<Table> WorkFiber::made_table() {
  const std::string name = made_name();
  if (const auto known = made_.find(name); known != made_.end() && !random_.one_in(4)) return known->second;
  const Moment asked = process_.oracle.now();
  const auto table = process_.client.open_table(name);
  process_.expected("open_table", table.status());
  if (table.code() == StatusCode::kNoSuchTable) process_.oracle.tables().absent(name, asked);
  if (!table.ok()) return std::nullopt;
  process_.oracle.tables().opened(name, table->id(), table->schema().to_string(), asked);
  made_.insert_or_assign(name, *table);
  return *table;
}

void WorkFiber::use_table() {
  const auto table = made_table();
  if (!table) return make_table();
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    for (uint64_t left = random_.between(1, 3); left != 0; --left) {
      const Key key = hot_key();
      const auto seen = tracked.get(*table, key);
      if (!seen) return false;
      if (seen->present() ? !tracked.update(*table, key, value(), random_)
                          : !tracked.insert(*table, key, value(), random_)) {
        return false;
      }
    }
    return true;
  }));
}

void WorkFiber::drop_table() {
  const std::string name = made_name();
  TableModel& model = process_.oracle.tables();
  IndexModel& indexes = process_.oracle.indexes();
  std::vector<size_t> with_it;
  with_it.reserve(IndexForm::kOfMadeTables.size());
  for (const std::string_view form : IndexForm::kOfMadeTables) {
    with_it.push_back(indexes.drop_called(name + std::string(form)));
  }
  const size_t drop = model.drop_called(name);
  const Status status = process_.client.drop_table(name);
  process_.expected("drop_table", status);
  model.drop_returned(drop, status.code());
  for (const size_t index : with_it) indexes.drop_returned(index, status.code());
}

}  // namespace loam::sim
