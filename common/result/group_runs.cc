// A run is a sequence of chunks, each behind its size in eight bytes.
#include "common/result/group_runs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace loam {
namespace {

/// Groups that a merge collects before it hands them over.
constexpr size_t kBatchGroups = 4'096;

std::string folder() {
  const char* const named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

Status failed(const std::string& what) {
  return {StatusCode::kNoSpace, "groups that do not fit into memory: " + what + " a file in " + folder() + ": " +
                                    std::strerror(errno) + "; name a folder with more room in TMPDIR"};
}

}  // namespace

/// The next row of a run, with its key.
struct GroupRuns::Cursor {
  size_t run = 0;
  std::shared_ptr<const Chunk> chunk;
  size_t row = 0;
  Buffer key;
};

GroupRuns::GroupRuns(std::shared_ptr<const ResultSchema> partial) : partial_(std::move(partial)) {}
GroupRuns::~GroupRuns() {
  if (file_ >= 0) close(file_);
}

Status GroupRuns::open() {
  if (file_ >= 0) return ok_status();
  file_ = ::open(folder().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ >= 0) return ok_status();
  // Some file systems have no files without a name.
  std::string name = folder() + "/loam-groups-XXXXXX";
  file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) return failed("cannot create");
  unlink(name.c_str());
  return ok_status();
}

Status GroupRuns::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("cannot write");
    size_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ok_status();
}

Status GroupRuns::read(uint64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = pread(file_, into.data(), into.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failed("cannot read");
    at += static_cast<uint64_t>(got);
    into = into.subspan(static_cast<size_t>(got));
  }
  return ok_status();
}

Status GroupRuns::write_chunk(ChunkBuilder& builder) {
  if (builder.rows() == 0) return ok_status();
  Buffer bytes;
  LOAM_RETURN_IF_ERROR(builder.finish(bytes));
  const uint64_t size = bytes.size();
  LOAM_RETURN_IF_ERROR(write(std::as_bytes(std::span(&size, 1))));
  return write(bytes);
}

Status GroupRuns::add(GroupTable& table) {
  LOAM_RETURN_IF_ERROR(open());
  const uint64_t begin = size_;
  std::vector<uint32_t> order(table.groups());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    const std::string_view one = as_text(table.key(a)), other = as_text(table.key(b));
    return one < other;
  });
  ChunkBuilder builder(*partial_);
  for (const uint32_t group : order) {
    LOAM_RETURN_IF_ERROR(table.append_partial(group, builder));
    if (ends_client_chunk(builder)) LOAM_RETURN_IF_ERROR(write_chunk(builder));
  }
  LOAM_RETURN_IF_ERROR(write_chunk(builder));
  table.clear();
  runs_.push_back({begin, size_});
  return ok_status();
}

Status GroupRuns::advance(Cursor& cursor, GroupTable& table) {
  if (cursor.chunk == nullptr || ++cursor.row == cursor.chunk->rows()) {
    Run& run = runs_[cursor.run];
    cursor.chunk = nullptr;
    cursor.row = 0;
    if (run.next == run.end) return ok_status();
    uint64_t size = 0;
    LOAM_RETURN_IF_ERROR(read(run.next, std::as_writable_bytes(std::span(&size, 1))));
    Buffer bytes(size);
    LOAM_RETURN_IF_ERROR(read(run.next + sizeof size, bytes));
    run.next += sizeof size + size;
    LOAM_ASSIGN_OR_RETURN(cursor.chunk, Chunk::adopt(std::move(bytes), partial_));
  }
  const Bytes key = table.key_of(cursor.chunk->view(), cursor.row);
  cursor.key.assign(key.begin(), key.end());
  return ok_status();
}

Status GroupRuns::merge(GroupTable& table, const std::function<Result<bool>()>& batch) {
  std::vector<Cursor> cursors(runs_.size());
  const auto later = [&](size_t a, size_t b) { return as_text(cursors[a].key) > as_text(cursors[b].key); };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> next(later);
  for (size_t i = 0; i < cursors.size(); ++i) {
    cursors[i].run = i;
    LOAM_RETURN_IF_ERROR(advance(cursors[i], table));
    if (cursors[i].chunk != nullptr) next.push(i);
  }
  Buffer last;
  while (!next.empty()) {
    const size_t i = next.top();
    next.pop();
    Cursor& cursor = cursors[i];
    // A group is complete when another key follows.
    if ((table.groups() >= kBatchGroups || table.nearly_full()) && cursor.key != last) {
      LOAM_ASSIGN_OR_RETURN(const bool goes_on, batch());
      table.clear();
      if (!goes_on) return ok_status();
    }
    LOAM_RETURN_IF_ERROR(table.merge(cursor.chunk->view(), cursor.row));
    last = cursor.key;
    LOAM_RETURN_IF_ERROR(advance(cursor, table));
    if (cursor.chunk != nullptr) next.push(i);
  }
  LOAM_RETURN_IF_ERROR(batch().status());
  table.clear();
  return ok_status();
}

}  // namespace loam
