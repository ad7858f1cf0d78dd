// The steps on a chain. chain.h has the protocol and its argument.
#include "storage-node/src/version/chain.h"

#include <algorithm>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::storage {
namespace {

/// The first live version at or behind `entry`. Passes through moved, dead and replaced entries; their pointers are
/// constant.
Entry* first_live(Entry* entry) {
  while (entry != nullptr) {
    const Link link = entry->load_link();
    if (link.live()) break;
    entry = link.address;
  }
  return entry;
}

/// True if no open snapshot sees the version and every later one sees its successor (R20, garbage and tombstones).
bool garbage(const Publication& publication, const Entry& entry, const Link& link) {
  return !link.open() && link.valid_to != kPending && publication.garbage(entry.version(), Version(link.valid_to));
}

}  // namespace

void Chain::repair_slot(Link head) {
  Entry* const next = first_live(head.address);
  ++helped_;
  // If another thread was faster, the call fails and the cursor holds the present head, which newest() examines next.
  if (next != nullptr) {
    index_.replace(cursor_, next);
  } else {
    index_.erase(thread_.epochs(), cursor_);
  }
}

Chain::NewestVersion Chain::newest() {
  while (cursor_.found()) {
    Entry* const entry = cursor_.head;
    const Link link = entry->load_link();
    if (!link.live()) {
      repair_slot(link);
    } else if (link.valid_to == kPending) {
      publish_pending(entry);
    } else {
      return {entry, link};
    }
  }
  return {};
}

Chain::NewestVersion Chain::collect(Version horizon, const Publication* publication, CollectResult* collected) {
  for (;; refresh()) {
    const NewestVersion head = newest();
    if (head.entry == nullptr) return head;
    if (!repair_behind(head, horizon, publication, collected)) continue;  // `head` or a version behind it was frozen
    if (publication == nullptr || !kill_lone_tombstone(head.entry, horizon, *publication)) return head;
    if (collected != nullptr) ++collected->tombstones;
    // The next round unlinks the tombstone from the slot.
  }
}

bool Chain::repair_behind(const NewestVersion& head, Version horizon, const Publication* publication,
                          CollectResult* collected) {
  // `entry` is live, and `link` was its pair. A pointer of a version at or below the horizon is not followed.
  Entry* entry = head.entry;
  Link link = head.link;
  while (link.address != nullptr && entry->version() > horizon) {
    Entry* const older = link.address;
    const Link seen = older->load_link();
    if (seen.live() && publication != nullptr && garbage(*publication, *older, seen)) {
      if (kill_collected(older, seen, horizon) && collected != nullptr) collected->add(*older, horizon);
      continue;  // frozen now, or changed by another thread: read it again
    }
    if (seen.live()) {
      entry = older;
      link = seen;
      continue;
    }
    // `older` is frozen: re-point `entry` over it. On failure `link` is the present pair, and the loop decides anew.
    const Link desired{link.valid_to, first_live(older), EntryState::kLive};
    if (entry->compare_exchange_link(link, desired)) {
      link = desired;
      ++helped_;
    } else if (!link.live()) {
      return false;
    }
  }
  return true;
}

bool Chain::kill_lone_tombstone(Entry* entry, Version horizon, const Publication& publication) {
  Link link = entry->load_link();
  if (!entry->tombstone() || !link.live() || !link.open()) return false;
  if (link.address != nullptr && entry->version() > horizon) return false;  // an older version can still be reached
  if (!publication.tombstone_garbage(entry->version())) return false;
  // With null behind it: a thread that meets the dead tombstone finds the record absent.
  return entry->compare_exchange_link(link, {link.valid_to, nullptr, EntryState::kDead});
}

void Chain::link(Entry* claimed, Entry* entry) {
  for (;;) {
    // The compactor may have moved the claimed version, so the new entry must lead to its copy.
    set_older_unlinked(entry, resolve_moved(claimed));
    if (index_.replace(cursor_, entry)) return;
    Env::probe("node.write.claimed_has_moved");
    // Only the compactor changes the slot of a claimed version, namely to the copy of the version (C3).
    LOAM_CHECK(cursor_.found() && cursor_.head->valid_from == claimed->valid_from,
               "the slot of a claimed version leads elsewhere");
  }
}

void Chain::link_successor(Entry* entry) {
  index_.replace(cursor_, entry);  // fails if another thread has done it
  publish_pending(entry);
}

void Chain::kill_unlinked(Entry* entry) {
  // The first swap succeeds, because no other thread changes an unlinked entry.
  Link link = entry->load_link();
  while (link.live() && !kill(entry, link)) link = entry->load_link();
}

void Chain::reopen(Entry* entry, Version id) {
  for (;;) {
    entry = resolve_moved(entry);
    Link link = entry->load_link();
    if (link.state == EntryState::kMoved) {
      Env::probe("node.revert.reopened_has_moved");
      continue;
    }
    if (!link.live() || link.valid_to != id.value) return;  // collected, or re-opened already
    if (entry->compare_exchange_link(link, {kOpen, link.address, EntryState::kLive})) return;
  }
}

void Chain::publish_pending(Entry* entry) {
  Link expected{kPending, nullptr, EntryState::kLive};
  // Fails only if another thread has published, replaced or killed the version.
  entry->compare_exchange_link(expected, {kOpen, nullptr, EntryState::kLive});
}

void Chain::set_older_unlinked(Entry* entry, Entry* older) {
  Link link = entry->load_link();
  while (link.address != older && !entry->compare_exchange_link(link, {link.valid_to, older, EntryState::kLive})) {
  }
}

}  // namespace loam::storage
