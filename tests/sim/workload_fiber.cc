// The activities of a fiber on tables, each chosen by its weight. workload_fiber_index.cc has the activities on
// indexes.
#include "tests/sim/workload_fiber.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tests/sim/tracked_index.h"

namespace loam::sim {

using client::Table;
using client::Transaction;

namespace {

/// Largest number of writes in a transaction on hot records.
constexpr uint64_t kMaxHotWrites = 4;
constexpr uint64_t kMaxWideWrites = 10;
/// Size of a counter's blocks: so small that blocks run out often.
constexpr uint64_t kCounterBlock = 4;
/// Weight of insert_late() in addition to the weights of choices(), if the shape has late inserts. Its keys follow
/// those of write_wide().
constexpr uint32_t kLateInsertWeight = 6;
constexpr uint64_t kLateKeys = 6;
/// Weight of the activities on indexes, if the shape has the index.
constexpr uint32_t kIndexWeight = 16;
constexpr uint32_t kChangeByIndexWeight = 8;
constexpr uint32_t kDynamicIndexWeight = 8;
constexpr uint32_t kDropIndexWeight = 2;
constexpr uint32_t kWriteUniqueWeight = 16;
constexpr uint32_t kToggleWeight = 8;
constexpr uint32_t kRebuildWeight = 4;
/// Interval and number of a fiber's checks whether its delegated write is done.
constexpr uint64_t kDelegationPollNs = 500'000;
constexpr int kMaxDelegationPolls = 30;

}  // namespace

const std::vector<WorkloadFiber::Choice>& WorkloadFiber::choices() {
  static const std::vector<Choice> kChoices = {
      {20, &WorkloadFiber::transfer},
      {10, &WorkloadFiber::transfer_explicit},
      {4, &WorkloadFiber::rebalance},
      {16, &WorkloadFiber::change_hot},
      {8, &WorkloadFiber::count_up},
      {6, &WorkloadFiber::blind_writes},
      {8, &WorkloadFiber::several_tables},
      {5, &WorkloadFiber::rewrite_own_writes},
      {6, &WorkloadFiber::write_guarded},
      {10, &WorkloadFiber::write_wide},
      {3, &WorkloadFiber::scan_wide},
      {14, &WorkloadFiber::read_points},
      {6, &WorkloadFiber::scan_all},
      {4, &WorkloadFiber::scan_in_transaction},
      {3, &WorkloadFiber::run_long_transaction},
      {14, &WorkloadFiber::write_plain},
      {8, &WorkloadFiber::read_plain},
      {6, &WorkloadFiber::draw_numbers},
      {3, &WorkloadFiber::make_table},
      {6, &WorkloadFiber::use_table},
      {1, &WorkloadFiber::drop_table},
  };
  return kChoices;
}

void WorkloadFiber::run() {
  std::vector<Choice> choices = WorkloadFiber::choices();
  if (shape_.indexes != 0) {
    choices.push_back({kIndexWeight, &WorkloadFiber::read_by_index});
    choices.push_back({kChangeByIndexWeight, &WorkloadFiber::change_by_index});
  }
  if (has(IndexSet::kUniqueTable)) choices.push_back({kWriteUniqueWeight, &WorkloadFiber::write_unique});
  if (has(IndexSet::kDynamic)) {
    choices.push_back({kDynamicIndexWeight, &WorkloadFiber::use_index});
    choices.push_back({kDropIndexWeight, &WorkloadFiber::drop_index});
  }
  if (shape_.toggles && has(IndexSet::kUniqueTable)) choices.push_back({kToggleWeight, &WorkloadFiber::toggle});
  if (shape_.toggles && has(IndexSet::kHotByValue)) choices.push_back({kRebuildWeight, &WorkloadFiber::rebuild});
  if (shape_.late_inserts) choices.push_back({kLateInsertWeight, &WorkloadFiber::insert_late});
  uint32_t all = 0;
  for (const Choice& choice : choices) all += choice.weight;
  for (uint32_t done = 0; !stop_() && (shape_.operations == 0 || done < shape_.operations); ++done) {
    // A write that another process waits for comes first.
    if (run_delegated_write()) continue;
    uint64_t drawn = random_.below(all);
    auto choice = choices.begin();
    for (; drawn >= choice->weight; ++choice) drawn -= choice->weight;
    (this->*choice->activity)();
    repair_indexes(process_);
    pause(shape_.think_ns);
  }
  counter_.reset();
}

// ---- money ---------------------------------------------------------------------------------------------------------

bool WorkloadFiber::move_money(TrackedTransaction& tracked, Key from, Key to, bool for_update) {
  const auto read = [&](Key key) {
    return for_update ? tracked.get_for_update(tables_.accounts, key) : tracked.get(tables_.accounts, key);
  };
  const auto source = read(from);
  const auto target = read(to);
  if (!source || !target) return false;
  const auto amount = static_cast<int64_t>(random_.between(1, 20));
  const auto put = [&](Key key, const ObservedRecord& seen, int64_t change) {
    return seen.present() ? tracked.update(tables_.accounts, key, seen.value + change, random_)
                          : tracked.insert(tables_.accounts, key, kFirstBalance, random_);
  };
  return put(from, *source, -amount) && put(to, *target, amount);
}

void WorkloadFiber::transfer() {
  const Key from = account();
  Key to = account();
  if (to == from) to = Key((from.value + 1) % shape_.accounts);
  static_cast<void>(
      run_tracked(process_, [&](TrackedTransaction& tracked) { return move_money(tracked, from, to, false); }));
}

void WorkloadFiber::transfer_explicit() {
  const Key from = account();
  Key to = account();
  if (to == from) to = Key((from.value + 1) % shape_.accounts);
  const bool for_update = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
    if (!move_money(tracked, from, to, for_update)) return false;
    if (random_.one_in(3)) pause(shape_.think_ns);
    // Reads its own write, and a record that it has not written, once more.
    return tracked.get(tables_.accounts, from) && tracked.get(tables_.accounts, account());
  }));
}

