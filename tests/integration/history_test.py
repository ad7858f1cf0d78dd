"""Tests history.py with correct histories, and with histories that each contain one error."""

import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from history import ABORTED, COMMITTED, History, INSERT, REMOVE, Transaction, UNKNOWN, UPDATE  # noqa: E402


class HistoryBuilder:
    """Builds histories. Each transaction begins ten ticks after the previous one, unless a test says otherwise."""

    def __init__(self):
        self.history = History()
        self.clock = 0
        self.load = self.add(1, {1: (0, 0), 2: (0, 0), 3: (0, 0)}, {k: (INSERT, 100) for k in (1, 2, 3)})

    def add(self, id, reads, writes, outcome=COMMITTED, begun=None, ended=None):
        self.clock += 10
        begun = self.clock if begun is None else begun
        ended = self.clock + 5 if ended is None else ended
        transaction = Transaction("test", len(self.history.transactions) + 1, id, begun - 1, begun, begun + 1,
                                  dict(reads), dict(writes), outcome, 0 if outcome == UNKNOWN else ended)
        self.history.transactions.append(transaction)
        return transaction

    def move(self, id, first, second, amount=10, **kwargs):
        """`first` and `second`: (key, version, balance), as the transaction read them."""
        return self.add(id, {first[0]: first[1:], second[0]: second[1:]},
                        {first[0]: (UPDATE, first[2] - amount), second[0]: (UPDATE, second[2] + amount)}, **kwargs)


