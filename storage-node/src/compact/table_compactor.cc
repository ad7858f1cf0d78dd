#include "storage-node/src/compact/table_compactor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/compact/plan.h"
#include "storage-node/src/log/row_prefetch.h"
#include "storage-node/src/version/chain.h"

namespace loam::storage {
namespace {

/// Pages of a job at most, however small they are.
constexpr size_t kMaxSourcePages = 64;
/// Pages given back to the pool in one step.
constexpr size_t kFreesPerStep = 4;
/// Pages of at most this part of a full one are merged along with others.
constexpr size_t kSmallPage = 8;
/// Gets after which their mean number of hops says something.
constexpr uint64_t kGetsForMean = 1000;
/// Keys whose way through the index is fetched together: their waits for memory overlap.
constexpr size_t kFetchGroup = 16;

/// Brings a header further on into the cache: each one's size leads to the next, and the processor's own prefetchers
/// stop at 4 KiB.
void fetch_ahead(const Entry* entry) {
  constexpr size_t kAheadBytes = 4096;
  __builtin_prefetch(reinterpret_cast<const std::byte*>(entry) + kAheadBytes);
}

/// Memory that rewriting the page frees, for each byte that must be looked at and copied. Of pages of one size the one
/// with most garbage comes first; those that are all garbage come before all others, however small.
double worth(const Page& page) {
  const size_t filled = page.filled_bytes();
  const size_t live = filled - std::min(filled, page.garbage_bytes());
  return static_cast<double>(page.size_bytes() - live) / static_cast<double>(filled + 4 * live + 1);
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

bool TableCompactor::resting(const Page* page) const {
  const auto found = backoff_.find(page);
  return found != backoff_.end() && turn_ < found->second.until;
}

void TableCompactor::rest(const Page* page) {
  if (!transactional_) return;  // their garbage is nobody's at once
  Backoff& backoff = backoff_[page];
  backoff.length = backoff.length == 0 ? options_.backoff_publications : backoff.length * 2;
  backoff.until = turn_ + backoff.length;
  wake_ = std::min(wake_, backoff.until);
}

bool TableCompactor::worth_a_look(const TableCounters& counters, size_t pages) {
  const uint64_t changes = counters.writes + counters.reverts + counters.lost_races;
  // A refused write may have sealed a page, and is a reason to hurry.
  const bool refused = counters.no_space != no_space_seen_;
  const bool room = wants_room_ && statistics_.pages_freed != freed_seen_;
  if (!look_again_ && !refused && !room && turn_ < wake_ && changes - changes_seen_ < pages) return false;
  look_again_ = false;
  wants_room_ = false;
  wake_ = UINT64_MAX;
  changes_seen_ = changes;
  no_space_seen_ = counters.no_space;
  return true;
}

size_t TableCompactor::choose(uint64_t turn, double hurry) {
  LOAM_DCHECK(phase_ == Phase::kIdle, "one job at a time");
  turn_ = turn;
  sources_.clear();
  const TableCounters counters = table_->counters();
  if (!worth_a_look(counters, table_->pages().pages().size())) return 0;
  size_t filled = 0;
  size_t garbage = 0;
  for (Page* const page : table_->pages().pages()) {
    const size_t page_filled = page->filled_bytes();
    const size_t page_garbage = page->garbage_bytes();
    filled += page_filled;
    if (!page->sealed()) continue;
    if (resting(page)) {
      wake_ = std::min(wake_, backoff_.at(page).until);
      continue;
    }
    garbage += page_garbage;
    const double share = static_cast<double>(page_garbage) / static_cast<double>(page_filled);
    if (share > options_.min_page_dead_share) sources_.push_back({.page = page, .share = share, .worth = worth(*page)});
  }
  const uint64_t gets = counters.gets - gets_seen_;
  const bool far = gets >= kGetsForMean &&
                   static_cast<double>(counters.hops - hops_seen_) > options_.max_mean_hops * static_cast<double>(gets);
  if (gets >= kGetsForMean) {
    gets_seen_ = counters.gets;
    hops_seen_ = counters.hops;
  }
  const bool over = static_cast<double>(garbage) > options_.dead_share * static_cast<double>(filled);
  const double least = far ? options_.min_page_dead_share : least_share(over, hurry);
  std::erase_if(sources_, [least](const Source& source) { return source.share <= least; });
  std::ranges::sort(sources_, std::ranges::greater(), &Source::worth);
  size_t bytes = 0;  // of pages that need copying
  size_t chosen = 0;
  size_t chosen_garbage = 0;
  const size_t most = options_.max_sources * table_->log().pool().page_size();
  for (; chosen < std::min(sources_.size(), kMaxSourcePages); ++chosen) {
    const Page& page = *sources_[chosen].page;
    const size_t need = page.garbage_bytes() >= page.filled_bytes() ? 0 : page.size_bytes();
    if (bytes + need > most) break;
    bytes += need;
    chosen_garbage += page.garbage_bytes();
  }
  sources_.resize(chosen);
  look_again_ = chosen > 0;
  if (chosen > 0) add_small_pages(table_->log().pool().page_size());
  return chosen_garbage;
}

/// The share of garbage above which a page is worth its rewriting. A page of which a tenth is garbage costs nine copies
/// for each entry that comes free: as long as there is room, waiting is cheaper.
double TableCompactor::least_share(bool over, double hurry) const {
  const double by_table = over ? options_.dead_share : 1;
  if (hurry == 0) return by_table;
  return std::min(by_table, std::lerp(2 * options_.dead_share, options_.min_page_dead_share, hurry));
}

/// Remainders of earlier jobs come along, so that they do not pile up.
void TableCompactor::add_small_pages(size_t budget_bytes) {
  const size_t chosen = sources_.size();
  for (Page* const page : table_->pages().pages()) {
    if (sources_.size() >= kMaxSourcePages) return;
    if (!page->sealed() || page->size_bytes() > table_->log().pool().page_size() / kSmallPage) continue;
    if (page->size_bytes() > budget_bytes) continue;
    const auto first = sources_.begin();
    if (std::any_of(first, first + static_cast<ptrdiff_t>(chosen), [&](const Source& s) { return s.page == page; })) {
      continue;
    }
    budget_bytes -= page->size_bytes();
    sources_.push_back({.page = page, .small = true});
  }
}

void TableCompactor::begin(std::shared_ptr<const Publication> publication, uint64_t epoch) {
  LOAM_DCHECK(phase_ == Phase::kIdle && !sources_.empty(), "a job begins with chosen pages");
  publication_ = std::move(publication);
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
    if (phase_ == Phase::kMove) prefetch_row(*entry);
    keys[count] = Key(entry->key);
    hashes[count] = HashIndex::hash(keys[count]);
    index.prefetch_slot(hashes[count], phase_ == Phase::kMove);
    ++count;
  }
  statistics_.entries_fetched += left - most;
  for (size_t i = 0; i < count; ++i) index.look(keys[i], hashes[i], true);
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
      if (for_each_entry(budget, [&](const Entry& entry) { count(entry); })) plan();
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
        Chain(table_->index(), thread, Key(entry.key)).mend(horizon_);
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

void TableCompactor::count(const Entry& entry) {
  Source& source = sources_[source_];
  const Link link = entry.load_link();
  const bool gone = garbage(entry, link);
  if (gone || garbage_tombstone(entry, link)) source.garbage_bytes += entry.size_bytes;
  if (gone) return;
  source.kept.push_back(entry.size_bytes);
  source.kept_bytes += entry.size_bytes;
}

void TableCompactor::plan() {
  std::erase_if(sources_, [&](const Source& source) {
    if (source.small) return false;
    const auto filled = static_cast<double>(source.page->filled_bytes());
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
    freed_seen_ = statistics_.pages_freed;
    wake_ = std::min(wake_, turn_ + 1);
  }
  if (sources_.empty()) return end_job();
  for (const Source& source : sources_) source.page->set_state(PageState::kSource);
  enter(Phase::kMove);
}

bool TableCompactor::take_targets() {
  std::vector<uint32_t> kept;
  for (const Source& source : sources_) kept.insert(kept.end(), source.kept.begin(), source.kept.end());
  for (const size_t size : plan_targets(kept, table_->log().pool().page_size())) {
    Page* const page = table_->log().open_target(size);
    if (page == nullptr) {
      for (Page* const taken : targets_) table_->log().release(taken);
      targets_.clear();
      return false;
    }
    targets_.push_back(page);
  }
  target_ = 0;
  return true;
}

Entry* TableCompactor::copy(const Entry& entry, Link link) {
  const EntryImage image{entry.kind, Key(entry.key), entry.version(), entry.sequence, link, {entry.row()}};
  for (; target_ < targets_.size(); ++target_) {
    if (Entry* const copied = TableLog::append_to(*targets_[target_], image)) return copied;
  }
  LOAM_CHECK(false, "the plan of a compaction job gave too little room");
  return nullptr;
}

/// Kills what is garbage in the entry's chain, and the entry if it is, also where no chain leads to it any more.
void TableCompactor::collect(Chain& chain, Entry& entry) {
  Chain::Collected collected;
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
  Link link = entry.load_link();
  if (!link.live()) return;
  if (droppable(link)) {
    ++statistics_.versions_collected;
    Env::probe("node.compact.version_dropped");
    return;
  }
  Chain chain(table_->index(), thread, Key(entry.key));
  // Nothing behind a version at the horizon is anybody's.
  const bool alone = entry.version() <= horizon_;
  if (transactional_ && (!alone || !link.open() || entry.tombstone())) {
    collect(chain, entry);
    link = entry.load_link();
    if (!link.live()) return;
  }
  const auto copied_link = [alone](const Link& seen) {
    return Link{seen.valid_to, alone ? nullptr : seen.address, EntryState::kLive, seen.mark};
  };
  Entry* const copied = copy(entry, copied_link(link));
  Env::pause_point("node.compact.copied");
  for (;;) {
    Link seen = link;
    if (entry.compare_exchange_link(seen, {link.valid_to, copied, EntryState::kMoved})) break;
    Env::probe("node.compact.move_lost");
    if (!seen.live()) {
      // Reverted, removed or replaced meanwhile. Nobody has seen the copy.
      Chain::kill_unlinked(copied);
      Page::of(copied)->add_garbage(copied->size_bytes);
      return;
    }
    link = seen;
    copied->link.init(copied_link(link).encode());
  }
  if (transactional_ && (!link.open() || entry.tombstone())) Page::of(copied)->add_garbage(copied->size_bytes);
  Env::pause_point("node.compact.moved");
  ++statistics_.entries_moved;
  statistics_.bytes_moved += entry.size_bytes;
  // What was found before still leads here, or to what has come above since; only a key that was absent may be there
  // now.
  if (!chain.cursor().found()) chain.refresh();
  chain.mend(horizon_);
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
    retired_.push_back({page, epoch});
  }
  for (const Page* const page : targets_) {
    if (page->garbage_bytes() > 0) rest(page);  // superseded versions that are still seen
  }
  Env::probe("node.compact.page_retired");
  Env::pause_point("node.compact.published");
  statistics_.pages_rewritten += sources.size();
  statistics_.pages_waiting += sources.size();
  targets_.clear();
  end_job();
}

void TableCompactor::end_job() {
  sources_.clear();
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