/// Sets several accounts to the same balance, as far as the sum permits: a larger write set.
void WorkloadFiber::rebalance() {
  std::set<uint64_t> chosen;
  while (chosen.size() < std::min<uint64_t>(6, shape_.accounts)) chosen.insert(account().value);
  std::vector<Key> keys;
  keys.reserve(chosen.size());
  for (const uint64_t key : chosen) keys.emplace_back(key);
  static_cast<void>(run_tracked(process_, [&](TrackedTransaction& tracked) {
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

bool WorkloadFiber::change_one(TrackedTransaction& tracked, Key key, bool blind) {
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

void WorkloadFiber::change_hot() {
  std::set<uint64_t> keys;
  for (uint64_t left = random_.between(1, kMaxHotWrites); left != 0; --left) keys.insert(hot_key().value);
  const bool retry = random_.one_in(2);
  const auto body = [&](TrackedTransaction& tracked) {
    for (const uint64_t key : keys) {
      if (!change_one(tracked, Key(key), false)) return false;
    }
    return !random_.one_in(4) || tracked.get(tables_.hot, Key(*keys.begin())).has_value();
  };
  static_cast<void>(retry ? run_tracked(process_, body) : begin_tracked(process_, false, body));
}

/// Writes one record that all clients write often, so that most attempts conflict.
void WorkloadFiber::count_up() {
  const Key key(random_.below(2));
  static_cast<void>(run_tracked(process_, [&](TrackedTransaction& tracked) {
    const auto seen = tracked.get(tables_.hot, key);
    if (!seen) return false;
    return seen->present() ? tracked.update(tables_.hot, key, seen->value + 1, random_)
                           : tracked.insert(tables_.hot, key, 1, random_);
  }));
}

void WorkloadFiber::blind_writes() {
  std::set<uint64_t> keys;
  for (uint64_t left = random_.between(1, kMaxHotWrites); left != 0; --left) keys.insert(hot_key().value);
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
    return std::all_of(keys.begin(), keys.end(), [&](uint64_t key) { return change_one(tracked, Key(key), true); });
  }));
}

void WorkloadFiber::several_tables() {
  const Key from = account();
  const Key to((from.value + 1 + random_.below(shape_.accounts - 1)) % shape_.accounts);
  const Key hot = hot_key();
  const auto made = open_dynamic_table();
  static_cast<void>(run_tracked(process_, [&](TrackedTransaction& tracked) {
    if (!change_one(tracked, hot, false) || !move_money(tracked, from, to, false)) return false;
    if (!made || random_.one_in(2)) return true;
    const auto seen = tracked.get(*made, hot);
    if (!seen) return false;
    return seen->present() ? tracked.update(*made, hot, value(), random_)
                           : tracked.insert(*made, hot, value(), random_);
  }));
}

/// Writes a value that depends on a read of another record, which must not change meanwhile: the read is for update,
/// which prevents write skew.
void WorkloadFiber::write_guarded() {
  const Key key = hot_key();
  const Key guard((key.value + 1) % shape_.hot_keys);
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
    const auto rests_on = tracked.get_for_update(tables_.hot, guard);
    if (!rests_on || !change_one(tracked, key, false)) return false;
    return !random_.one_in(3) || tracked.get(tables_.hot, guard).has_value();
  }));
}

