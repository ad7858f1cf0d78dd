"""Checks what the clients of a cluster have told (history.h) against snapshot isolation.

    checked = History.read(paths).check(final=[[key, version, balance], ...], total=5000)
    assert not checked.violations, "\n".join(checked.violations)

The workload makes this possible without search: every transaction reads all that it writes, before it writes; a version
is the id of the transaction that wrote it; a key is inserted once. So the committed writers of a key, in the order of
their ids, must each have read what the one before has written. All times are of one clock.

What is found, each with its own word at the head of the message:

* `reused id`, `id order`: an id was given twice, or a later begin got a lower one (R12)
* `dirty read`: a version that nobody has committed, or of a transaction that was aborted
* `wrong value`: a version whose balance is not what its transaction wrote
* `lost update`: two committed transactions changed one and the same version
* `fractured read`: one write of a transaction was seen, and another was not
* `long fork`: two snapshots, of which each has something that the other has not
* `stale read`: a commit that was acknowledged before the begin is not seen
* `future read`: a commit that was not even asked for at the begin is seen
* `missing write`: an acknowledged commit, or half of an unknown one, is not in the final state
* `total`: money was made or lost
"""

import bisect
import collections
import dataclasses
import itertools
import json

INSERT, UPDATE, REMOVE = "insert", "update", "remove"
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
ABSENT = 0  # version of a record that is not there


@dataclasses.dataclass
class Transaction:
    client: str
    number: int
    id: int  # 0: read-only
    requested: int
    begun: int
    asked: int  # for its commit
    reads: dict  # key -> (version, balance)
    writes: dict  # key -> (kind, balance)
    outcome: str = UNKNOWN
    ended: int = 0

    def __str__(self):
        name = f"transaction {self.id}" if self.id else f"read-only transaction {self.number}"
        return f"{name} of {self.client} ({self.outcome})"


class Checked:
    """The outcome of a check."""

    def __init__(self):
        self.violations = []
        self.committed = 0  # transactions, those among them that were unknown to their application
        self.resolved = 0  # unknown ones that took place
        self.vanished = 0  # unknown ones that did not
        self.reads = 0

    def report(self, kind, text):
        self.violations.append(f"{kind}: {text}")


class History:
    def __init__(self):
        self.transactions = []
        self.ids = []  # (requested, begun, id, who) of every begin that was told
        self.sums = []

    @classmethod
    def read(cls, paths):
        history = cls()
        for path in paths:
            with open(path, encoding="utf-8") as file:
                history.add(json.loads(line) for line in file if line.endswith("\n"))
        return history

    def add(self, events):
        """The events of one file, in its order."""
        open_attempts = {}
        for event in events:
            who = (event["client"], event.get("n"))
            if event["event"] == "attempt":
                transaction = Transaction(
                    client=event["client"], number=event["n"], id=event["id"], requested=event["requested"],
                    begun=event["begun"], asked=event["at"],
                    reads={key: (version, balance) for key, version, balance in event["reads"]},
                    writes={key: (kind, balance) for key, kind, balance in event["writes"]})
                open_attempts[who] = transaction
                self.transactions.append(transaction)
            elif event["event"] == "end":
                transaction = open_attempts.pop(who, None)
                if transaction is not None:
                    transaction.outcome = event["outcome"]
                    transaction.ended = event["at"]
            elif event["event"] == "sum":
                self.sums.append(event)

    def check(self, final=None, total=None):
        """`final`: every record at the end, when nobody writes any more. `total`: what all balances always add up to."""
        return _Check(self, final, total).run()


