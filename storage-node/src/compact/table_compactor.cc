#include "storage-node/src/compact/table_compactor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/compact/plan.h"
#include "storage-node/src/log/row_prefetch.h"
#include "storage-node/src/version/chain.h"

namespace loam::storage {
namespace {

/// Pages given back to the pool in one step.
constexpr size_t kFreesPerStep = 4;
/// Keys whose way through the index is fetched together: their waits for memory overlap.
constexpr size_t kFetchGroup = 16;
/// Rows whose entries are a larger part of a page stay rows.
constexpr size_t kColumnRowOfPage = 8;

/// Brings a header further on into the cache: each one's size leads to the next, and the processor's own prefetchers
/// stop at 4 KiB.
void fetch_ahead(const Entry* entry) {
  constexpr size_t kAheadBytes = 4096;
  __builtin_prefetch(reinterpret_cast<const std::byte*>(entry) + kAheadBytes);
}

}  // namespace

TableCompactor::TableCompactor(std::shared_ptr<Table> table, const CompactorOptions& options,
                               CompactorStatistics& statistics)
    : table_(std::move(table)),
      options_(options),
      statistics_(statistics),
      transactional_(table_->kind() == TableKind::kTransactional) {}

TableCompactor::~TableCompactor() {
  for (Page* const page : targets_) table_->log().release(page);
  for (const Retired& retired : retired_) table_->log().release(retired.page);
  statistics_.pages_waiting -= retired_.size();
}

void TableCompactor::begin(std::shared_ptr<const Publication> publication, uint64_t epoch) {
  LOAM_DCHECK(phase_ == Phase::kIdle && !sources_.empty(), "a job begins with chosen pages");
  publication_ = std::move(publication);
  to_columns_ = columns_wanted();
  widths_.reset();
  if (to_columns_) widths_.emplace(*table_->schema());
  if (publication_ != nullptr) raise_horizon(*publication_, epoch);
  enter(Phase::kBegun);
}

void TableCompactor::raise_horizon(const Publication& publication, uint64_t epoch) {
  if (!transactional_ || rises_) return;
  table_->raise_horizon(publication.seen_by_all());
  rises_ = true;
  rise_epoch_ = epoch;
}

void TableCompactor::enter(Phase phase) {
  phase_ = phase;
  source_ = 0;
  at_ = nullptr;
}

template <class F>
bool TableCompactor::for_each_entry(size_t budget, F&& f) {
  const Entry* fetched = at_;  // entries before it have been fetched
  for (; source_ < sources_.size(); ++source_, at_ = nullptr) {
    Page& page = *sources_[source_].page;
    if (at_ == nullptr) fetched = at_ = page.begin();
    for (Entry* const end = page.end(); at_ != end; at_ = Page::next(at_)) {
      if (budget == 0) return false;
      --budget;
      if (phase_ == Phase::kWalk) {
        fetch_ahead(at_);
      } else if (at_ == fetched) {
        fetched = fetch_chains(at_, end, budget + 1);
      }
      f(*at_);
    }
  }
  return true;
}

/// Brings slots and newest versions of the next entries' keys into the cache, all at once: moving an entry looks its
/// key up, which by itself is two waits for memory. Entries that are frozen already are not moved, but verified.
/// Looks at up to `most` entries. Returns the first one that was not looked at.
const Entry* TableCompactor::fetch_chains(Entry* entry, const Entry* end, size_t most) {
  std::array<uint64_t, kFetchGroup> hashes;
  std::array<Key, kFetchGroup> keys;
  const HashIndex& index = table_->index();
  size_t count = 0;
  const size_t left = most;
  for (; entry != end && count < keys.size() && most > 0; entry = Page::next(entry), --most) {
    fetch_ahead(entry);
    const Link link = entry->load_link();
    if (phase_ == Phase::kVerify ? link.live() : !link.live() || droppable(link)) continue;
    if (phase_ == Phase::kMove && column_entries_.empty()) prefetch_row(*entry);
    keys[count] = Key(entry->key);
    hashes[count] = HashIndex::hash(keys[count]);
    index.prefetch_slot(hashes[count], phase_ == Phase::kMove);
    ++count;
  }
  statistics_.entries_fetched += left - most;
  for (size_t i = 0; i < count; ++i) index.find_candidate(keys[i], hashes[i], true);
  return entry;
}

bool TableCompactor::step(ThreadContext& thread, size_t budget) {
  if (rises_ && thread.epochs().domain().passed(rise_epoch_)) {
    rises_ = false;
    horizon_ = table_->horizon();
  }
  switch (phase_) {
    case Phase::kIdle:
      return false;
    case Phase::kBegun:
      quiet_epoch_ = thread.epochs().domain().current();
      enter(Phase::kQuiet);
      return true;
    case Phase::kQuiet:
      if (!thread.epochs().domain().passed(quiet_epoch_)) return false;
      enter(Phase::kWalk);
      return true;
    case Phase::kWalk: {
      const EpochGuard guard(thread.epochs());
      if (for_each_entry(budget, [&](Entry& entry) { count(thread, entry); })) plan();
      return true;
    }
    case Phase::kFill: {
      const EpochGuard guard(thread.epochs());
      if (fill(thread, budget)) enter(Phase::kMove);
      return true;
    }
    case Phase::kMove: {
      const EpochGuard guard(thread.epochs());
      if (for_each_entry(budget, [&](Entry& entry) { move_entry(thread, entry); })) {
        settle_epoch_ = thread.epochs().domain().current();
        enter(Phase::kSettle);
      }
      return true;
    }
    case Phase::kSettle:
      if (!thread.epochs().domain().passed(settle_epoch_)) return false;
      enter(Phase::kVerify);
      return true;
    case Phase::kVerify: {
      const EpochGuard guard(thread.epochs());
      const auto verify = [&](const Entry& entry) {
        if (entry.load_link().live()) return;  // dropped
        Chain(table_->index(), thread, Key(entry.key)).repair(horizon_);
      };
      if (for_each_entry(budget, verify)) publish(thread);
      return true;
    }
  }
  return false;
}

bool TableCompactor::garbage(const Entry& entry, const Link& link) const {
  if (!link.live()) return true;
  return transactional_ && publication_ != nullptr && !link.open() &&
         publication_->garbage(entry.version(), Version(link.valid_to));
}

/// Garbage that nobody can come upon: nothing needs to be done about it (horizon, version/chain.h).
bool TableCompactor::droppable(const Link& link) const {
  return transactional_ && link.live() && link.valid_to <= horizon_.value && link.valid_to > skipped_.value;
}

/// With everything under it, so that the move will find it alone.
bool TableCompactor::garbage_tombstone(const Entry& entry, const Link& link) const {
  if (!entry.tombstone() || !link.open() || publication_ == nullptr) return false;
  if (!publication_->tombstone_garbage(entry.version())) return false;
  const Entry* newer = &entry;
  for (const Entry* older = link.address; older != nullptr && newer->version() > horizon_;) {
    const Link seen = older->load_link();
    if (!garbage(*older, seen)) return false;
    newer = older;
    older = seen.address;
  }
  return true;
}

void TableCompactor::count(ThreadContext& thread, Entry& entry) {
  Source& source = sources_[source_];
  const Link link = entry.load_link();
  const bool gone = garbage(entry, link);
  if (gone || garbage_tombstone(entry, link)) source.garbage_bytes += source.page->footprint(entry);
  if (gone) return;
  const size_t row = row_bytes(entry);
  Kept kept{.row_entry_bytes = static_cast<uint32_t>(entry_size(row))};
  if (to_columns_ && for_columns(entry, link, kept.row_entry_bytes)) {
    widths_->add(row_of(entry, thread, table_->schemas(), &widths_->schema()));
    kept.text_bytes = static_cast<uint32_t>(row - schema_of(entry, *table_->schemas()).fixed_size());
    kept.for_columns = &entry;
    ++source.for_columns;
  }
  source.kept.push_back(kept);
  source.kept_bytes += kept.row_entry_bytes;
}

/// Seen by every open and every later snapshot, and small beside a page.
bool TableCompactor::for_columns(const Entry& entry, const Link& link, size_t row_entry_bytes) const {
  return !entry.tombstone() && link.open() && entry.version() <= horizon_ &&
         row_entry_bytes <= table_->log().pool().page_size() / kColumnRowOfPage;
}

bool TableCompactor::enough_for_columns() const {
  size_t rows = 0;
  for (const Source& source : sources_) rows += source.for_columns;
  return rows >= options_.min_column_rows || (rows > 0 && Env::buggify("node.compact.few_columns"));
}

void TableCompactor::plan() {
  to_columns_ = enough_for_columns();
  std::erase_if(sources_, [&](const Source& source) {
    if (source.small) return false;
    if (source.cold) return !(to_columns_ && source.for_columns > source.kept.size() / 2) && stay_rows(source.page);
    const auto filled = static_cast<double>(source.page->used_bytes());
    if (static_cast<double>(source.garbage_bytes) > options_.min_page_dead_share * filled) return false;
    rest(source.page);
    Env::probe("node.compact.futile_walk");
    ++statistics_.futile_walks;
    return true;
  });
  if (std::ranges::all_of(sources_, &Source::small)) sources_.clear();
  while (!sources_.empty() && !take_targets()) {
    // The one that needs most goes; those that are all garbage need nothing.
    sources_.erase(std::ranges::max_element(sources_, {}, &Source::kept_bytes));
    if (std::ranges::all_of(sources_, &Source::small)) sources_.clear();  // alone they free nothing, again and again
    if (!sources_.empty()) continue;
    Env::probe("node.compact.no_room");
    ++statistics_.jobs_without_room;
    look_again_ = false;  // not at once
    wants_room_ = true;
    next_cold_turn_ = turn_ + 1 + options_.cold_publications;
    freed_seen_ = statistics_.pages_freed;
    wake_ = std::min(wake_, turn_ + 1);
  }
  if (sources_.empty()) return end_job();
  for (const Source& source : sources_) source.page->set_state(PageState::kSource);
  enter(column_entries_.empty() ? Phase::kMove : Phase::kFill);
}

Page* TableCompactor::take_target(size_t size_bytes) {
  Page* const page = table_->log().open_target(size_bytes);
  if (page != nullptr) {
    targets_.push_back(page);
    return page;
  }
  for (Page* const taken : targets_) table_->log().release(taken);
  targets_.clear();
  return nullptr;
}

bool TableCompactor::take_targets() {
  const size_t page_bytes = table_->log().pool().page_size();
  std::vector<uint32_t> row_entries;
  std::vector<uint32_t> texts;
  column_entries_.clear();
  for (const Source& source : sources_) {
    for (const Kept& kept : source.kept) {
      if (to_columns_ && kept.for_columns != nullptr) {
        column_entries_.push_back(kept.for_columns);
        texts.push_back(kept.text_bytes);
      } else {
        row_entries.push_back(kept.row_entry_bytes);
      }
    }
  }
  for (const size_t size : plan_targets(row_entries, page_bytes)) {
    if (take_target(size) == nullptr) return false;
  }
  target_ = 0;
  row_targets_ = column_target_ = targets_.size();
  next_column_entry_ = 0;
  if (column_entries_.empty()) return true;
  for (const ColumnPagePlan& plan :
       plan_column_pages(texts, widths_->row_bytes(), ColumnWidths::page_overhead(widths_->schema()), page_bytes)) {
    Page* const page = take_target(plan.page_bytes);
    if (page == nullptr) return false;
    Columns::lay_out(*page, *widths_, plan.rows, plan.text_bytes);
  }
  return true;
}

/// Writes rows to the column pages. True when all are there.
bool TableCompactor::fill(ThreadContext& thread, size_t budget) {
  for (; next_column_entry_ < column_entries_.size(); ++next_column_entry_) {
    if (budget-- == 0) return false;
    const Entry& entry = *column_entries_[next_column_entry_];
    fetch_ahead(&entry);
    while (Columns::of(*targets_[column_target_]).full()) ++column_target_;
    Columns::of(*targets_[column_target_]).append(row_of(entry, thread, table_->schemas(), &widths_->schema()));
  }
  next_column_entry_ = 0;
  column_target_ = row_targets_;
  Env::pause_point("node.compact.columns_filled");
  return true;
}

/// At the place that the entry's row has.
Entry* TableCompactor::append_to_columns(const Entry& entry, Link link) {
  const EntryImage image{EntryKind::kColumns, Key(entry.key), entry.version(), entry.sequence, link, {}};
  for (;; ++column_target_) {
    if (Entry* const appended = TableLog::append_to(*targets_[column_target_], image)) return appended;
  }
}

Entry* TableCompactor::copy(ThreadContext& thread, const Entry& entry, Link link, bool to_columns) {
  if (to_columns) return append_to_columns(entry, link);
  const EntryKind kind = entry.tombstone() ? EntryKind::kTombstone : EntryKind::kPut;
  // A row keeps its number of added fields, so the copy needs no more room than the plan has given it.
  const NewRow row{row_of(entry, thread), nullptr, added_fields(entry)};
  const EntryImage image{kind, Key(entry.key), entry.version(), entry.sequence, link, row};
  for (; target_ < row_targets_; ++target_) {
    if (Entry* const copied = TableLog::append_to(*targets_[target_], image)) return copied;
  }
  LOAM_CHECK(false, "the plan of a compaction job gave too little room");
  return nullptr;
}

/// Kills what is garbage in the entry's chain, and the entry if it is, also where no chain leads to it any more.
void TableCompactor::collect(Chain& chain, Entry& entry) {
  Chain::CollectResult collected;
  chain.collect(horizon_, publication_.get(), &collected);
  for (Link link = entry.load_link(); link.live() && garbage(entry, link); link = entry.load_link()) {
    if (Chain::kill_collected(&entry, link, horizon_)) collected.add(entry, horizon_);
  }
  skipped_ = std::max(skipped_, collected.over_horizon);
  statistics_.versions_collected += collected.versions;
  statistics_.tombstones_collected += collected.tombstones;
  if (collected.versions > 0) Env::probe("node.compact.version_collected");
  if (collected.tombstones > 0) Env::probe("node.compact.tombstone_collected");
}

void TableCompactor::move_entry(ThreadContext& thread, Entry& entry) {
  const bool to_columns = next_column_entry_ < column_entries_.size() && column_entries_[next_column_entry_] == &entry;
  if (to_columns) ++next_column_entry_;
  if (copy_and_freeze(thread, entry, to_columns) || !to_columns) return;
  Env::probe("node.compact.gap_in_columns");
  Entry* const gap = append_to_columns(entry, {.state = EntryState::kDead});
  Page::of(gap)->clear_all_visible();
  Page::of(gap)->add_garbage(*gap);
}

/// False: it was garbage, and there is no copy.
bool TableCompactor::copy_and_freeze(ThreadContext& thread, Entry& entry, bool to_columns) {
  Link link = entry.load_link();
  if (!link.live()) return false;
  if (droppable(link)) {
    ++statistics_.versions_collected;
    Env::probe("node.compact.version_dropped");
    return false;
  }
  Chain chain(table_->index(), thread, Key(entry.key));
  // Nothing behind a version at the horizon is anybody's.
  const bool alone = entry.version() <= horizon_;
  if (transactional_ && (!alone || !link.open() || entry.tombstone())) {
    collect(chain, entry);
    link = entry.load_link();
    if (!link.live()) return false;
  }
  const auto copied_link = [alone](const Link& seen) {
    return Link{seen.valid_to, alone ? nullptr : seen.address, EntryState::kLive};
  };
  Entry* const copied = copy(thread, entry, copied_link(link), to_columns);
  const auto clear_mark_if_claimed = [copied](const Link& claimed) {
    if (!claimed.open() && copied->kind == EntryKind::kColumns) clear_all_visible(copied);
  };
  clear_mark_if_claimed(link);
  Env::pause_point("node.compact.copied");
  for (;;) {
    Link seen = link;
    if (entry.compare_exchange_link(seen, {link.valid_to, copied, EntryState::kMoved})) break;
    Env::probe("node.compact.move_lost");
    if (!seen.live()) {
      // Reverted, removed or replaced meanwhile. Nobody has seen the copy.
      Chain::kill_unlinked(copied);
      Page::of(copied)->add_garbage(*copied);
      return true;
    }
    link = seen;
    copied->link.init(copied_link(link).encode());
    clear_mark_if_claimed(link);
  }
  if (transactional_ && (!link.open() || entry.tombstone())) Page::of(copied)->add_garbage(*copied);
  Env::pause_point("node.compact.moved");
  ++statistics_.entries_moved;
  statistics_.bytes_moved += entry.size_bytes;
  // What was found before still leads here, or to what has come above since; only a key that was absent may be there
  // now.
  if (!chain.cursor().found()) chain.refresh();
  chain.repair(horizon_);
  return true;
}

void TableCompactor::publish(ThreadContext& thread) {
  std::vector<Page*> sources;
  sources.reserve(sources_.size());
  for (const Source& source : sources_) sources.push_back(source.page);
  for (Page*& page : targets_) {
    page->seal();
    if (page->filled_bytes() > 0) continue;
    table_->log().release(page);  // more was garbage than the walk saw
    page = nullptr;
  }
  std::erase(targets_, nullptr);
  table_->pages().replace(thread.epochs(), sources, targets_);
  const uint64_t epoch = thread.epochs().domain().current();
  for (Page* const page : sources) {
    page->set_state(PageState::kRetired);
    backoff_.erase(page);
    calm_.erase(page);
    retired_.push_back({page, epoch});
  }
  for (const Page* const page : targets_) {
    if (page->garbage_bytes() > 0) rest(page);  // superseded versions that are still seen
  }
  Env::probe("node.compact.page_retired");
  Env::pause_point("node.compact.published");
  for (const Page* const page : targets_) {
    if (!page->has_columns()) continue;
    Env::probe("node.compact.column_page");
    ++statistics_.column_pages;
    statistics_.column_rows += page->filled_bytes() / sizeof(Entry);
  }
  statistics_.pages_rewritten += sources.size();
  statistics_.pages_waiting += sources.size();
  targets_.clear();
  end_job();
}

void TableCompactor::end_job() {
  sources_.clear();
  column_entries_.clear();
  publication_.reset();
  enter(Phase::kIdle);
}

bool TableCompactor::free_retired(const EpochDomain& epochs) {
  size_t freed = 0;
  while (freed < kFreesPerStep && !retired_.empty() && epochs.passed(retired_.front().epoch) &&
         !retired_.front().page->pinned()) {
    table_->log().release(retired_.front().page);
    retired_.pop_front();
    ++freed;
  }
  if (freed > 0) Env::probe("node.compact.page_freed");
  statistics_.pages_freed += freed;
  statistics_.pages_waiting -= freed;
  return freed > 0;
}

bool TableCompactor::deserted(const EpochDomain& epochs) {
  const auto pinned = [](const Page* page) { return page->pinned(); };
  return dropped_ && epochs.passed(dropped_epoch_) && std::ranges::none_of(table_->pages().pages(), pinned) &&
         std::ranges::none_of(retired_, pinned, &Retired::page);
}

}  // namespace loam::storage