/// Writes many long records: pages fill, and most of their versions are soon garbage.
void WorkloadFiber::write_wide() {
  std::set<uint64_t> keys;
  for (uint64_t left = random_.between(2, kMaxWideWrites); left != 0; --left)
    keys.insert(random_.below(shape_.wide_keys));
  static_cast<void>(run_tracked(process_, [&](TrackedTransaction& tracked) {
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

/// Writes records, reads them, writes them again, and sometimes aborts.
void WorkloadFiber::rewrite_own_writes() {
  const Key key = hot_key();
  const bool leave = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
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

bool WorkloadFiber::insert_and_remove(Key key) {
  const auto alone = [&](const std::function<bool(TrackedTransaction&)>& change) {
    return run_tracked(process_, change).ok();
  };
  return alone([&](TrackedTransaction& tracked) { return tracked.insert(tables_.wide, key, value(), random_); }) &&
         alone([&](TrackedTransaction& tracked) { return tracked.remove(tables_.wide, key); });
}

bool WorkloadFiber::run_delegated_write() {
  if (process_.delegated_writes == nullptr) return false;
  const auto others = [&](const std::shared_ptr<DelegatedWrite>& delegated) {
    return delegated->process != process_.number;
  };
  const auto at = std::ranges::find_if(*process_.delegated_writes, others);
  if (at == process_.delegated_writes->end()) return false;
  const std::shared_ptr<DelegatedWrite> delegated = std::move(*at);
  process_.delegated_writes->erase(at);
  delegated->done = insert_and_remove(delegated->key);
  return true;
}

bool WorkloadFiber::delegate_insert_and_remove(Key key) {
  if (process_.delegated_writes == nullptr) return insert_and_remove(key);
  const auto delegated = std::make_shared<DelegatedWrite>(DelegatedWrite{key, process_.number});
  process_.delegated_writes->push_back(delegated);
  for (int poll = 0; poll < kMaxDelegationPolls && !delegated->done && !stop_(); ++poll)
    process_.client.sleep_for(kDelegationPollNs);
  // No process has taken the write in time. It is withdrawn, because the transaction that needed it ends now.
  if (!delegated->done) std::erase(*process_.delegated_writes, delegated);
  return delegated->done;
}

/// Inserts a key that was absent when the transaction began, and was inserted and removed since. No snapshot contains
/// the other record, but the insert must fail, so the node must keep the tombstone (R20, garbage and tombstones).
void WorkloadFiber::insert_late() {
  const Key key(shape_.wide_keys + random_.below(kLateKeys));
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& late) {
    const auto seen = late.get(tables_.wide, key);
    if (!seen) return false;
    if (seen->present()) return late.remove(tables_.wide, key);
    if (!delegate_insert_and_remove(key)) return false;
    // Continues until the page with the tombstone is full and has enough garbage to be compacted.
    for (uint64_t left = random_.between(2, 8); left != 0 && !stop_(); --left) {
      write_wide();
      pause(shape_.long_ns / 16);
    }
    return late.insert(tables_.wide, key, value(), random_);
  }));
}

// ---- reading -------------------------------------------------------------------------------------------------------

void WorkloadFiber::read_points() {
  const bool read_only = !random_.one_in(4);
  static_cast<void>(begin_tracked(process_, read_only, [&](TrackedTransaction& tracked) {
    std::vector<Key> keys;
    for (uint64_t left = random_.between(1, 6); left != 0; --left) keys.push_back(hot_key());
    for (const auto& seen :
         random_.one_in(2) ? tracked.get_many(tables_.hot, keys) : tracked.get_async_many(tables_.hot, keys)) {
      if (!seen) return false;
    }
    for (uint64_t left = random_.between(1, 4); left != 0; --left) {
      if (!tracked.get(tables_.accounts, account())) return false;
    }
    return tracked.get(tables_.hot, keys.front()).has_value();
  }));
}

void WorkloadFiber::scan_all() {
  std::vector<Table> tables = {tables_.accounts, tables_.hot};
  if (const auto made = random_.one_in(2) ? open_dynamic_table() : std::nullopt; made) tables.push_back(*made);
  scan_snapshot(process_, tables, value() % 200);
}

void WorkloadFiber::scan_in_transaction() {
  const bool read_only = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, read_only, [&](TrackedTransaction& tracked) {
    const Key key = hot_key();
    if (!tracked.get(tables_.hot, key) || !tracked.scan(tables_.accounts) || !tracked.sum(tables_.accounts)) {
      return false;
    }
    if (random_.one_in(2)) pause(shape_.think_ns);
    if (!tracked.scan(tables_.hot) || !tracked.select(tables_.hot, value()) || !tracked.sum(tables_.hot)) return false;
    if (!tracked.divide(tables_.hot, value() % TransactionModel::kDivisor)) return false;
    return read_only || change_one(tracked, key, false);
  }));
}