class _Check:
    def __init__(self, history, final, total):
        self.history = history
        self.final = None if final is None else {key: (version, balance) for key, version, balance in final}
        self.total = total
        self.found = Checked()
        self.by_id = {}
        self.chains = {}  # key -> its committed writers in the order of versions
        self.positions = {}  # key -> {version: place in the chain, from 1}

    def run(self):
        self.ids()
        self.evidence()
        self.build_chains()
        self.final_state()
        self.snapshots()
        self.long_forks()
        self.totals()
        return self.found

    # ---- ids -------------------------------------------------------------------------------------------------------

    def ids(self):
        for transaction in self.history.transactions:
            if transaction.id == 0:
                continue
            other = self.by_id.setdefault(transaction.id, transaction)
            if other is not transaction:
                self.found.report("reused id", f"{other} and {transaction}")
        by_request = sorted(self.by_id.values(), key=lambda t: t.requested)
        by_begun = sorted(self.by_id.values(), key=lambda t: t.begun)
        highest, place = None, 0
        for transaction in by_request:
            while place < len(by_begun) and by_begun[place].begun < transaction.requested:
                if highest is None or by_begun[place].id > highest.id:
                    highest = by_begun[place]
                place += 1
            if highest is not None and highest.id > transaction.id:
                self.found.report("id order", f"{transaction} began after {highest} had begun")

    # ---- which transactions took place -----------------------------------------------------------------------------

    def evidence(self):
        """Whatever was seen must be of a committed transaction; an unknown one that was seen took place."""
        for reader in self.history.transactions:
            for key, (version, balance) in reader.reads.items():
                self.found.reads += 1
                self.see(key, version, balance, str(reader))
        for key, (version, balance) in (self.final or {}).items():
            self.see(key, version, balance, "the final state")
        if self.final is not None:
            self.removals()
        for transaction in self.by_id.values():
            if not transaction.writes:
                continue
            self.found.committed += transaction.outcome == COMMITTED
            self.found.resolved += transaction.outcome == COMMITTED and not transaction.ended
            self.found.vanished += transaction.outcome == UNKNOWN

    def see(self, key, version, balance, who):
        if version == ABSENT:
            return
        writer = self.by_id.get(version)
        if writer is None or writer.writes.get(key, (REMOVE, 0))[0] == REMOVE:
            self.found.report("dirty read", f"{who} saw version {version} of record {key}, which nobody has written")
            return
        if writer.outcome == ABORTED:
            self.found.report("dirty read", f"{who} saw record {key} as {writer} wrote it")
        if writer.writes[key][1] != balance:
            self.found.report("wrong value", f"{who} saw {balance} in record {key}, and {writer} wrote "
                                             f"{writer.writes[key][1]}")
        if writer.outcome == UNKNOWN:
            self.took_place(writer)

    @staticmethod
    def took_place(transaction):
        """Its application was not told (ended stays 0), or was told that nobody knows."""
        transaction.outcome = COMMITTED
        transaction.ended = 0

    def removals(self):
        """A removal leaves nothing to see: of a record that is gone at the end, an unknown remover took place if the
        version that it read was in place and nobody else removed it."""
        by_key = collections.defaultdict(list)
        for transaction in self.by_id.values():
            for key, (kind, _) in transaction.writes.items():
                by_key[key].append((transaction, kind))
        for key, writers in by_key.items():
            removers = [t for t, kind in writers if kind == REMOVE]
            if key in self.final or any(t.outcome == COMMITTED for t in removers):
                continue
            last = max((t.id for t, kind in writers if kind != REMOVE and t.outcome == COMMITTED), default=ABSENT)
            unknown = [t for t in removers if t.outcome == UNKNOWN and t.reads[key][0] == last]
            if last != ABSENT and len(unknown) == 1:
                self.took_place(unknown[0])

    # ---- order of versions -----------------------------------------------------------------------------------------

    def build_chains(self):
        chains = collections.defaultdict(list)
        for transaction in sorted(self.by_id.values(), key=lambda t: t.id):
            if transaction.outcome == COMMITTED:
                for key in transaction.writes:
                    chains[key].append(transaction)
        for key, chain in chains.items():
            before, version = None, ABSENT
            for writer in chain:
                read = writer.reads.get(key, (None, 0))[0]
                if read != version:
                    self.found.report("lost update", f"{writer} changed version {read} of record {key}, which "
                                      f"{before or 'nobody'} had made version {version}")
                before = writer
                version = ABSENT if writer.writes[key][0] == REMOVE else writer.id
            self.positions[key] = {writer.id: place for place, writer in enumerate(chain, 1)}
            if chain[-1].writes[key][0] != REMOVE:
                self.positions[key][ABSENT] = 0
        self.chains = dict(chains)

    def final_state(self):
        if self.final is None:
            return
        for key, chain in self.chains.items():
            last = chain[-1]
            expected = ABSENT if last.writes[key][0] == REMOVE else last.id
            found = self.final.get(key, (ABSENT, 0))[0]
            if found != expected:
                self.found.report("missing write", f"record {key} ends as version {found}, and {last} wrote it last")

    # ---- what each snapshot saw ------------------------------------------------------------------------------------

    def place(self, key, version):
        """Of a version in its chain; None: not known, or reported already."""
        return self.positions.get(key, {ABSENT: 0}).get(version)

    def snapshots(self):
        acknowledged = {}  # key -> (times, the highest place acknowledged until then)
        for key, chain in self.chains.items():
            ends = sorted((t.ended, self.positions[key][t.id]) for t in chain if t.ended)
            acknowledged[key] = ([end for end, _ in ends],
                                 list(itertools.accumulate((place for _, place in ends), max)))
        for reader in self.history.transactions:
            for key, (version, _) in reader.reads.items():
                place = self.place(key, version)
                if place is None:
                    continue
                writer = self.by_id.get(version)
                if writer is not None and writer is not reader:
                    self.whole(reader, key, writer)
                    if writer.asked > reader.begun:
                        self.found.report("future read", f"{reader} saw record {key} as {writer} wrote it, which had "
                                          "not asked to commit when that began")
                times, places = acknowledged.get(key, ([], []))
                before = bisect.bisect_left(times, reader.requested)
                if before and places[before - 1] > place:
                    missed = self.chains[key][places[before - 1] - 1]
                    self.found.report("stale read", f"{reader} saw version {version} of record {key}, and {missed} was "
                                      "acknowledged before it began")

    def whole(self, reader, key, writer):
        for other in writer.writes:
            if other == key or other not in reader.reads:
                continue
            seen = self.place(other, reader.reads[other][0])
            if seen is not None and seen < self.positions.get(other, {}).get(writer.id, 0):
                self.found.report("fractured read", f"{reader} saw record {key} of {writer}, and record {other} from "
                                  f"before it (version {reader.reads[other][0]})")

    def long_forks(self):
        """Snapshots are taken one after the other: of two, one has all that the other has."""
        pairs = collections.defaultdict(list)  # (key, key) -> (place, place, reader)
        for reader in self.history.transactions:
            places = sorted((key, self.place(key, version)) for key, (version, _) in reader.reads.items()
                            if self.place(key, version) is not None)
            for (first, place), (second, other) in itertools.combinations(places, 2):
                pairs[first, second].append((place, other, reader))
        for (first, second), seen in pairs.items():
            seen.sort(key=lambda entry: entry[:2])
            ahead = None  # of those with a lower first place, the one with the highest second
            for _, group in itertools.groupby(seen, key=lambda entry: entry[0]):
                group = list(group)
                if ahead is not None and ahead[1] > group[0][1]:
                    self.found.report("long fork", f"{ahead[2]} and {group[0][2]} on records {first} and {second}")
                if ahead is None or group[-1][1] > ahead[1]:
                    ahead = group[-1]

    def totals(self):
        if self.total is None:
            return
        for event in self.history.sums:
            if event["sum"] != self.total:
                self.found.report("total", f"a scan of {event['client']} found {event['sum']}, not {self.total}")
        if self.final is not None:
            found = sum(balance for _, balance in self.final.values())
            if found != self.total:
                self.found.report("total", f"{found} at the end, not {self.total}")
