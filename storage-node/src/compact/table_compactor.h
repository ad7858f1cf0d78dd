// Compaction of one table: the state machine that rewrites pages. What it does to chains stands in version/chain.h.
//
//   idle ─pick─▶ begun ─epoch─▶ walk ─▶ (fill) ─▶ move ─▶ settle ─epoch─▶ verify ─▶ publish ─▶ idle
//                                │ futile, or no room                                   └─▶ retired pages: epoch, pins,
//                                └──▶ idle                                                           FIFO ─▶ pool
//
//   begun    until every guard has ended in which an entry of a source was appended: then each is linked, or dead. A
//            page may be sealed in the middle of a batch that has appended entries to it and not linked them yet; a
//            writer never looks whether its own entry was moved before it is linked
//   walk     looks at every entry of the chosen pages and counts what must be kept under the job's publication. Pages
//            that an open snapshot keeps full are let go, and left alone for a while. Then takes target pages for all
//            the rest, or gives up: after the first move a job always ends, and never needs more memory
//   fill     writes the rows of column pages: of versions that every open and later snapshot sees (decision 0013).
//            Rows never change, so it does not matter what becomes of their entries meanwhile
//   move     each entry: what every snapshot is past is left as it is, and goes with the page (horizon, chain.h); other
//            garbage is killed and unlinked; what is live is copied, frozen as moved, and what led to it mended
//   settle   until every guard has ended that may have read an entry of a source as live
//   verify   walks the chain of the key of every frozen entry of the sources once more: from then on nothing that
//            anybody follows leads into them (R18)
//   publish  the page list changes at one instant from the sources to the targets (R23)
//
// A job has two kinds of targets, row pages and column pages. An entry whose row has been written to a column page has
// its place there in the order of the moves; if it has become garbage before its turn, the place stays a dead entry.
//
// Retired pages wait in one queue for the table, freed strictly in order: a page's forward pointers lead into pages
// that were retired later, so they stay readable as long as anybody has the page pinned (R18).
//
// A job keeps its publication to the end. An older one only keeps more: what is garbage once stays garbage. The horizon
// rises meanwhile: chains that are written all the time are walked down to it for each entry that is moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/snapshot/publication.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/log/thread_context.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// Role: compaction of one table. Owner: the Compactor. Threads: its stepping thread alone. Ends when nothing reads the
/// table's pages any more.
class TableCompactor {
 public:
  enum class Phase : uint8_t { kIdle, kBegun, kQuiet, kWalk, kFill, kMove, kSettle, kVerify };

  TableCompactor(std::shared_ptr<Table> table, const CompactorOptions& options, CompactorStatistics& statistics);
  /// Gives targets and retired pages back: no guard, pin or thread reads them any more.
  ~TableCompactor();
  TableCompactor(const TableCompactor&) = delete;
  TableCompactor& operator=(const TableCompactor&) = delete;

  Table& table() { return *table_; }
  Phase phase() const { return phase_; }

  /// Looks whether a job is worth it, and chooses its pages. Returns their garbage in bytes, 1 if they are chosen for
  /// being cold, 0: none. `hurry`, from 0
  /// to 1: memory is short, and the shorter, the less garbage makes a page worth it, whatever the table's share. Costs
  /// a look at each page header. Idle only; caller holds a guard. `turn` counts the publications that became usable.
  size_t choose(uint64_t turn, double hurry);
  /// Begins the job on the chosen pages, and raises the horizon.
  void begin(std::shared_ptr<const Publication> publication, uint64_t epoch);
  /// A publication has become usable: the table's horizon rises to it, unless the last rise is not known to every guard
  /// yet. Caller holds a guard, in `epoch`: every guard that begins after that knows it (memory/epoch.h, step 1).
  void raise_horizon(const Publication& publication, uint64_t epoch);

  /// Works on the job under way: up to `budget` entries. False: nothing to do but to wait. Enters guards of its own.
  bool step(ThreadContext& thread, size_t budget);
  /// Frees retired pages whose time has come, a few at a time. True if it freed some.
  bool free_retired(const EpochDomain& epochs);
  /// A job is under way, retired pages are not freed yet, or the table is to go.
  bool waits() const { return phase_ != Phase::kIdle || !retired_.empty() || dropped_; }

  /// The table was dropped: no operation begins any more.
  void drop(uint64_t epoch) { dropped_ = true, dropped_epoch_ = epoch; }
  bool dropped() const { return dropped_; }
  /// Dropped, and nobody reads anything of it any more.
  bool deserted(const EpochDomain& epochs);

