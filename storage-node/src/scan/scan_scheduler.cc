// Walks over pages (ScanPass), and the turns of the tables and the ends of queries (ScanScheduler).
// shared_evaluation.cc evaluates a block for the members of a walk.
#include "storage-node/src/scan/scan_scheduler.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {
namespace {

/// The status of a query whose client has not read for too long (R25, limit for stalled queries).
Status stalled(uint64_t since_ns, uint64_t now_ns, const char* why) {
  return {StatusCode::kTimeout, "scan: its client read no chunk for " +
                                    std::to_string((now_ns - since_ns) / 1'000'000) + " ms, " + why +
                                    "; read chunks as they come, or ask for less"};
}

}  // namespace

uint64_t ScanPass::choose_page() const {
  // The lowest pending page at or behind the cursor. Without one the cursor wraps around to the lowest pending page.
  uint64_t next = ScanQuery::kNoPage;
  uint64_t first = ScanQuery::kNoPage;
  for (const auto& query : queries_) {
    if (!query->eligible()) continue;
    next = std::min(next, query->next_page(cursor_));
    first = std::min(first, query->next_page(0));
  }
  return next != ScanQuery::kNoPage ? next : first;
}

Page* ScanPass::gather_members(uint64_t number, uint64_t now_ns) {
  Page* page = nullptr;
  bool complete = false;
  new_members_.clear();
  walk_.members.clear();
  for (const auto& query : queries_) {
    if (!query->eligible()) continue;
    Page* const its = query->page(number);
    if (its == nullptr) continue;
    if (query->skip_if_excluded(number, now_ns)) {
      Env::probe("node.scan.skipped_page");
      complete |= query->complete();
      continue;
    }
    page = its;
    new_members_.push_back({query.get(), query->resume_entry(number)});
    walk_.members.push_back(query.get());
    query->start_page(number, now_ns);
  }
  // A query that ends because it skipped its last page still needs the results that an index holds for it.
  if (complete) {
    evaluation_.flush();
    changed_ = true;
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
    return true;  // all its readers have skipped the page
  }
  if (new_members_.size() > 1) Env::probe("node.scan.shared_page");
  // The fill mark is read once, after the members have joined. Later entries lie above it, and no member sees them
  // (R22, fill mark before link).
  walk_.number = number;
  walk_.page = page;
  walk_.end = page->end();
  walk_.at = walk_.end;
  walk_.entries = 0;
  walk_.busy_ns = 0;
  walk_.member_count = walk_.members.size();
  if (std::ranges::any_of(new_members_, [](const auto& member) { return member.from == nullptr; })) ++statistics_.pages;
  // The walk begins at the lowest place of its members. A member that continues behind this place ignores the rows
  // before its own one (SharedEvaluation::Member). In a column page a block begins at a multiple of kRows.
  for (SharedEvaluation::Member& member : new_members_) {
    if (member.from == nullptr) member.from = page->begin();
    walk_.at = std::min(walk_.at, member.from);
  }
  if (page->has_columns()) walk_.at -= (walk_.at - page->begin()) % static_cast<ptrdiff_t>(Block::kRows);
  for (SharedEvaluation::Member& member : new_members_) {
    if (member.from == walk_.at) member.from = nullptr;
  }
  evaluation_.assign(new_members_);
  return true;
}

bool ScanPass::step(uint64_t now_ns, size_t budget_bytes) {
  const uint64_t begun_ns = Env::now_ns();
  // Phase 1: begin a walk if none is under way. If all readers could skip the page, the next step chooses another
  // one.
  if (walk_.members.empty()) {
    if (!begin_walk(now_ns)) return false;
    if (walk_.members.empty()) return true;
  }
  // Phase 2: evaluate blocks up to the budget. A member that cannot continue leaves the walk and delays no other one.
  const auto* const budget_end = reinterpret_cast<const std::byte*>(walk_.at) + budget_bytes;
  while (walk_.at != walk_.end && reinterpret_cast<const std::byte*>(walk_.at) < budget_end && !walk_.members.empty()) {
    walk_.at = walk_.page->has_columns()
                   ? block_.gather_columns(*walk_.page, walk_.at, walk_.end)
                   : block_.gather(walk_.at, walk_.end, evaluation_.oldest_base(), schema_->added());
    if (block_.mixed()) [[unlikely]]
      convert_rows();
    statistics_.entries += block_.entries_read();
    walk_.entries += block_.entries_read();
    leaving_.clear();
    evaluation_.evaluate(block_, walk_.number, walk_.at, leaving_);
    for (ScanQuery* query : leaving_) leave(query);
  }
  walk_.busy_ns += Env::now_ns() - begun_ns;
  if (walk_.at == walk_.end) end_walk();
  return true;
}

