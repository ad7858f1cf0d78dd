#include "storage-node/src/version/chain.h"

#include <algorithm>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::storage {
namespace {

/// The first live version at or behind `entry`: over moved, dead and replaced ones.
Entry* first_live(Entry* entry) {
  while (entry != nullptr) {
    const Link link = entry->load_link();
    if (link.live()) break;
    entry = link.address;
  }
  return entry;
}

bool garbage(const Publication& publication, const Entry& entry, const Link& link) {
  return !link.open() && link.valid_to != kPending && publication.garbage(entry.version(), Version(link.valid_to));
}

}  // namespace

void Chain::mend_slot(Link head) {
  Entry* const next = first_live(head.address);
  ++helped_;
  // Done or not (somebody else was faster), the cursor then shows what is there.
  if (next != nullptr) {
    index_.replace(cursor_, next);
  } else {
    index_.erase(thread_.epochs(), cursor_);
  }
}

Chain::Newest Chain::newest() {
  while (cursor_.found()) {
    Entry* const entry = cursor_.head;
    const Link link = entry->load_link();
    if (!link.live()) {
      mend_slot(link);
    } else if (link.valid_to == kPending) {
      publish_pending(entry);
    } else {
      return {entry, link};
    }
  }
  return {};
}

Chain::Newest Chain::collect(Version horizon, const Publication* publication, Collected* collected) {
  for (;; refresh()) {
    const Newest head = newest();
    if (head.entry == nullptr) return head;
    if (!mend_behind(head, horizon, publication, collected)) continue;
    if (publication == nullptr || !kill_lone_tombstone(head.entry, horizon, *publication)) return head;
    if (collected != nullptr) ++collected->tombstones;
  }
}

bool Chain::mend_behind(const Newest& head, Version horizon, const Publication* publication, Collected* collected) {
  Entry* entry = head.entry;
  Link link = head.link;
  while (link.address != nullptr && entry->version() > horizon) {
    Entry* const older = link.address;
    const Link seen = older->load_link();
    if (seen.live() && publication != nullptr && garbage(*publication, *older, seen)) {
      if (kill_collected(older, seen, horizon) && collected != nullptr) collected->add(*older, horizon);
      continue;  // frozen now, or changed: look again
    }
    if (seen.live()) {
      entry = older;
      link = seen;
      continue;
    }
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
  if (link.address != nullptr && entry->version() > horizon) return false;
  if (!publication.tombstone_garbage(entry->version())) return false;
  // Who meets it dead goes on to what it leads to: nothing.
  return entry->compare_exchange_link(link, {link.valid_to, nullptr, EntryState::kDead});
}

void Chain::link(Entry* claimed, Entry* entry) {
  for (;;) {
    point_unlinked(entry, resolve_moved(claimed));
    if (index_.replace(cursor_, entry)) return;
    Env::probe("node.write.claimed_has_moved");
    // Only the compactor changes the slot of a claimed version: to the version's copy (C3).
    LOAM_CHECK(cursor_.found() && cursor_.head->valid_from == claimed->valid_from,
               "the slot of a claimed version leads elsewhere");
  }
}

void Chain::link_successor(Entry* entry) {
  index_.replace(cursor_, entry);  // or somebody has helped
  publish_pending(entry);
}

void Chain::kill_unlinked(Entry* entry) {
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
    if (!link.live() || link.valid_to != id.value) return;
    if (entry->compare_exchange_link(link, {kOpen, link.address, EntryState::kLive})) return;
  }
}

void Chain::publish_pending(Entry* entry) {
  Link expected{kPending, nullptr, EntryState::kLive};
  // Fails only if somebody else has done it.
  entry->compare_exchange_link(expected, {kOpen, nullptr, EntryState::kLive});
}

void Chain::point_unlinked(Entry* entry, Entry* older) {
  Link link = entry->load_link();
  while (link.address != older && !entry->compare_exchange_link(link, {link.valid_to, older, EntryState::kLive})) {
  }
}

}  // namespace loam::storage
