#include "storage-node/src/scan/scan_scheduler.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {
namespace {

Status stalled(uint64_t since_ns, uint64_t now_ns, const char* why) {
  return {StatusCode::kTimeout, "its client took no chunk for " + std::to_string((now_ns - since_ns) / 1'000'000) +
                                    " ms, " + why + "; read chunks as they come, or ask for less"};
}

}  // namespace

uint64_t ScanPass::choose_page() const {
  uint64_t next = ScanQuery::kNoPage;
  uint64_t first = ScanQuery::kNoPage;
  for (const auto& query : queries_) {
    if (!query->eligible()) continue;
    next = std::min(next, query->next_page(cursor_));
    first = std::min(first, query->next_page(0));
  }
  return next != ScanQuery::kNoPage ? next : first;
}

/// The page, and who reads it; null: nobody needs to.
Page* ScanPass::gather_members(uint64_t number, uint64_t now_ns) {
  Page* page = nullptr;
  bool complete = false;
  together_.clear();
  walk_.members.clear();
  for (const auto& query : queries_) {
    if (!query->eligible()) continue;
    Page* const its = query->page(number);
    if (its == nullptr) continue;
    if (query->skips(number, now_ns)) {
      Env::probe("node.scan.skipped_page");
      complete |= query->complete();
      continue;
    }
    page = its;
    together_.push_back({query.get(), query->place_in(number)});
    walk_.members.push_back(query.get());
    query->start_page(number, now_ns);
  }
  if (complete) {
    evaluation_.flush();
    news_ = true;
  }
  return page;
}

bool ScanPass::begin_walk(uint64_t now_ns) {
  const uint64_t number = choose_page();
  if (number == ScanQuery::kNoPage) return false;
  if (number < cursor_) Env::probe("node.scan.wrapped_around");
  cursor_ = number;
  Page* const page = gather_members(number, now_ns);
  if (page == nullptr) {
    cursor_ = number + 1;
    return true;  // it was skipped
  }
  if (together_.size() > 1) Env::probe("node.scan.shared_page");
  walk_.number = number;
  walk_.page = page;
  walk_.end = page->end();
  walk_.at = walk_.end;
  walk_.entries = 0;
  walk_.busy_ns = 0;
  walk_.sharers = walk_.members.size();
  if (std::ranges::any_of(together_, [](const auto& member) { return member.from == nullptr; })) ++statistics_.pages;
  for (SharedEvaluation::Member& member : together_) {
    if (member.from == nullptr) member.from = page->begin();
    walk_.at = std::min(walk_.at, member.from);
  }
  if (page->has_columns()) walk_.at -= (walk_.at - page->begin()) % static_cast<ptrdiff_t>(Block::kRows);
  for (SharedEvaluation::Member& member : together_) {
    if (member.from == walk_.at) member.from = nullptr;
  }
  evaluation_.assign(together_);
  return true;
}

bool ScanPass::step(uint64_t now_ns, size_t budget_bytes) {
  const uint64_t begun_ns = Env::now_ns();
  if (walk_.members.empty()) {
    if (!begin_walk(now_ns)) return false;
    if (walk_.members.empty()) return true;
  }
  const auto* const budget_end = reinterpret_cast<const std::byte*>(walk_.at) + budget_bytes;
  while (walk_.at != walk_.end && reinterpret_cast<const std::byte*>(walk_.at) < budget_end && !walk_.members.empty()) {
    walk_.at = walk_.page->has_columns() ? block_.gather_columns(*walk_.page, walk_.at, walk_.end)
                                         : block_.gather(walk_.at, walk_.end, evaluation_.ended_by());
    statistics_.entries += block_.looked_at();
    walk_.entries += block_.looked_at();
    left_.clear();
    evaluation_.evaluate(block_, walk_.number, walk_.at, left_);
    for (ScanQuery* query : left_) leave(query);
  }
  walk_.busy_ns += Env::now_ns() - begun_ns;
  if (walk_.at == walk_.end) end_walk();
  return true;
}

/// The query takes no more rows of this walk.
void ScanPass::leave(ScanQuery* query) {
  query->passed(walk_.entries, walk_.busy_ns / walk_.sharers);
  std::erase(walk_.members, query);
  news_ = true;
}

void ScanPass::end_walk() {
  bool complete = false;
  for (ScanQuery* query : walk_.members) {
    query->passed(walk_.entries, walk_.busy_ns / walk_.sharers);
    query->finish_page(walk_.number);
    complete |= query->complete();
  }
  walk_.members.clear();
  cursor_ = walk_.number + 1;  // who joins now begins with the next page, with the others
  if (!complete) return;
  evaluation_.flush();
  news_ = true;
}

void ScanPass::forget(const ScanQuery* query) {
  std::erase(walk_.members, query);
  evaluation_.forget(query);
}

Status ScanScheduler::join(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns) {
  if (by_id_.size() >= options_.max_queries) {
    return {StatusCode::kOverloaded, "scan: " + std::to_string(by_id_.size()) +
                                         " queries are running, the node's limit; try again when one has ended"};
  }
  if (by_id_.contains(id)) {
    return {StatusCode::kInvalidArgument, "scan: the id " + std::to_string(id) + " is in use"};
  }
  const TableId table = spec.table;
  auto query = std::make_unique<ScanQuery>(id, std::move(spec), sink, now_ns, options_.memory);
  LOAM_RETURN_IF_ERROR(query->admit());
  by_id_.emplace(id, query.get());
  passes_.try_emplace(table, query->spec().schema).first->second.join(std::move(query));
  news_ = true;
  return ok_status();
}

