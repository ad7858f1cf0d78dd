"""Tests a cluster without failures: histories agree, a table is created once, and an id is assigned once."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ACCOUNTS, BALANCE, ClusterTest, main  # noqa: E402


class UndisturbedTest(ClusterTest):
    def test_histories_of_three_clients_agree(self):
        clients = [self.cluster.transfers(f"mover-{i}", seconds=3, seed=i + 1) for i in range(3)]
        while any(client.running() for client in clients):
            self.assertEqual(self.guide.call_ok("sum")["sum"], ACCOUNTS * BALANCE)
        for client in clients:
            codes = client.receive()["codes"]
            self.assertGreater(codes.get("kOk", 0), 100, codes)
            self.assertLessEqual(set(codes), {"kOk", "kConflict"}, codes)
            self.assertEqual(client.wait(), 0)
        checked = self.check_history()
        self.assertGreater(checked.committed, 300)
        self.assertEqual((checked.resolved, checked.vanished), (0, 0))

    def test_open_snapshot_does_not_change(self):
        first = self.guide.call_ok("prepare read:1 read:2")
        self.cluster.client("other").call_ok("transact add:1=-5 add:2=5")
        self.assertEqual(self.guide.call_ok("reread")["records"], first["reads"])
        self.guide.call_ok("commit")
        self.assertNotEqual(self.guide.call_ok("transact read:1 read:2")["reads"], first["reads"])
        self.check_history()

    def test_two_clients_create_the_same_table_at_once(self):
        a, b = self.cluster.client("a"), self.cluster.client("b")
        for round in range(10):
            a.send(f"create same-{round} int64")
            b.send(f"create same-{round} int64")
            first, second = a.receive(), b.receive()
            self.assertTrue(first["ok"] and second["ok"], f"{first} {second}")
            self.assertEqual(first["table"], second["table"])

            a.send(f"create odd-{round} int64")
            b.send(f"create odd-{round} text")
            answers = [a.receive(), b.receive()]
            self.assertEqual(sorted(answer["ok"] for answer in answers), [False, True], answers)
            refused = next(answer for answer in answers if not answer["ok"])
            self.assertEqual(refused["code"], "kAlreadyExists", refused)
            self.assertIn(f"odd-{round}", refused["message"])


if __name__ == "__main__":
    main()