void ScanPass::convert_rows() {
  LOAM_CHECK(schemas_ != nullptr, "a table whose rows have added fields has schemas");
  Env::probe("node.scan.converted_rows");
  size_t used = 0;
  block_.convert_rows([&](const Entry& entry) -> const std::byte* {
    if (entry.added_fields == schema_->added()) return nullptr;
    if (used == converted_.size()) converted_.emplace_back();
    Buffer& row = converted_[used++];
    const Schema& from = schemas_->of(entry.added_fields);
    row.resize(converted_size(from, *schema_, entry.row()));
    convert_row(from, *schema_, entry.row(), row.data());
    return row.data();
  });
}

void ScanPass::leave(ScanQuery* query) {
  // Unless the query has ended, the page remains pending with the entry at which it continues. A later round reads the
  // rest.
  query->add_cost(walk_.entries, walk_.busy_ns / walk_.member_count);
  std::erase(walk_.members, query);
  changed_ = true;
}

void ScanPass::end_walk() {
  bool complete = false;
  for (ScanQuery* query : walk_.members) {
    query->add_cost(walk_.entries, walk_.busy_ns / walk_.member_count);
    query->finish_page(walk_.number);
    complete |= query->complete();
  }
  walk_.members.clear();
  cursor_ = walk_.number + 1;  // a query that joins now begins with the next page, like the others
  if (!complete) return;
  evaluation_.flush();
  changed_ = true;
}

void ScanPass::remove_query(const ScanQuery* query) {
  std::erase(walk_.members, query);
  evaluation_.remove_query(query);
}

Status ScanScheduler::join(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns) {
  if (by_id_.size() >= options_.max_queries) {
    return {StatusCode::kOverloaded, "scan: " + std::to_string(by_id_.size()) +
                                         " queries are running, the storage node's limit; try again when one has "
                                         "ended"};
  }
  if (by_id_.contains(id)) {
    return {StatusCode::kInvalidArgument, "scan: the id " + std::to_string(id) + " is in use"};
  }
  // The pass of a table exists from its first query to its last one (remove_ended()).
  const PassKey key(spec.table, spec.schema->size());
  const auto pass = passes_.try_emplace(key, spec.schema, spec.schemas).first;
  Result<BlockValues::BoundQuery> bound = pass->second.bind(spec.query);
  Status status = bound.status();
  std::unique_ptr<ScanQuery> query;
  if (status.ok()) {
    query = std::make_unique<ScanQuery>(id, std::move(spec), std::move(*bound), sink, now_ns, options_.memory);
    status = query->admit();
  }
  if (!status.ok()) {
    if (query != nullptr) pass->second.remove_query(query.get());
    if (pass->second.empty()) passes_.erase(pass);
    return status;
  }
  by_id_.emplace(id, query.get());
  pass->second.join(std::move(query));
  changed_ = true;
  return ok_status();
}

void ScanScheduler::credit(ScanId id, uint32_t credits) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  found->second->add_credits(credits);
  changed_ = true;
}

void ScanScheduler::cancel(ScanId id, Status status, uint64_t now_ns) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  found->second->end(std::move(status));
  remove_ended(now_ns);
}

void ScanScheduler::end_where(const std::function<Status(ScanQuery&)>& why) {
  for (const auto& [id, query] : by_id_) {
    if (query->ended()) continue;
    if (Status status = why(*query); !status.ok()) query->end(std::move(status));
  }
}

void ScanScheduler::cancel_all(const Status& status, uint64_t now_ns) {
  end_where([&](const ScanQuery&) { return status; });
  remove_ended(now_ns);
}

void ScanScheduler::drop_table(TableId table, uint64_t now_ns) {
  end_where([table](const ScanQuery& query) {
    if (query.spec().table != table) return ok_status();
    return Status(StatusCode::kNoSuchTable, "scan: the table was dropped");
  });
  remove_ended(now_ns);
}

