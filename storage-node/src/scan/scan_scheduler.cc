#include "storage-node/src/scan/scan_scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {

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

bool ScanPass::step(size_t budget_bytes) {
  const uint64_t number = choose_page();
  if (number == ScanQuery::kNoPage) return false;
  if (number < cursor_) Env::probe("node.scan.wrapped_around");
  cursor_ = number;
  walk(number, budget_bytes);
  return true;
}

void ScanPass::walk(uint64_t number, size_t budget_bytes) {
  Page* page = nullptr;
  together_.clear();
  for (const auto& query : queries_) {
    if (!query->eligible()) continue;
    if (Page* const its = query->page(number)) {
      page = its;
      together_.push_back(query.get());
    }
  }
  if (together_.size() > 1) Env::probe("node.scan.shared_page");
  const Entry* const begin = page->begin();
  const Entry* const end = page->end();  // the fill mark, read once: nothing above it is touched (R22)
  const Entry* at = end;
  for (const ScanQuery* query : together_) at = std::min(at, query->place_in(number, begin));
  if (at == begin) ++statistics_.pages;
  const auto* const budget_end = reinterpret_cast<const std::byte*>(at) + budget_bytes;
  while (at != end && reinterpret_cast<const std::byte*>(at) < budget_end && !together_.empty()) {
    at = block_.gather(at, end, together_.front()->spec().mark_field);
    statistics_.entries += block_.looked_at();
    for (ScanQuery* query : together_) query->evaluate(number, block_, at);
    std::erase_if(together_, [](const ScanQuery* query) { return !query->eligible(); });
  }
  if (at != end) return;
  for (ScanQuery* query : together_) query->finish_page(number);
  cursor_ = number + 1;  // who joins now begins with the next page, with the others
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
  auto query = std::make_unique<ScanQuery>(id, std::move(spec), sink, now_ns);
  by_id_.emplace(id, query.get());
  passes_[table].join(std::move(query));
  unchecked_ = true;
  return ok_status();
}

void ScanScheduler::credit(ScanId id, uint32_t credits) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) found->second->add_credits(credits);
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
    return Status(StatusCode::kTimeout, "scan: its client took no chunk for too long, and the node needs the memory");
  });
  sweep(now_ns);
  return before - by_id_.size();
}

bool ScanScheduler::step(uint64_t now_ns, const Publication& publication, size_t budget_bytes) {
  const bool news = publication.cm_epoch != checked_epoch_ || publication.number != checked_number_;
  end_where([&](ScanQuery& query) {
    const ScanSpec& spec = query.spec();
    if (now_ns >= spec.deadline_ns) return Status(StatusCode::kTimeout, "scan: its deadline passed");
    if ((news || unchecked_) && spec.kind == TableKind::kTransactional && !publication.covers(spec.snapshot)) {
      return Status(StatusCode::kSnapshotTooOld, "scan: versions that the snapshot sees may be gone; begin anew");
    }
    query.advance(now_ns);
    if (query.waits() && now_ns - query.waits_since_ns() >= options_.stall_limit_ns) {
      return Status(StatusCode::kTimeout, "scan: its client took no chunk for too long");
    }
    return ok_status();
  });
  checked_epoch_ = publication.cm_epoch;
  checked_number_ = publication.number;
  unchecked_ = false;
  sweep(now_ns);

  // Tables take turns: the next one after the last that has anything to do.
  bool worked = false;
  auto pass = passes_.upper_bound(turn_);
  for (size_t i = 0; i < passes_.size() && !worked; ++i, ++pass) {
    if (pass == passes_.end()) pass = passes_.begin();
    worked = pass->second.step(budget_bytes);
    if (!worked) continue;
    turn_ = pass->first;
    for (const auto& query : pass->second.queries()) query->advance(now_ns);
  }
  if (worked) sweep(now_ns);
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