void ScanScheduler::credit(ScanId id, uint32_t credits) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  found->second->add_credits(credits);
  news_ = true;
}

void ScanScheduler::cancel(ScanId id, Status status, uint64_t now_ns) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  found->second->end(std::move(status));
  sweep(now_ns);
}

void ScanScheduler::end_where(const std::function<Status(ScanQuery&)>& why) {
  for (const auto& [id, query] : by_id_) {
    if (query->ended()) continue;
    if (Status status = why(*query); !status.ok()) query->end(std::move(status));
  }
}

void ScanScheduler::cancel_all(const Status& status, uint64_t now_ns) {
  end_where([&](const ScanQuery&) { return status; });
  sweep(now_ns);
}

void ScanScheduler::drop_table(TableId table, uint64_t now_ns) {
  end_where([table](const ScanQuery& query) {
    if (query.spec().table != table) return ok_status();
    return Status(StatusCode::kNoSuchTable, "scan: the table was dropped");
  });
  sweep(now_ns);
}

size_t ScanScheduler::cancel_blocked(uint64_t at_least_ns, uint64_t now_ns) {
  const size_t before = by_id_.size();
  end_where([&](const ScanQuery& query) {
    if (!query.waits() || now_ns - query.waits_since_ns() < at_least_ns) return ok_status();
    return stalled(query.waits_since_ns(), now_ns, "and the storage node is short of the memory that this scan keeps");
  });
  sweep(now_ns);
  return before - by_id_.size();
}

/// Ends those whose time is up or whose snapshot is too old, sends what others have to send.
void ScanScheduler::look_at_queries(uint64_t now_ns, const Publication& publication) {
  look_at_ns_ = std::numeric_limits<uint64_t>::max();
  end_where([&](ScanQuery& query) {
    const ScanSpec& spec = query.spec();
    if (now_ns >= spec.deadline_ns) return Status(StatusCode::kTimeout, "scan: its deadline passed");
    if (spec.kind == TableKind::kTransactional && !publication.covers(spec.snapshot)) {
      return Status(StatusCode::kSnapshotTooOld, "scan: versions that the snapshot sees may be gone; begin anew");
    }
    query.advance(now_ns);
    if (query.waits() && now_ns - query.waits_since_ns() >= options_.stall_limit_ns) {
      return stalled(query.waits_since_ns(), now_ns, "the storage node's limit (--scan-stall-limit)");
    }
    look_at_ns_ = std::min({look_at_ns_, spec.deadline_ns, query.tell_progress(now_ns)});
    if (query.waits()) look_at_ns_ = std::min(look_at_ns_, query.waits_since_ns() + options_.stall_limit_ns);
    if (query.short_of_memory()) look_at_ns_ = now_ns;  // the network does not tell when it has taken a chunk
    return ok_status();
  });
  checked_epoch_ = publication.cm_epoch;
  checked_number_ = publication.number;
  news_ = false;
  sweep(now_ns);
}

bool ScanScheduler::step(uint64_t now_ns, const Publication& publication, size_t budget_bytes) {
  const bool published = publication.cm_epoch != checked_epoch_ || publication.number != checked_number_;
  if (published || news_ || now_ns >= look_at_ns_) look_at_queries(now_ns, publication);

  // Tables take turns: the next one after the last that has anything to do.
  bool worked = false;
  auto pass = passes_.upper_bound(turn_);
  for (size_t i = 0; i < passes_.size() && !worked; ++i, ++pass) {
    if (pass == passes_.end()) pass = passes_.begin();
    worked = pass->second.step(now_ns, budget_bytes);
    if (!worked) continue;
    turn_ = pass->first;
    if (!pass->second.take_news()) continue;
    for (const auto& query : pass->second.queries()) query->advance(now_ns);
    news_ = true;
  }
  if (news_) sweep(now_ns);
  return worked;
}

void ScanScheduler::sweep(uint64_t now_ns) {
  for (auto pass = passes_.begin(); pass != passes_.end();) {
    auto& queries = pass->second.queries();
    for (auto query = queries.begin(); query != queries.end();) {
      if (!(*query)->ended()) {
        ++query;
        continue;
      }
      pass->second.forget(query->get());
      const std::unique_ptr<ScanQuery> ended = std::move(*query);
      query = queries.erase(query);
      by_id_.erase(ended->id());
      ++finished_.queries;
      ended->report(now_ns);
    }
    if (!pass->second.empty()) {
      ++pass;
      continue;
    }
    finished_.pages += pass->second.statistics().pages;
    finished_.entries += pass->second.statistics().entries;
    pass = passes_.erase(pass);
  }
}

ScanPassStatistics ScanScheduler::statistics() const {
  ScanPassStatistics sum = finished_;
  for (const auto& [table, pass] : passes_) {
    sum.pages += pass.statistics().pages;
    sum.entries += pass.statistics().entries;
  }
  return sum;
}

}  // namespace loam::storage
