// Which pages a job rewrites: those with garbage that is worth it, remainders of earlier jobs, and cold ones that can
// become column pages.
#include <algorithm>
#include <cmath>
#include <functional>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "storage-node/src/compact/table_compactor.h"

namespace loam::storage {
namespace {

/// Pages of a job at most, however small they are.
constexpr size_t kMaxSourcePages = 64;
/// Pages of at most this part of a full one are merged along with others.
constexpr size_t kSmallPage = 8;
/// Gets after which their mean number of hops says something.
constexpr uint64_t kGetsForMean = 1000;
/// With so many fields that what describes them is a larger part of a page, no page has columns.
constexpr size_t kColumnHeadersOfPage = 4;
/// How late the demand on pages falls while memory gets short. Every entry that comes free costs (1 - share) / share
/// copies: a pool that is filled a little more is dearly paid for, so the demand stays high until little room is left.
/// 11.8, 4.9 and 2.4 copies a put with 1 in pages of 8 MiB, with 1 in pages of 2 MiB and with 8 there, of a pool of 1.6
/// times the live data (`loam-bench gc --only effort`).
constexpr double kHurryPower = 8;
/// A table whose garbage did not reach the demand is looked at again when that has fallen so far.
constexpr double kDemandStep = 0.05;

/// Memory that rewriting the page frees, for each byte that must be looked at and copied. Of pages of one size the one
/// with most garbage comes first; those that are all garbage come before all others, however small.
double worth(const Page& page) {
  const size_t used = page.used_bytes();
  const size_t live = used - std::min(used, page.garbage_bytes());
  return static_cast<double>(page.size_bytes() - live) / static_cast<double>(used + 4 * live + 1);
}

}  // namespace

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

/// Whether gets walked far on average since enough of them ago: of as many as there are pages to look at, at least.
bool TableCompactor::far_gets(const TableCounters& counters, size_t pages) {
  const uint64_t gets = counters.gets - gets_seen_;
  if (gets < std::max<uint64_t>(kGetsForMean, pages)) return false;
  const uint64_t hops = counters.hops - hops_seen_;
  gets_seen_ = counters.gets;
  hops_seen_ = counters.hops;
  return static_cast<double>(hops) > options_.max_mean_hops * static_cast<double>(gets);
}

bool TableCompactor::worth_a_look(const TableCounters& counters, size_t pages, bool far, double hurry) {
  const uint64_t changes = counters.writes + counters.reverts + counters.discarded_entries;
  // A refused write may have sealed a page, and is a reason to hurry.
  const bool refused = counters.no_space != no_space_seen_;
  const bool room = wants_room_ && statistics_.pages_freed != freed_seen_;
  // Pages that were not worth it may be by now, though other tables have taken the memory.
  const double demanded = demand(hurry);
  const bool least = hurry == 1 && demanded < demand_seen_;
  const bool short_now = !wants_room_ && (least || demanded < demand_seen_ - kDemandStep);
  if (!look_again_ && !refused && !room && !far && !short_now && turn_ < wake_ && changes - changes_seen_ < pages)
    return false;
  look_again_ = false;
  wants_room_ = false;
  wake_ = UINT64_MAX;
  changes_seen_ = changes;
  demand_seen_ = demanded;
  no_space_seen_ = counters.no_space;
  return true;
}

size_t TableCompactor::choose(uint64_t turn, double hurry) {
  LOAM_DCHECK(phase_ == Phase::kIdle, "one job at a time");
  turn_ = turn;
  sources_.clear();
  const TableCounters counters = table_->counters();
  const size_t pages = table_->pages().pages().size();
  const bool far = far_gets(counters, pages);
  if (worth_a_look(counters, pages, far, hurry)) {
    if (const size_t garbage = choose_garbage(far, hurry); garbage > 0) return garbage;
  }
  return hurry == 0 && choose_cold() ? 1 : 0;
}

size_t TableCompactor::choose_garbage(bool far, double hurry) {
  size_t filled = 0;
  size_t garbage = 0;
  for (Page* const page : table_->pages().pages()) {
    const size_t page_filled = page->used_bytes();
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
    const size_t need = page.garbage_bytes() >= page.used_bytes() ? 0 : page.size_bytes();
    if (bytes + need > most) break;
    bytes += need;
    chosen_garbage += page.garbage_bytes();
  }
  sources_.resize(chosen);
  look_again_ = chosen > 0;
  if (chosen > 0) add_small_pages(table_->log().pool().page_size());
  return chosen_garbage;
}

bool TableCompactor::columns_wanted() {
  const Schema* const schema = table_->schema();
  if (!transactional_ || schema == nullptr || options_.columns == ColumnPolicy::kNever) return false;
  if (ColumnWidths::page_overhead(*schema) > table_->log().pool().page_size() / kColumnHeadersOfPage) return false;
  if (options_.columns == ColumnPolicy::kAlways) return true;
  const uint64_t scans = table_->scans();
  if (scans != scans_seen_) {
    scans_seen_ = scans;
    scanned_until_ = turn_ + options_.scanned_publications;
  }
  return turn_ < scanned_until_;
}

/// Row pages in which nothing was superseded for a while.
bool TableCompactor::choose_cold() {
  const bool at_once = Env::buggify("node.compact.cold");
  if (!columns_wanted() || (turn_ < next_cold_turn_ && !at_once)) return false;
  const size_t most = options_.max_sources * table_->log().pool().page_size();
  size_t bytes = 0;
  for (Page* const page : table_->pages().pages()) {
    if (!page->sealed() || page->has_columns()) continue;
    const size_t garbage = page->garbage_bytes();
    const Calm fresh{garbage, turn_, options_.cold_publications};
    Calm& calm = calm_.try_emplace(page, fresh).first->second;
    if (calm.garbage_bytes != garbage) calm = fresh;
    const bool cold = at_once || turn_ - calm.since >= calm.wait;
    if (!cold || sources_.size() >= kMaxSourcePages || bytes + page->size_bytes() > most) continue;
    bytes += page->size_bytes();
    sources_.push_back({.page = page, .cold = true});
  }
  if (sources_.empty()) next_cold_turn_ = turn_ + 1 + options_.cold_publications / 4;
  return !sources_.empty();
}

/// The share of garbage above which a page is worth its rewriting. A page of which a tenth is garbage costs nine copies
/// for each entry that comes free: as long as there is room, waiting is cheaper.
double TableCompactor::least_share(bool over, double hurry) const {
  return std::min(over ? options_.dead_share : 1, demand(hurry));
}

/// That share as far as memory has a say: it falls as room gets short, late and steeply.
double TableCompactor::demand(double hurry) const {
  if (hurry == 0) return 1;
  return std::lerp(2 * options_.dead_share, options_.min_page_dead_share, std::pow(hurry, kHurryPower));
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

/// A cold page would not become a column page now. It is left alone for longer each time, as long as nothing changes in
/// it; what garbage it has meanwhile is another matter. True.
bool TableCompactor::stay_rows(const Page* page) {
  constexpr uint64_t kLongestWait = 64;  // times the shortest
  const auto calm = calm_.find(page);
  if (calm == calm_.end()) return true;
  calm->second.since = turn_;
  calm->second.wait = std::min(2 * calm->second.wait, kLongestWait * options_.cold_publications);
  Env::probe("node.compact.cold_in_vain");
  return true;
}

}  // namespace loam::storage
