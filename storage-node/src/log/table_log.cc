// Appending entries, and opening, sealing and releasing pages.
#include "storage-node/src/log/table_log.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::storage {
namespace {

/// A head page is at most this many times as large as the live bytes of its table. With a smaller factor, a small table
/// that is written often opens a page again and again.
constexpr size_t kHeadOverLive = 4;
/// Distance from an appended entry to the free bytes that the append prefetches for later entries. The lines arrive
/// while a group of sixteen entries of common size is written, and fit into the first-level cache beside that group.
constexpr size_t kRoomAhead = 2048;

}  // namespace

TableLog::TableLog(TableId table, const LogOptions& options, PagePool& pool, size_t writers)
    : table_(table),
      options_(options),
      pool_(pool),
      writers_count_(writers),
      writers_(std::make_unique<Writer[]>(writers)) {
  for (size_t w = 0; w < writers; ++w) writers_[w].next_bytes.fill(options.first_page_bytes);
}

TableLog::~TableLog() {
  for (Page* const page : pages_.pages()) release(page);
}

Entry* TableLog::append(ThreadContext& thread, const EntryImage& image, Reserve reserve) {
  LOAM_CHECK(thread.writer() < writers_count_, "the thread's writer number is beyond the table's writers");
  LOAM_CHECK(image.row_bytes() <= max_row_bytes(), "the caller checks the size of rows");
  if (options_.shared_heads) [[unlikely]] {
    const std::scoped_lock lock(head_lock_);
    return append_to_heads(thread, writers_[0], image, reserve);
  }
  return append_to_heads(thread, writers_[thread.writer()], image, reserve);
}

Entry* TableLog::append_to_heads(ThreadContext& thread, Writer& writer, const EntryImage& image, Reserve reserve) {
  // The lowest class first: a reserve is used only for an entry that fits nowhere else.
  for (size_t c = 0; c <= static_cast<size_t>(reserve); ++c) {
    Page* head = writer.heads[c];
    if (head != nullptr) {
      if (Entry* const entry = append_to(*head, image)) return entry;
    }
    head = open_head(thread, writer, static_cast<Reserve>(c), entry_size(image.row_bytes()));
    if (head != nullptr) {
      if (c > 0) Env::probe("node.log.reserve_used");
      return append_to(*head, image);
    }
    seal_full_head(writer.heads[c]);  // no page for this class: try the next one
  }
  Env::probe("node.log.no_space");
  return nullptr;
}

Entry* TableLog::append_to(Page& page, const EntryImage& image) {
  const size_t row_bytes = image.row_bytes();
  const size_t size = entry_size(row_bytes);
  Entry* const entry = page.room(size);
  if (entry == nullptr) return nullptr;
  constexpr size_t kMaxPadding = 16;  // zeroed by one store; the header and the row then overwrite its first bytes
  std::memset(reinterpret_cast<std::byte*>(entry) + size - kMaxPadding, 0, kMaxPadding);
  entry->size_bytes = static_cast<uint32_t>(size);
  entry->kind = image.kind;
  entry->row_padding = static_cast<uint8_t>(size - sizeof(Entry) - row_bytes);
  entry->page_shift = static_cast<uint8_t>(std::countr_zero(page.size_bytes()));
  entry->added_fields = image.row.added_fields();
  entry->key = image.key.value;
  entry->valid_from = image.version.value;
  entry->sequence = image.sequence;
  entry->link.init(image.link.encode());
  image.row.write(image.before, entry->row_data());
  page.publish(entry);
  page.prefetch_room(kRoomAhead, size);
  return entry;
}

Page* TableLog::open_head(ThreadContext& thread, Writer& writer, Reserve reserve, size_t entry_bytes) {
  const auto c = static_cast<size_t>(reserve);
  const size_t least = std::max(Page::kMinPageBytes, std::bit_ceil(Page::kHeaderBytes + entry_bytes));
  const size_t most = reserve == Reserve::kWrite ? pool_.page_size() : options_.reserve_page_bytes;
  size_t size = std::max(least, fit_page_bytes(std::min(writer.next_bytes[c], std::min(most, pool_.page_size()))));
  std::byte* block = pool_.allocate(size, reserve, BlockContents::kUninitialized);
  if (block == nullptr && size > least) {
    size = least;  // the pool may still have a small block in a page that is already split
    block = pool_.allocate(size, reserve, BlockContents::kUninitialized);
  }
  if (block == nullptr) return nullptr;
  writer.next_bytes[c] = size * 2;
  // Relaxed: the number is unique, and no other data depends on it.
  Page* const page =
      Page::open(block, size, table_, next_page_number_.fetch_add(1, std::memory_order_relaxed), reserve);
  // Into the list before the first entry, so that no scan misses an entry (R22, fill mark before link).
  pages_.add(thread.epochs(), page);
  if (writer.heads[c] != nullptr) writer.heads[c]->seal();
  writer.heads[c] = page;
  return page;
}

void TableLog::seal_full_head(Page*& head) {
  if (head == nullptr || head->garbage_bytes() <= head->room_bytes()) return;
  Env::probe("node.log.full_head_sealed");
  head->seal();
  head = nullptr;
}

/// The size of the next head page: `wanted`, or less if the table has few live bytes. So a small table that is
/// rewritten all the time stays small. Stops to count as soon as the live bytes justify `wanted`.
size_t TableLog::fit_page_bytes(size_t wanted) const {
  size_t live = 0;
  for (const Page* const page : pages_.pages()) {
    const size_t used = page->used_bytes();
    live += used - std::min(used, page->garbage_bytes());
    if (kHeadOverLive * live >= wanted) return wanted;
  }
  return std::min(wanted, std::bit_ceil(std::max(kHeadOverLive * live, options_.first_page_bytes)));
}

Page* TableLog::open_target(size_t size_bytes) {
  std::byte* const block = pool_.allocate(size_bytes, Reserve::kCompactor, BlockContents::kUninitialized);
  if (block == nullptr) return nullptr;
  // Relaxed: as in open_head().
  return Page::open(block, size_bytes, table_, next_page_number_.fetch_add(1, std::memory_order_relaxed),
                    Reserve::kCompactor);
}

void TableLog::release(Page* page) { pool_.release(page->block(), page->size_bytes()); }

}  // namespace loam::storage