/// Scans an old snapshot twice while others write; both results must be equal.
void WorkloadFiber::scan_wide() {
  static_cast<void>(begin_tracked(process_, true, [&](TrackedTransaction& tracked) {
    if (!tracked.scan(tables_.wide)) return false;
    if (random_.one_in(2)) pause(shape_.long_ns);
    return tracked.scan(tables_.wide) && tracked.select(tables_.wide, value()) && tracked.sum(tables_.wide) &&
           tracked.divide(tables_.wide, value() % TransactionModel::kDivisor);
  }));
}

/// Holds its snapshot while other transactions commit, and sometimes writes at the end.
void WorkloadFiber::run_long_transaction() {
  const bool read_only = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, read_only, [&](TrackedTransaction& tracked) {
    const uint64_t rounds = random_.between(2, 4);
    for (uint64_t round = 0; round < rounds && !stop_(); ++round) {
      for (uint64_t left = 4; left != 0; --left) {
        if (!tracked.get(tables_.hot, hot_key()) || !tracked.get(tables_.accounts, account())) {
          // The commit of a transaction that was told kFenced must fail; this tries it.
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

void WorkloadFiber::write_plain() {
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
  // A read may show the outcome. The expected version itself will never be there again.
  if (status == StatusCode::kUnknownOutcome || random_.one_in(3)) plain_get(process_, *table, key);
  if (kind == PlainModel::Kind::kUpdate && random_.one_in(4)) {
    static_cast<void>(plain_write(process_, *table, key, kind, seen->version));
  }
}

void WorkloadFiber::read_plain() {
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

void WorkloadFiber::draw_numbers() {
  if (!counter_ || random_.one_in(8)) {
    counter_.reset();
    auto counter = process_.client.counter(WorkloadTables::kCounter, kCounterBlock);
    process_.expected("the opening of a counter", counter.status());
    if (!counter.ok()) return;
    counter_.emplace(std::move(counter).value());
    counter_object_ = uint64_t{process_.number} << 32 | ++process_.objects;
  }
  for (uint64_t left = random_.between(1, 3); left != 0; --left) {
    const auto number = counter_->next();
    process_.expected("the draw of a counter's number", number.status());
    if (!number.ok()) return;
    process_.oracle.counters().drew(counter_object_, WorkloadTables::kCounter, *number);
  }
}

// ---- tables that clients create and drop --------------------------------------------------------------------------

void WorkloadFiber::make_table() {
  const std::string name = dynamic_table_name();
  const Schema& wanted = random_.one_in(5) ? other_schema() : row_schema();
  TableModel& model = process_.oracle.tables();
  const LogicalTime requested_at = process_.oracle.now();
  const auto table = process_.client.create_table(name, TableKind::kTransactional, wanted);
  process_.expected("create_table", table.status());
  if (table.ok()) {
    model.created(name, table->id(), table->schema().to_string(), wanted.to_string(), requested_at);
    dynamic_tables_.insert_or_assign(name, *table);
    if (has(IndexSet::kDynamic) && random_.one_in(2)) {
      static_cast<void>(create_index(process_, dynamic_index_name(*table), *table));
    }
  } else if (table.code() == StatusCode::kAlreadyExists) {
    model.create_refused(name, wanted.to_string(), requested_at);
  }
}

std::optional<Table> WorkloadFiber::open_dynamic_table() {
  const std::string name = dynamic_table_name();
  if (const auto known = dynamic_tables_.find(name); known != dynamic_tables_.end() && !random_.one_in(4))
    return known->second;
  const LogicalTime requested_at = process_.oracle.now();
  const auto table = process_.client.open_table(name);
  process_.expected("open_table", table.status());
  if (table.code() == StatusCode::kNoSuchTable) process_.oracle.tables().absent(name, requested_at);
  if (!table.ok()) return std::nullopt;
  report_opened(process_.oracle, *table, requested_at);
  dynamic_tables_.insert_or_assign(name, *table);
  return *table;
}

/// Adds the first field that the handle lacks. Another client may have added it already.
void WorkloadFiber::add_field(const Table& table) {
  if (table.added() == kAddedFields.size()) return;
  const LogicalTime requested_at = process_.oracle.now();
  const auto added = process_.client.add_field(table, kAddedFields[table.added()]);
  process_.expected("add_field", added.status());
  if (added.code() == StatusCode::kNoSuchTable) process_.oracle.tables().refused(table.id(), requested_at);
  if (!added.ok()) return;
  process_.oracle.added_fields().added(table.id(), added->added());
  // Some fibers go on with the older handle.
  if (requested_at % 3 != 0) dynamic_tables_.insert_or_assign(table.name(), *added);
}

void WorkloadFiber::use_table() {
  const auto table = open_dynamic_table();
  if (!table) return make_table();
  if (shape_.adds_fields && random_.one_in(4)) return add_field(*table);
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
    for (uint64_t left = random_.between(1, 3); left != 0; --left) {
      const Key key = hot_key();
      const auto seen = tracked.get(*table, key);
      if (!seen) return false;
      if (seen->present() ? !tracked.update(*table, key, value(), random_)
                          : !tracked.insert(*table, key, value(), random_)) {
        return false;
      }
    }
    return !shape_.adds_fields || !random_.one_in(4) || tracked.scan(*table);
  }));
}

void WorkloadFiber::drop_table() {
  const std::string name = dynamic_table_name();
  TableModel& model = process_.oracle.tables();
  IndexModel& indexes = process_.oracle.indexes();
  std::vector<size_t> with_it;
  with_it.reserve(IndexForm::kOfDynamicTables.size());
  for (const std::string_view form : IndexForm::kOfDynamicTables) {
    with_it.push_back(indexes.drop_called(name + std::string(form)));
  }
  const size_t drop = model.drop_called(name);
  const Status status = process_.client.drop_table(name);
  process_.expected("drop_table", status);
  model.drop_returned(drop, status.code());
  for (const size_t index : with_it) indexes.drop_returned(index, status.code());
}

}  // namespace loam::sim