size_t ScanScheduler::cancel_blocked(uint64_t at_least_ns, uint64_t now_ns) {
  // A blocked query keeps pages pinned, and the compactor frees none of them (R25, limit for stalled queries).
  const size_t before = by_id_.size();
  end_where([&](const ScanQuery& query) {
    if (!query.blocked() || now_ns - query.blocked_since_ns() < at_least_ns) return ok_status();
    return stalled(query.blocked_since_ns(), now_ns,
                   "and the storage node is short of memory, of which this scan keeps some");
  });
  remove_ended(now_ns);
  return before - by_id_.size();
}

// Ends the queries that have reached a limit, and sends the chunks of the others.
void ScanScheduler::check_queries(uint64_t now_ns, const Publication& publication) {
  next_check_ns_ = std::numeric_limits<uint64_t>::max();
  end_where([&](ScanQuery& query) {
    const ScanSpec& spec = query.spec();
    if (now_ns >= spec.deadline_ns) return Status(StatusCode::kTimeout, "scan: its deadline has passed");
    // From this publication on the compactor may collect versions that the snapshot sees (R14, refusal of old
    // snapshots).
    if (spec.kind == TableKind::kTransactional && !publication.covers(spec.snapshot)) {
      return Status(StatusCode::kSnapshotTooOld,
                    "scan: versions that the snapshot sees may have been collected; begin a new transaction");
    }
    query.advance(now_ns);
    if (query.blocked() && now_ns - query.blocked_since_ns() >= options_.stall_limit_ns) {
      return stalled(query.blocked_since_ns(), now_ns, "the storage node's limit (--scan-stall-limit)");
    }
    next_check_ns_ = std::min({next_check_ns_, spec.deadline_ns, query.report_progress(now_ns)});
    if (query.blocked()) next_check_ns_ = std::min(next_check_ns_, query.blocked_since_ns() + options_.stall_limit_ns);
    if (query.short_of_memory()) next_check_ns_ = now_ns;  // poll: the network sends no notice when a chunk has left
    return ok_status();
  });
  checked_epoch_ = publication.cm_epoch;
  checked_number_ = publication.number;
  changed_ = false;
  remove_ended(now_ns);
}

bool ScanScheduler::step(uint64_t now_ns, const Publication& publication, size_t budget_bytes) {
  // Check the limits of all queries only if one may have been reached: by a new publication, a change, or time.
  const bool published = publication.cm_epoch != checked_epoch_ || publication.number != checked_number_;
  if (published || changed_ || now_ns >= next_check_ns_) check_queries(now_ns, publication);

  // Serve the tables in turn: the next table, behind the one that was served last, that has work.
  bool worked = false;
  auto pass = passes_.upper_bound(last_pass_);
  for (size_t i = 0; i < passes_.size() && !worked; ++i, ++pass) {
    if (pass == passes_.end()) pass = passes_.begin();
    worked = pass->second.step(now_ns, budget_bytes);
    if (!worked) continue;
    last_pass_ = pass->first;
    if (!pass->second.take_changed()) continue;
    // A query has left its walk or has read its last page: send the chunk that it may have.
    for (const auto& query : pass->second.queries()) query->advance(now_ns);
    changed_ = true;
  }
  if (changed_) remove_ended(now_ns);
  return worked;
}

void ScanScheduler::remove_ended(uint64_t now_ns) {
  for (auto pass = passes_.begin(); pass != passes_.end();) {
    auto& queries = pass->second.queries();
    for (auto query = queries.begin(); query != queries.end();) {
      if (!(*query)->ended()) {
        ++query;
        continue;
      }
      pass->second.remove_query(query->get());
      const std::unique_ptr<ScanQuery> ended = std::move(*query);
      query = queries.erase(query);
      by_id_.erase(ended->id());
      ++finished_.queries;
      // Last, when neither a walk nor an index refers to the query.
      ended->report_end(now_ns);
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

std::vector<QueryState> ScanScheduler::states() const {
  std::vector<QueryState> states;
  states.reserve(by_id_.size());
  for (const auto& [id, query] : by_id_) {
    states.push_back({.id = id,
                      .statistics = query->statistics(),
                      .pages_left = query->pages_left(),
                      .started = query->started(),
                      .blocked = query->blocked(),
                      .short_of_memory = query->short_of_memory(),
                      .blocked_since_ns = query->blocked_since_ns()});
  }
  return states;
}

ScanPassStatistics ScanScheduler::statistics() const {
  ScanPassStatistics sum = finished_;
  for (const auto& [key, pass] : passes_) {
    sum.pages += pass.statistics().pages;
    sum.entries += pass.statistics().entries;
  }
  return sum;
}

}  // namespace loam::storage
