"""Checks the histories of a cluster's clients (history.h) against snapshot isolation.

    checked = History.read(paths).check(final=[[key, version, balance], ...], total=5000)
    assert not checked.violations, "\n".join(checked.violations)

The check needs no search because of three properties of the workload: a transaction reads every record before it writes
it; a version is the id of the transaction that wrote it; and a key is inserted once. The committed writers of a key, in
the order of their ids, must therefore each have read the version of the previous writer. All times come from one clock.

The kinds of violations; each message begins with its kind:

* `reused id`, `id order`: two transactions have the same id, or a later begin got a lower id (R12, ids at begin)
* `dirty read`: a transaction read a version that no committed transaction wrote
* `wrong value`: a transaction read a version with another balance than its writer wrote
* `lost update`: two committed transactions replaced the same version
* `fractured read`: a snapshot contains one write of a transaction, and lacks another one
* `long fork`: two snapshots each contain a write that the other lacks
* `stale read`: a snapshot lacks a commit that was acknowledged before the transaction requested its begin
* `future read`: a snapshot contains a commit that was requested after the transaction had begun
* `missing write`: the final state lacks an acknowledged commit, or a part of a commit with an unknown outcome
* `total`: the sum of all balances has changed
"""

import bisect
import collections
import dataclasses
import itertools
import json

INSERT, UPDATE, REMOVE = "insert", "update", "remove"
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
ABSENT = 0  # version of a record that does not exist


@dataclasses.dataclass
class Transaction:
    client: str
    number: int
    id: int  # 0: read-only
    requested: int
    begun: int
    commit_requested: int  # moment of the commit request
    reads: dict  # key -> (version, balance)
    writes: dict  # key -> (kind, balance)
    outcome: str = UNKNOWN
    ended: int = 0

    def __str__(self):
        name = f"transaction {self.id}" if self.id else f"read-only transaction {self.number}"
        return f"{name} of {self.client} ({self.outcome})"


class CheckResult:
    """The outcome of a check."""

    def __init__(self):
        self.violations = []
        self.committed = 0  # transactions, including those whose outcome their application did not know
        self.resolved = 0  # transactions with an unknown outcome that took place
        self.vanished = 0  # transactions with an unknown outcome that did not take place
        self.reads = 0

    def report(self, kind, text):
        self.violations.append(f"{kind}: {text}")


class History:
    def __init__(self):
        self.transactions = []
        self.ids = []  # (requested, begun, id, who) of every begin in the histories
        self.sums = []

    @classmethod
    def read(cls, paths):
        history = cls()
        for path in paths:
            with open(path, encoding="utf-8") as file:
                history.add(json.loads(line) for line in file if line.endswith("\n"))
        return history

    def add(self, events):
        """Adds the events of one file, in the order of the file."""
        open_attempts = {}
        for event in events:
            who = (event["client"], event.get("n"))
            if event["event"] == "attempt":
                transaction = Transaction(
                    client=event["client"], number=event["n"], id=event["id"], requested=event["requested"],
                    begun=event["begun"], commit_requested=event["at"],
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
        """Returns the CheckResult. `final`: every record at the end, when no client writes. `total`: the constant sum
        of all balances."""
        return _Check(self, final, total).run()


class _Check:
    def __init__(self, history, final, total):
        self.history = history
        self.final = None if final is None else {key: (version, balance) for key, version, balance in final}
        self.total = total
        self.found = CheckResult()
        self.by_id = {}
        self.chains = {}  # key -> its committed writers in the order of versions
        self.positions = {}  # key -> {version: position in the chain, from 1}

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
        """Checks every version that was read. A transaction with an unknown outcome took place if a write of it was
        read."""
        for reader in self.history.transactions:
            for key, (version, balance) in reader.reads.items():
                self.found.reads += 1
                self.check_read(key, version, balance, str(reader))
        for key, (version, balance) in (self.final or {}).items():
            self.check_read(key, version, balance, "the final state")
        if self.final is not None:
            self.removals()
        for transaction in self.by_id.values():
            if not transaction.writes:
                continue
            self.found.committed += transaction.outcome == COMMITTED
            self.found.resolved += transaction.outcome == COMMITTED and not transaction.ended
            self.found.vanished += transaction.outcome == UNKNOWN

    def check_read(self, key, version, balance, who):
        if version == ABSENT:
            return
        writer = self.by_id.get(version)
        if writer is None or writer.writes.get(key, (REMOVE, 0))[0] == REMOVE:
            self.found.report("dirty read", f"{who} saw version {version} of record {key}, which no transaction wrote")
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
        """Marks a transaction with an unknown outcome as committed. The time of its commit is unknown, so `ended` is
        0."""
        transaction.outcome = COMMITTED
        transaction.ended = 0

    def removals(self):
        """Decides removals with an unknown outcome, which leave no version that could be read. If a record is missing
        at the end and no committed transaction removed it, the only unknown remover that read the last version took
        place."""
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
                                      f"{before or 'no transaction'} had written version {version}")
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
        """Returns the position of a version in its chain. None: unknown, or already reported."""
        return self.positions.get(key, {ABSENT: 0}).get(version)

    def snapshots(self):
        acknowledged = {}  # key -> (times, the highest position acknowledged until then)
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
                    self.check_fractured_reads(reader, key, writer)
                    if writer.commit_requested > reader.begun:
                        self.found.report("future read", f"{reader} saw record {key} as {writer} wrote it, which had "
                                          "not requested its commit when the reader began")
                times, places = acknowledged.get(key, ([], []))
                before = bisect.bisect_left(times, reader.requested)
                if before and places[before - 1] > place:
                    missed = self.chains[key][places[before - 1] - 1]
                    self.found.report("stale read", f"{reader} saw version {version} of record {key}, and {missed} was "
                                      "acknowledged before it began")

    def check_fractured_reads(self, reader, key, writer):
        for other in writer.writes:
            if other == key or other not in reader.reads:
                continue
            seen = self.place(other, reader.reads[other][0])
            if seen is not None and seen < self.positions.get(other, {}).get(writer.id, 0):
                self.found.report("fractured read", f"{reader} saw record {key} of {writer}, and record {other} from "
                                  f"before it (version {reader.reads[other][0]})")

    def long_forks(self):
        """Checks that snapshots are ordered: of two snapshots, one contains all writes of the other."""
        pairs = collections.defaultdict(list)  # (key, key) -> (place, place, reader)
        for reader in self.history.transactions:
            places = sorted((key, self.place(key, version)) for key, (version, _) in reader.reads.items()
                            if self.place(key, version) is not None)
            for (first, place), (second, other) in itertools.combinations(places, 2):
                pairs[first, second].append((place, other, reader))
        for (first, second), seen in pairs.items():
            seen.sort(key=lambda entry: entry[:2])
            ahead = None  # among the readers with a lower first position, the one with the highest second position
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