class HistoryTest(unittest.TestCase):
    def setUp(self):
        self.histories = HistoryBuilder()

    def kinds(self, final=None, total=300):
        found = self.histories.history.check(final=final, total=total)
        return sorted({violation.split(":")[0] for violation in found.violations})

    def final(self, **versions):
        """The final state after all committed transactions."""
        state = {}
        for transaction in sorted(self.histories.history.transactions, key=lambda t: t.id):
            for key, (kind, balance) in transaction.writes.items():
                if transaction.outcome == COMMITTED:
                    state[key] = [key, transaction.id, balance]
                    if kind == REMOVE:
                        del state[key]
        return list(state.values())

    def test_correct_history(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.histories.add(0, {1: (2, 90), 2: (2, 110), 3: (1, 100)}, {})
        self.histories.move(3, (2, 2, 110), (3, 1, 100))
        self.assertEqual(self.kinds(self.final()), [])

    def test_lost_update(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), ended=40)
        self.histories.move(3, (1, 1, 100), (3, 1, 100), begun=21)
        self.assertIn("lost update", self.kinds(self.final()))

    def test_lost_update_between_unknown_outcomes(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), outcome=UNKNOWN)
        self.histories.move(3, (1, 1, 100), (3, 1, 100), outcome=UNKNOWN)
        self.assertIn("lost update", self.kinds([[1, 3, 90], [2, 2, 110], [3, 3, 110]]))

    def test_fractured_read(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), ended=100)
        self.histories.add(0, {1: (2, 90), 2: (1, 100)}, {})
        self.assertEqual(self.kinds(self.final()), ["fractured read"])

    def test_fractured_read_of_an_aborted_reader_counts_too(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), ended=100)
        self.histories.move(3, (1, 2, 90), (2, 1, 100), outcome=ABORTED)
        self.assertEqual(self.kinds([[1, 2, 90], [2, 2, 110], [3, 1, 100]]), ["fractured read"])

    def test_dirty_read_of_an_aborted_transaction(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), outcome=ABORTED)
        self.histories.add(0, {1: (2, 90)}, {})
        self.assertEqual(self.kinds(self.final()), ["dirty read"])

    def test_version_without_a_writer(self):
        self.histories.add(0, {1: (77, 100)}, {})
        self.assertEqual(self.kinds(self.final()), ["dirty read"])

    def test_version_of_a_transaction_that_did_not_write_that_record(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.histories.add(0, {3: (2, 100)}, {})
        self.assertEqual(self.kinds(self.final()), ["dirty read"])

    def test_wrong_value(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.histories.add(0, {1: (2, 91)}, {})
        self.assertEqual(self.kinds(self.final()), ["wrong value"])

    def test_begin_after_acknowledgement_must_see_it(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.histories.add(0, {1: (1, 100)}, {})
        self.assertEqual(self.kinds(self.final()), ["stale read"])

    def test_begin_before_acknowledgement_need_not_see_it(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), ended=1000)
        self.histories.add(0, {1: (1, 100)}, {})
        self.assertEqual(self.kinds(self.final()), [])

    def test_future_read(self):
        late = self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.histories.add(0, {1: (2, 90)}, {}, begun=late.commit_requested - 1)
        self.assertEqual(self.kinds(self.final()), ["future read"])

    def test_long_fork(self):
        self.histories.add(2, {1: (1, 100)}, {1: (UPDATE, 100)}, ended=500)
        self.histories.add(3, {2: (1, 100)}, {2: (UPDATE, 100)}, ended=500)
        self.histories.add(0, {1: (2, 100), 2: (1, 100)}, {})
        self.histories.add(0, {1: (1, 100), 2: (3, 100)}, {})
        self.assertEqual(self.kinds(self.final()), ["long fork"])

    def test_snapshots_one_after_the_other_are_no_fork(self):
        self.histories.add(2, {1: (1, 100)}, {1: (UPDATE, 100)}, ended=500)
        self.histories.add(3, {2: (1, 100)}, {2: (UPDATE, 100)}, ended=500)
        for reads in ({1: (1, 100), 2: (1, 100)}, {1: (2, 100), 2: (1, 100)}, {1: (2, 100), 2: (3, 100)}):
            self.histories.add(0, reads, {})
        self.assertEqual(self.kinds(self.final()), [])

    def test_missing_acknowledged_write(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.assertEqual(self.kinds([[1, 1, 100], [2, 1, 100], [3, 1, 100]]), ["missing write"])

    def test_visible_aborted_write(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), outcome=ABORTED)
        self.assertIn("dirty read", self.kinds([[1, 2, 90], [2, 2, 110], [3, 1, 100]]))

    def test_unknown_outcome_may_be_either(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), outcome=UNKNOWN)
        for final in ([[1, 1, 100], [2, 1, 100], [3, 1, 100]], [[1, 2, 90], [2, 2, 110], [3, 1, 100]]):
            self.histories.history.transactions[-1].outcome = UNKNOWN
            self.assertEqual(self.kinds(final), [])

    def test_unknown_outcome_may_not_be_half(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), outcome=UNKNOWN)
        self.assertIn("missing write", self.kinds([[1, 2, 90], [2, 1, 100], [3, 1, 100]]))

    def test_unknown_outcome_that_was_seen_stays(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100), outcome=UNKNOWN)
        self.histories.add(0, {1: (2, 90)}, {})
        self.assertEqual(self.kinds([[1, 1, 100], [2, 1, 100], [3, 1, 100]]), ["missing write"])

    def test_reused_id(self):
        self.histories.move(2, (1, 1, 100), (2, 1, 100))
        self.histories.add(2, {3: (1, 100)}, {3: (UPDATE, 100)})
        self.assertIn("reused id", self.kinds())

    def test_later_begin_with_a_lower_id(self):
        self.histories.add(5, {3: (1, 100)}, {3: (UPDATE, 100)})
        self.histories.add(4, {2: (1, 100)}, {2: (UPDATE, 100)})
        self.assertEqual(self.kinds(self.final()), ["id order"])

    def test_total_of_scans_and_of_the_end(self):
        self.histories.history.add([{"event": "sum", "client": "x", "at": 1, "requested": 0, "sum": 299}])
        self.assertEqual(self.kinds(), ["total"])
        self.histories.history.sums.clear()
        self.histories.add(2, {1: (1, 100)}, {1: (UPDATE, 99)})
        self.assertEqual(self.kinds(self.final()), ["total"])

    def test_records_that_come_and_go(self):
        self.histories.add(2, {9: (0, 0), 1: (1, 100)}, {9: (INSERT, 7), 1: (UPDATE, 93)})
        self.histories.add(0, {9: (2, 7)}, {})
        self.histories.add(3, {9: (2, 7), 1: (2, 93)}, {9: (REMOVE, 0), 1: (UPDATE, 100)})
        self.histories.add(0, {9: (0, 0), 1: (3, 100)}, {})
        self.assertEqual(self.kinds(self.final()), [])

    def test_removed_record_that_returns(self):
        self.histories.add(2, {9: (0, 0), 1: (1, 100)}, {9: (INSERT, 7), 1: (UPDATE, 93)})
        self.histories.add(3, {9: (2, 7), 1: (2, 93)}, {9: (REMOVE, 0), 1: (UPDATE, 100)})
        self.assertIn("missing write", self.kinds([[1, 3, 100], [2, 1, 100], [3, 1, 100], [9, 2, 7]]))

    def test_unknown_removal_may_be_either_but_not_half(self):
        self.histories.add(2, {9: (0, 0), 1: (1, 100)}, {9: (INSERT, 7), 1: (UPDATE, 93)})
        removal = self.histories.add(3, {9: (2, 7), 1: (2, 93)}, {9: (REMOVE, 0), 1: (UPDATE, 100)}, outcome=UNKNOWN)
        done, undone = [[1, 3, 100]], [[1, 2, 93], [9, 2, 7]]
        others = [[2, 1, 100], [3, 1, 100]]
        for final, expected in ((done, []), (undone, []), ([[1, 2, 93]], ["missing write", "total"]),
                                ([[1, 3, 100], [9, 2, 7]], ["missing write", "total"])):
            removal.outcome, removal.ended = UNKNOWN, 0
            self.assertEqual(self.kinds(final + others), expected)

    def test_reads_events_as_clients_write_them(self):
        history = History()
        history.add([
            {"event": "attempt", "client": "a", "at": 3, "n": 1, "id": 4, "requested": 1, "begun": 2,
             "reads": [[1, 0, 0]], "writes": [[1, INSERT, 5]]},
            {"event": "attempt", "client": "a", "at": 6, "n": 2, "id": 5, "requested": 4, "begun": 5,
             "reads": [[2, 0, 0]], "writes": [[2, INSERT, 5]]},
            {"event": "end", "client": "a", "at": 7, "n": 1, "id": 4, "outcome": COMMITTED}])
        self.assertEqual([(t.id, t.outcome, t.ended) for t in history.transactions], [(4, COMMITTED, 7), (5, UNKNOWN, 0)])
        checked = history.check(final=[[1, 4, 5]], total=5)
        self.assertEqual(checked.violations, [])
        self.assertEqual((checked.committed, checked.vanished), (1, 1))

    def test_incomplete_last_line_is_ignored(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"event":"sum","client":"x","at":1,"requested":0,"sum":300}\n{"event":"su')
            file.flush()
            self.assertEqual(len(History.read([file.name]).sums), 1)


class RandomHistoryTest(unittest.TestCase):
    """Tests the checker with histories of a small model of a database. Correct histories pass. If the model omits one
    rule of snapshot isolation, the checker finds violations."""

    SEED = int(os.environ.get("LOAM_SEED", "1"))

    def play(self, seed, check_writes=True, whole_snapshots=True, steps=300):
        chance = random.Random(seed)
        state = {key: [(1, 100)] for key in range(1, 6)}  # key -> versions, the newest last
        histories = HistoryBuilder()
        histories.history.transactions.clear()
        histories.add(1, {key: (0, 0) for key in state}, {key: (INSERT, 100) for key in state})
        open_ones, next_id = [], 2
        for _ in range(steps):
            histories.clock += 10
            if chance.random() < 0.6 or not open_ones:
                keys = chance.sample(sorted(state), 3)
                reads = {}
                for key in keys:
                    versions = state[key]
                    back = chance.randint(0, min(2, len(versions) - 1)) if not whole_snapshots else 0
                    reads[key] = versions[-1 - back]
                open_ones.append((next_id, histories.clock, reads))
                next_id += 1
                continue
            id, begun, reads = open_ones.pop(chance.randrange(len(open_ones)))
            first, second = list(reads)[:2]
            lost = any(state[key][-1][0] > id or state[key][-1] != reads[key] for key in (first, second))
            outcome = ABORTED if lost and check_writes else COMMITTED
            writes = {first: (UPDATE, reads[first][1] - 1), second: (UPDATE, reads[second][1] + 1)}
            transaction = histories.add(id, reads, writes, outcome=outcome, begun=begun, ended=histories.clock + 5)
            transaction.commit_requested = histories.clock
            if outcome == COMMITTED:
                for key, (_, balance) in writes.items():
                    state[key].append((id, balance))
        final = [[key, *versions[-1]] for key, versions in state.items()]
        return histories.history.check(final=final, total=500).violations

    def test_correct_histories_pass(self):
        for seed in range(self.SEED, self.SEED + 30):
            self.assertEqual(self.play(seed), [], f"seed {seed}")

    def test_without_conflicts_updates_are_lost(self):
        for seed in range(self.SEED, self.SEED + 30):
            found = self.play(seed, check_writes=False)
            self.assertTrue(any(v.startswith("lost update") for v in found), f"seed {seed}: {found}")

    def test_without_snapshots_reads_are_fractured(self):
        found = [v for seed in range(self.SEED, self.SEED + 30) for v in self.play(seed, whole_snapshots=False)]
        for kind in ("fractured read", "stale read", "long fork"):
            self.assertTrue(any(v.startswith(kind) for v in found), kind)


if __name__ == "__main__":
    unittest.main()