 private:
  /// An entry that may have to be kept. Tombstones are among them: an insert may claim one before its turn.
  struct Kept {
    uint32_t row_entry_bytes = 0;  ///< in a row page
    uint32_t text_bytes = 0;
    Entry* for_columns = nullptr;  ///< the entry, if its row may go to a column page
  };
  struct Source {
    Page* page = nullptr;
    bool small = false;  ///< comes along whatever its garbage
    bool cold = false;   ///< chosen to become columns
    double share = 0;    ///< of garbage, when it was looked at: writers make garbage while the pages are ranked
    double worth = 0;    ///< then, too
    std::vector<Kept> kept = {};
    size_t kept_bytes = 0;
    size_t for_columns = 0;    ///< of those kept
    size_t garbage_bytes = 0;  ///< what the walk takes for garbage
  };
  struct Retired {
    Page* page = nullptr;
    uint64_t epoch = 0;
  };
  struct Backoff {
    uint64_t until = 0;  ///< turn
    uint64_t length = 0;
  };

  struct Calm {
    size_t garbage_bytes = 0;
    uint64_t since = 0;  ///< turn
    uint64_t wait = 0;   ///< for so many turns from then on
  };

  bool far_gets(const TableCounters& counters, size_t pages);
  bool worth_a_look(const TableCounters& counters, size_t pages, bool far, double hurry);
  size_t choose_garbage(bool far, double hurry);
  bool choose_cold();
  bool columns_wanted();
  double least_share(bool over, double hurry) const;
  double demand(double hurry) const;
  void add_small_pages(size_t budget_bytes);
  bool resting(const Page* page) const;
  void rest(const Page* page);
  void enter(Phase phase);
  template <class F>
  bool for_each_entry(size_t budget, F&& f);
  const Entry* fetch_chains(Entry* entry, const Entry* end, size_t most);
  void count(ThreadContext& thread, Entry& entry);
  bool for_columns(const Entry& entry, const Link& link, size_t row_entry_bytes) const;
  bool stay_rows(const Page* page);
  bool enough_for_columns() const;
  void plan();
  bool take_targets();
  Page* take_target(size_t size_bytes);
  bool fill(ThreadContext& thread, size_t budget);
  void move_entry(ThreadContext& thread, Entry& entry);
  bool copy_and_freeze(ThreadContext& thread, Entry& entry, bool to_columns);
  Entry* copy(ThreadContext& thread, const Entry& entry, Link link, bool to_columns);
  Entry* append_to_columns(const Entry& entry, Link link);
  void publish(ThreadContext& thread);
  void end_job();
  bool droppable(const Link& link) const;
  void collect(Chain& chain, Entry& entry);
  bool garbage(const Entry& entry, const Link& link) const;
  bool garbage_tombstone(const Entry& entry, const Link& link) const;

  const std::shared_ptr<Table> table_;
  const CompactorOptions& options_;
  CompactorStatistics& statistics_;
  const bool transactional_;

  Phase phase_ = Phase::kIdle;
  uint64_t turn_ = 0;
  std::vector<Source> sources_;
  std::vector<Page*> targets_;
  size_t target_ = 0;  // the one that copies go to
  // Of targets_, those from row_targets_ on are column pages.
  bool to_columns_ = false;  // if there are rows enough for a page
  std::optional<ColumnWidths> widths_;
  std::vector<Entry*> column_entries_;  // whose rows go there, in the order of the moves
  size_t next_column_entry_ = 0;
  size_t row_targets_ = 0;
  size_t column_target_ = 0;  // the one that is filled, or that copies go to
  std::shared_ptr<const Publication> publication_;
  Version horizon_;     // of the table, as every guard knows it
  bool rises_ = false;  // to the table's, when this epoch has passed
  uint64_t rise_epoch_ = 0;
  // Versions up to this may have been collected while they were above the horizon: what they had superseded may be led
  // to by others.
  Version skipped_;
  uint64_t quiet_epoch_ = 0;   // when the job began
  uint64_t settle_epoch_ = 0;  // of the last move
  // Where the present phase stands.
  size_t source_ = 0;
  Entry* at_ = nullptr;

  std::deque<Retired> retired_;
  std::unordered_map<const Page*, Backoff> backoff_;
  std::unordered_map<const Page*, Calm> calm_;  // sealed row pages of a table that is scanned
  uint64_t next_cold_turn_ = 0;
  uint64_t scans_seen_ = 0;
  uint64_t scanned_until_ = 0;  // turn
  bool look_again_ = true;      // the last job left more to do, perhaps
  uint64_t wake_ = UINT64_MAX;  // the turn when the first resting page may be looked at
  bool wants_room_ = false;     // a job had to be given up for want of targets; memory that comes free may help
  uint64_t freed_seen_ = 0;     // pages that the compactor had freed then
  uint64_t no_space_seen_ = 0;
  double demand_seen_ = 1;  // at the last look
  uint64_t changes_seen_ = 0;
  uint64_t gets_seen_ = 0;  // when their mean number of hops was taken the last time
  uint64_t hops_seen_ = 0;
  bool dropped_ = false;
  uint64_t dropped_epoch_ = 0;
};

}  // namespace loam::storage
